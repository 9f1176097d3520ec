"""Load driver classes, and check that they implement the interface."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from typing import Any, Final, NoReturn

from oslo_utils import versionutils
from stevedore.exception import MultipleMatches, NoMatches

from wharfinger.driver import signatures
from wharfinger.driver.base import ComputeDriver
from wharfinger.driver.capabilities import METHODS, Capabilities, Capability
from wharfinger.driver.entry_points import PluginManager, entry_points
from wharfinger.exceptions import DriverLoadError, InvalidName
from wharfinger.objects.base import REGISTERED
from wharfinger.providers.ownership import check_owner

NAMESPACE: Final = "wharfinger.drivers"


@dataclass(frozen=True, slots=True)
class InstalledDriver:
    """An entry point of the group ``wharfinger.drivers``."""

    name: str
    target: str
    distribution: str


def installed() -> list[InstalledDriver]:
    """Return all installed drivers, sorted by name, without importing them."""
    return sorted(
        (_describe(entry_point) for entry_point in entry_points(group=NAMESPACE)),
        key=lambda driver: (driver.name, driver.distribution),
    )


def load(name: str) -> type[ComputeDriver]:
    """Return the driver class of this name. Raises DriverLoadError."""
    driver: type[ComputeDriver] = _import(name)
    for error in _problems(name, driver):
        raise error
    return driver


def check(name: str) -> list[DriverLoadError]:
    """Return the faults that the loader finds in the driver class of this name."""
    try:
        return list(_problems(name, _import(name)))
    except DriverLoadError as error:
        return [error]


def _problems(name: str, driver: Any) -> Iterator[DriverLoadError]:
    if not (isinstance(driver, type) and issubclass(driver, ComputeDriver)):
        yield _error(name, "entry point", repr(driver), "a subclass of ComputeDriver")
        return
    missing = sorted(driver.__abstractmethods__)
    if missing:
        yield _error(name, ", ".join(missing), "no implementation", "one, as in ComputeDriver")
    if not (_overrides(driver, "get_inventory") or _overrides(driver, "update_provider_tree")):
        yield _error(
            name,
            "get_inventory, update_provider_tree",
            "neither implemented",
            "get_inventory for a flat provider, or update_provider_tree for nested ones",
        )
    yield from signatures.check(name, driver)
    yield from _owner_problems(name, driver)
    yield from _capability_problems(name, driver)
    yield from _object_problems(name, driver)


def _import(name: str) -> Any:
    try:
        manager = PluginManager(
            NAMESPACE,
            name,
            invoke_on_load=False,
            on_load_failure_callback=_refuse_import,
            warn_on_missing_entrypoint=False,
        )
    except (AssertionError, SystemExit) as error:
        # stevedore does not catch these two.
        raise _import_failed(name, error) from error
    except MultipleMatches as error:
        candidates = [driver for driver in installed() if driver.name == name]
        raise _error(
            name,
            "entry point",
            "; ".join(f"{driver.target} of {driver.distribution}" for driver in candidates),
            f"one of that name in {NAMESPACE}: uninstall the other package",
        ) from error
    except NoMatches as error:
        known = ", ".join(sorted({driver.name for driver in installed()})) or "none"
        raise _error(
            name,
            "entry point",
            f"none in {NAMESPACE}",
            f"an installed driver ({known}): correct the name or the option driver in the section "
            "of the instance, or install the driver's package",
        ) from error
    return manager.driver


def _refuse_import(_manager: object, entry_point: EntryPoint, error: BaseException) -> NoReturn:
    raise _import_failed(entry_point.name, error) from error


def _owner_problems(name: str, driver: type[ComputeDriver]) -> Iterator[DriverLoadError]:
    owner = getattr(driver, "default_owner", None)
    try:
        check_owner(str(owner))
    except InvalidName:
        yield _error(
            name,
            "default_owner",
            repr(owner),
            "OWNER_NOVA, OWNER_CYBORG or a trait of the form CUSTOM_OWNER_*",
        )


def _capability_problems(name: str, driver: type[ComputeDriver]) -> Iterator[DriverLoadError]:
    capabilities = getattr(driver, "capabilities", None)
    if not isinstance(capabilities, Capabilities):
        yield _error(name, "capabilities", repr(capabilities), "a Capabilities object")
        return
    for capability, declared in capabilities.items():
        subject = f"capability {capability}"
        if not isinstance(declared, Capability):
            yield _error(
                name,
                subject,
                "not declared" if declared is None else repr(declared),
                'SUPPORTED, or unsupported("a reason")',
            )
            continue
        if not declared.supported and not declared.reason:
            yield _error(name, subject, "unsupported without a reason", "a reason")
        for method in METHODS.get(capability, ()):
            if declared.supported != _overrides(driver, method):
                yield _error(
                    name,
                    f"{subject}, {method}",
                    "supported, but the method is not implemented"
                    if declared.supported
                    else "unsupported, but the method is implemented",
                    "a declaration that agrees with the methods",
                )


def _object_problems(name: str, driver: type[ComputeDriver]) -> Iterator[DriverLoadError]:
    if not isinstance(driver.object_versions, Mapping):
        found = repr(driver.object_versions)
        yield _error(name, "object_versions", found, 'a mapping such as {"ComputeNode": "1.0"}')
        return
    for kind, version in driver.object_versions.items():
        ours = REGISTERED[kind].VERSION if kind in REGISTERED else None
        try:
            fits = ours is not None and versionutils.is_compatible(version, ours)
        except (ValueError, TypeError):
            fits = False
        if not fits:
            yield _error(
                name,
                "object_versions",
                f"{kind} {version}",
                f"{kind} up to {ours}" if ours else f"one of {', '.join(sorted(REGISTERED))}",
            )


def _overrides(driver: type[ComputeDriver], method: str) -> bool:
    return getattr(driver, method) is not getattr(ComputeDriver, method)


def _describe(entry_point: EntryPoint) -> InstalledDriver:
    package = entry_point.dist
    return InstalledDriver(
        entry_point.name,
        entry_point.value,
        f"{package.name} {package.version}" if package else "unknown",
    )


def _import_failed(name: str, error: BaseException) -> DriverLoadError:
    targets = ", ".join(driver.target for driver in installed() if driver.name == name)
    return _error(
        name,
        f"entry point {targets}",
        f"{type(error).__name__}: {error}",
        "a module that can be imported with the class in it",
    )


def _error(driver: str, subject: str, found: str, expected: str) -> DriverLoadError:
    return DriverLoadError(driver=driver, subject=subject, found=found, expected=expected)
