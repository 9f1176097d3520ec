"""Load request filters by name."""

from collections.abc import Sequence
from importlib.metadata import EntryPoint
from typing import Final, NoReturn

from wharfinger.conf.scheduling import GROUP
from wharfinger.driver.entry_points import PluginManager, entry_points
from wharfinger.exceptions import ConfigurationError, WharfingerError
from wharfinger.scheduling.request_filters.base import RequestFilter, Surroundings

NAMESPACE: Final = "wharfinger.request_filters"


def load(names: Sequence[str], surroundings: Surroundings) -> dict[str, RequestFilter]:
    """Create these request filters; return them by name, in this order.

    Raises ConfigurationError, and any WharfingerError of a filter.
    """
    filters = {}
    for name, kind in find(names).items():
        try:
            filters[name] = kind(surroundings)
        except WharfingerError:
            raise
        except Exception as error:  # a plugin may raise any error
            raise _failed(names, name, error) from error
    return filters


def find(names: Sequence[str]) -> dict[str, type[RequestFilter]]:
    """Return the classes of these request filters, by name. Raises ConfigurationError."""
    installed = [one.name for one in entry_points(group=NAMESPACE)]
    for name in names:
        if names.count(name) > 1:
            raise _wrong(names, f"{name} occurs twice.", "Name each filter once.")
        if (count := installed.count(name)) != 1:
            raise _wrong(
                names,
                f"{count or 'no'} installed packages have a filter {name!r}.",
                "Keep only one of these packages installed."
                if count
                else f"Name one of the installed filters: {', '.join(sorted(set(installed)))}.",
            )

    return {name: _import(names, name) for name in names}


def _import(names: Sequence[str], name: str) -> type[RequestFilter]:
    def refuse(_manager: object, _entry_point: EntryPoint, error: BaseException) -> NoReturn:
        raise _failed(names, name, error) from error

    try:
        manager = PluginManager(NAMESPACE, name, on_load_failure_callback=refuse)
    except (AssertionError, SystemExit) as error:  # stevedore does not catch these two
        raise _failed(names, name, error) from error
    kind = manager.driver
    if not (isinstance(kind, type) and issubclass(kind, RequestFilter)):
        problem = f"{name} is not a subclass of RequestFilter."
        raise _wrong(names, problem, "Repair its package, or remove the filter from this option.")
    return kind


def _failed(names: Sequence[str], name: str, error: BaseException) -> ConfigurationError:
    return _wrong(
        names,
        f"{name} cannot be loaded: {type(error).__name__}: {error}.",
        "Repair its package, or remove the filter from this option.",
    )


def _wrong(names: Sequence[str], problem: str, remedy: str) -> ConfigurationError:
    return ConfigurationError(
        section=GROUP, key="request_filters", value=", ".join(names), problem=problem, remedy=remedy
    )
