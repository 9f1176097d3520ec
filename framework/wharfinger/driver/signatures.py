"""Check the signatures of a driver's methods."""

import inspect
from collections.abc import Iterator
from functools import cache
from typing import Final

from wharfinger.driver.base import ComputeDriver
from wharfinger.exceptions import DriverLoadError

#: The arguments of each method in one or several forms. The driver's method has to accept one
#: form: nova's update_provider_tree has no argument migrations.
_CALLS: Final[dict[str, tuple[str, ...]]] = {
    "__init__": ("conf, host, name",),
    "config_sections": ("conf, name",),
    "init_host": ("service",),
    "cleanup_host": ("",),
    "get_available_nodes": ("refresh=",),
    "node_is_available": ("nodename",),
    "provider_is_available": ("provider_uuid, name",),
    "get_available_resource": ("nodename",),
    "get_inventory": ("nodename",),
    "get_traits": ("nodename",),
    "update_provider_tree": (
        "provider_tree, nodename, allocations=, migrations=",
        "provider_tree, nodename, allocations=",
    ),
    "capabilities_as_traits": ("",),
    "changed_nodes": ("since",),
    "program": ("provider_uuid, image, function",),
    "current_function": ("provider_uuid",),
    "programming_scope": ("provider_uuid",),
    "function_trait": ("provider_uuid, function",),
    "get_problems": ("",),
    "is_clean": ("provider_uuid, since",),
}


def check(name: str, driver: type[ComputeDriver]) -> Iterator[DriverLoadError]:
    """Yield an error for each method that the framework cannot call."""
    for method, calls in _CALLS.items():
        found = getattr(driver, method)
        if not callable(found) or inspect.iscoroutinefunction(found):
            yield DriverLoadError(
                driver=name,
                subject=method,
                found="a coroutine function" if callable(found) else repr(found),
                expected="a method that returns its answer",
            )
        elif not any(_fits(driver, method, call) for call in calls):
            yield DriverLoadError(
                driver=name,
                subject=method,
                found=f"the signature {inspect.signature(found)}",
                expected=f"one that can be called with ({calls[0]})",
            )


@cache
def takes_migrations(driver: type[ComputeDriver]) -> bool:
    """Return whether the driver's update_provider_tree takes migrations."""
    return _fits(driver, "update_provider_tree", _CALLS["update_provider_tree"][0])


def _fits(driver: type[ComputeDriver], method: str, call: str) -> bool:
    needs_object = not isinstance(
        inspect.getattr_static(driver, method), staticmethod | classmethod
    )
    arguments = [argument for argument in call.split(", ") if argument]
    by_keyword = {name.rstrip("=") for name in arguments if name.endswith("=")}
    by_position = [name for name in arguments if not name.endswith("=")]
    try:
        own = ("self",) if needs_object else ()
        signature = inspect.signature(getattr(driver, method))
        signature.bind(*own, *by_position, **dict.fromkeys(by_keyword))
    except TypeError:
        return False
    return True
