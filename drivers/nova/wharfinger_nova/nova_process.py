"""Configure nova in this process, and load a compute driver.

All driver instances of a process share nova's configuration.
"""

import logging
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, NoReturn

from wharfinger.exceptions import BackendError, ConfigurationError, ReshapeNeeded
from wharfinger_nova.config import NovaSection

#: The package of nova's own compute drivers.
_VIRT: Final = "nova.virt"


@dataclass(frozen=True, slots=True)
class _Configured:
    instance: str
    nova_config: tuple[str, ...]
    host: str


_lock: Final = threading.Lock()
_configured: list[_Configured] = []


class NoDatabase:
    """Refuses all access to nova's database."""

    def object_class_action_versions(
        self, context: object, kind: str, method: str, *arguments: object
    ) -> NoReturn:
        """Refuse to read objects. Raises RuntimeError."""
        raise RuntimeError(
            f"the compute driver needs nova's database ({kind}.{method}), and nova_config has "
            "none: set [DEFAULT] transport_url for nova's conductor, or [database] connection"
        )

    def object_action(self, context: object, instance: Any, method: str, *_: object) -> NoReturn:
        """Refuse to change an object. Raises RuntimeError."""
        self.object_class_action_versions(context, instance.obj_name(), method)


def load(section: NovaSection, host: str) -> Any:
    """Configure nova; return a new object of the configured compute driver.

    Raises ConfigurationError and BackendError.
    """
    with _lock, warnings.catch_warnings(), _keeping_log_level(logging.getLogger("requests")):
        # A library that nova imports also imports eventlet, which warns that it is deprecated.
        warnings.filterwarnings("ignore", r"\s*Eventlet is deprecated")
        _configure(section, host)
        named = section.compute_driver or import_module("nova.conf").CONF.compute_driver
        if not named:
            raise _wrong_driver(
                section, "", "no compute driver is set, neither here nor in nova_config."
            )
        kind = _find_class(section, named)
    # nova's base class raises NotImplementedError in each method.
    return kind(import_module("nova.virt.virtapi").VirtAPI())


@contextmanager
def translated_errors(instance: str, operation: str) -> Iterator[None]:
    """Translate nova's exceptions in the block to ReshapeNeeded or BackendError."""
    exception = import_module("nova.exception")
    try:
        yield
    except exception.ReshapeNeeded:
        raise ReshapeNeeded from None
    except exception.NovaException as error:
        raise BackendError(
            driver=instance, operation=operation, reason=f"{type(error).__name__}: {error}"
        ) from error


def local_node_uuid() -> str:
    """Return the uuid in nova's file compute_id, which is created if missing."""
    return str(import_module("nova.virt.node").get_local_node_uuid())


@contextmanager
def _keeping_log_level(logger: logging.Logger) -> Iterator[None]:
    # An import of neutronclient changes the level.
    level = logger.level
    try:
        yield
    finally:
        logger.setLevel(level)


def _configure(section: NovaSection, host: str) -> None:
    wanted = _Configured(section.name, section.nova_config, host)
    if _configured:
        [there] = _configured
        if (there.nova_config, there.host) != (wanted.nova_config, wanted.host):
            raise ConfigurationError(
                section=section.name,
                key="nova_config",
                value=", ".join(wanted.nova_config),
                problem=f"nova's configuration is global to a process, and driver instance "
                f"[{there.instance}] has read {', '.join(there.nova_config) or 'no file'} for host "
                f"{there.host}.",
                remedy="Use the same files and host for both driver instances, or run one of "
                "them in a separate agent.",
            )
        return
    _choose_threads(section)
    try:
        _read_files(section, host)
    except import_module("oslo_config.cfg").Error as error:
        raise ConfigurationError(
            section=section.name,
            key="nova_config",
            value=", ".join(section.nova_config),
            problem=f"nova cannot read these files: {error}.",
            remedy="Correct the files, or their names in nova_config.",
        ) from error
    import_module("nova.objects").register_all()
    _connect_database()
    _configured.append(wanted)


def _choose_threads(section: NovaSection) -> None:
    backend = import_module("oslo_service.backend")
    try:
        backend.init_backend(backend.BackendType.THREADING)
    except import_module("oslo_service.backend.exceptions").BackendAlreadySelected as error:
        raise BackendError(
            driver=section.name,
            operation="loading nova",
            reason="nova has to run in native threads here, but another library has already "
            f"selected other threads ({error}). Run this driver instance in a separate agent",
        ) from error


def _read_files(section: NovaSection, host: str) -> None:
    conf = import_module("nova.conf").CONF
    import_module("nova.rpc").set_defaults(control_exchange="nova")
    if find_spec("osprofiler"):
        import_module("osprofiler.opts").set_defaults(conf)
    # Without this list, oslo.config reads files in the home directory and in /etc/nova.
    files, directories = [*section.nova_config], list[str]()
    conf([], project="nova", default_config_files=files, default_config_dirs=directories)
    conf.set_override("host", host)


def _connect_database() -> None:
    conf = import_module("nova.conf").CONF
    base = import_module("nova.objects.base").NovaObject
    rpc = import_module("nova.rpc")
    rpc.get_transport_url()  # this registers the option
    if conf.get_location("transport_url").location.is_user_controlled:
        rpc.init(conf)
        base.indirection_api = import_module("nova.conductor.rpcapi").ConductorAPI()
    elif conf.database.connection:
        import_module("nova.db.main.api").configure(conf)
    else:
        base.indirection_api = NoDatabase()


def _find_class(section: NovaSection, named: str) -> Any:
    module_name, _, class_name = named.rpartition(".")
    if find_spec(f"{_VIRT}.{module_name.partition('.')[0]}"):
        module_name = f"{_VIRT}.{module_name}"
    try:
        kind = getattr(import_module(module_name), class_name)
    except (ImportError, AttributeError) as error:
        raise _wrong_driver(section, named, f"it cannot be imported: {error}.") from error
    base = import_module("nova.virt.driver").ComputeDriver
    if not (isinstance(kind, type) and issubclass(kind, base)):
        raise _wrong_driver(section, named, "it is not a nova.virt.driver.ComputeDriver.")
    return kind


def _wrong_driver(section: NovaSection, named: str, problem: str) -> ConfigurationError:
    return ConfigurationError(
        section=section.name,
        key="compute_driver",
        value=named,
        problem=problem,
        remedy="Name a driver in nova, such as ironic.IronicDriver, or the full path of a class "
        "in an installed package.",
    )
