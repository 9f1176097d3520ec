"""Options in [DEFAULT], without those for logging."""

import os
import re
import socket
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final, Self

from oslo_config import cfg

from wharfinger.conf.option_reading import read_options, read_path
from wharfinger.conf.unread_keys import DEFAULT
from wharfinger.exceptions import ConfigurationError


def _user_state() -> str:
    # Path.expanduser would fail for a user without a home.
    return os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")  # noqa: PTH111


OPTIONS: Final = (
    cfg.ListOpt(
        "enabled_drivers",
        default=[],
        help="The driver instances to run: the names of their sections in the configuration. The "
        "option `driver` in such a section names the driver; by default, the driver has the name "
        "of the section. One driver may have several instances. Default: none; then `wharfinger "
        "agent` and `wharfinger sync` end with an error.",
    ),
    cfg.StrOpt(
        "host",
        default=socket.gethostname(),
        sample_default="<this machine's host name>",
        help="The name of this host in Wharfinger's database. Do not change the name while the "
        "host publishes providers: under a new name, the host counts as another host.",
    ),
    cfg.StrOpt(
        "state_path",
        default="/var/lib/wharfinger"
        if os.geteuid() == 0
        else str(Path(_user_state()) / "wharfinger"),
        sample_default="/var/lib/wharfinger",
        help="The directory for data that must survive a restart: by default, wharfinger.sqlite "
        "and the database of an embedded Placement. If wharfinger.sqlite is lost, providers that "
        "no driver lists at the next start are not deleted; each full cycle reports them. "
        "Default for users other than root: wharfinger in $XDG_STATE_HOME, or in ~/.local/state.",
    ),
    cfg.IntOpt(
        "service_down_time",
        default=60,
        min=1,
        max=2**31 - 1,
        help="A service counts as down if it has not reported for this many seconds. Other hosts "
        "whose drivers list nodes of the service then take over these nodes. A claim, a move or a "
        "device job counts as interrupted if its process has not reported for this time.",
    ),
)

#: The width of its column in the database.
_LONGEST_HOST: Final = 255
#: Names of sections that cannot be names of driver instances.
_RESERVED: Final = frozenset(
    {"accelerator", "agent", "database", "default", "placement", "scheduling"}
)
#: Instance names become traits (CUSTOM_WHARFINGER_<NAME>) and configuration sections.
_INSTANCE: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}\Z")


def is_instance_name(name: str) -> bool:
    """Return whether a driver instance can have this name."""
    return _INSTANCE.match(name) is not None and name not in _RESERVED


@dataclass(frozen=True, slots=True)
class DefaultSection:
    """The validated options in [DEFAULT]."""

    #: Names of driver instances, each once.
    enabled_drivers: tuple[str, ...]
    host: str
    state_path: Path
    service_down_time: timedelta

    @classmethod
    def read(cls, conf: cfg.ConfigOpts) -> Self:
        """Read and check the section. Raises ConfigurationError."""
        values = read_options(conf, DEFAULT, OPTIONS)
        instances = tuple(values["enabled_drivers"])
        same: dict[str, str] = {}
        for name in instances:
            if not is_instance_name(name):
                raise _wrong_instances(
                    instances,
                    f"{name!r} cannot be the name of a driver instance.",
                    "Use a lower-case letter, then up to 63 lower-case letters, digits, - and _; "
                    f"not {' or '.join(sorted(_RESERVED))}.",
                )
            other = same.setdefault(name.replace("-", "_"), name)
            if other != name or instances.count(name) > 1:
                raise _wrong_instances(
                    instances,
                    f"{other} and {name} would have the same instance trait (CUSTOM_WHARFINGER_*).",
                    "Use a different name for each instance (- and _ count as the same).",
                )
        host = values["host"]
        if not host:
            raise _wrong_host(host, "it is empty.")
        if not host.isprintable():
            raise _wrong_host(host, "it has unprintable characters.")
        if len(host) > _LONGEST_HOST:
            raise _wrong_host(host, f"it has more than {_LONGEST_HOST} characters.")
        state_path = read_path(DEFAULT, "state_path", values["state_path"])
        down_time = timedelta(seconds=values["service_down_time"])
        return cls(instances, host, state_path, down_time)

    def require_instances(self) -> None:
        """Raise ConfigurationError if no driver instance is enabled."""
        if not self.enabled_drivers:
            raise _wrong_instances(
                (),
                "no driver instance is enabled, so there is nothing to publish.",
                "Enable an instance, or use another file with --config-file.",
            )


def _wrong_host(host: str, problem: str) -> ConfigurationError:
    return ConfigurationError(
        section=DEFAULT,
        key="host",
        value=host,
        problem=problem,
        remedy="Set host to a permanent name of 1 to 255 printable characters.",
    )


def _wrong_instances(instances: tuple[str, ...], problem: str, remedy: str) -> ConfigurationError:
    return ConfigurationError(
        section=DEFAULT,
        key="enabled_drivers",
        value=", ".join(instances),
        problem=problem,
        remedy=remedy,
    )
