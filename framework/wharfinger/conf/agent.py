"""Options in [agent], for `wharfinger agent`."""

import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Self

from oslo_config import cfg

from wharfinger.conf import default
from wharfinger.conf.option_reading import read_options
from wharfinger.conf.unread_keys import DEFAULT
from wharfinger.exceptions import ConfigurationError

GROUP: Final = "agent"
_LONGEST: Final = 2**31 - 1


class Isolation(StrEnum):
    """Ways to run a driver instance."""

    PROCESS = "process"
    THREAD = "thread"


OPTIONS: Final = (
    cfg.FloatOpt(
        "poll_interval",
        default=2,
        max=_LONGEST,
        help="Seconds between two polls. A poll asks the change feed of the driver for changes of "
        "the backend. If the driver has no change feed, changes of the backend wait for the next "
        "full cycle.",
    ),
    cfg.FloatOpt(
        "drift_interval",
        default=60,
        max=_LONGEST,
        help="Seconds between two drift cycles, which ask Placement for changes by other programs; "
        "not below poll_interval. A failed full or drift cycle, or start of a driver, is repeated "
        "after 1 second, then 2, 4 and so on, up to drift_interval, but at most 30 seconds.",
    ),
    cfg.FloatOpt(
        "full_interval",
        default=300,
        max=_LONGEST,
        help="Seconds between two full cycles; not below drift_interval. A full cycle lists all "
        "nodes of the backend, and updates Placement.",
    ),
    cfg.StrOpt(
        "health_socket",
        help="The path of the Unix socket (mode 0660) on which the agent answers HTTP requests "
        "for its health, readiness, metrics and status. `wharfinger agent status` uses this "
        "socket. Default: agent.sock in state_path. If other users of the socket's group need the "
        "socket, set a path in a directory that they can enter: a state_path that the agent has "
        "created is open only to the agent's user.",
    ),
    cfg.StrOpt(
        "health_address",
        help="An address and a port at which the agent also answers HTTP requests for its health, "
        "readiness and metrics, such as 127.0.0.1:9479 or [::1]:9479. Clients need no password. "
        "Default: none; only health_socket answers.",
    ),
    cfg.StrOpt(
        "isolation",
        default=Isolation.PROCESS.value,
        choices=[
            (Isolation.PROCESS.value, "each driver instance runs in a separate process"),
            (
                Isolation.THREAD.value,
                "all driver instances run in the process of the agent: for tests and tiny hosts",
            ),
        ],
        help="How the agent runs driver instances: each in a process of its own (process), or all "
        "in the process of the agent (thread). In processes of their own, a driver that crashes, "
        "hangs or needs too much memory does not disturb other instances.",
    ),
    cfg.FloatOpt(
        "hang_timeout",
        default=300,
        max=_LONGEST,
        help="Seconds after which a call to a driver counts as hanging. The stacks of the threads "
        "of the driver instance's process are then logged, and the process is restarted. With "
        "isolation = thread, the agent only logs an error that names the call.",
    ),
    cfg.IntOpt(
        "memory_limit",
        default=2048,
        min=0,
        max=_LONGEST,
        help="The largest resident memory, in MiB, of the process of a driver instance and of the "
        "processes that the driver has started, together. If they need more, the agent restarts "
        "the process. 0: no limit. No effect with isolation = thread.",
    ),
)
#: The options of intervals, from the shortest one.
_INTERVALS: Final = ("poll_interval", "drift_interval", "full_interval")
_HIGHEST_PORT: Final = 65535


@dataclass(frozen=True, slots=True)
class AgentSection:
    """The validated options in [agent]."""

    #: Seconds between cycles: poll_interval <= drift_interval <= full_interval.
    poll_interval: float
    drift_interval: float
    full_interval: float
    #: An absolute path.
    health_socket: Path
    #: A host and a port.
    health_address: tuple[str, int] | None = None
    isolation: Isolation = Isolation.PROCESS
    #: In seconds.
    hang_timeout: float = 300
    #: In MiB (0: no limit).
    memory_limit: int = 2048

    @classmethod
    def read(cls, conf: cfg.ConfigOpts) -> Self:
        """Read and check the section. Raises ConfigurationError."""
        values = read_options(conf, GROUP, OPTIONS)
        _check_intervals({name: values[name] for name in _INTERVALS})
        if not values["hang_timeout"] > 0:  # also true for NaN
            raise _not_a_duration("hang_timeout", values["hang_timeout"])
        values["isolation"] = Isolation(values["isolation"])
        values["health_socket"] = _socket(conf, values["health_socket"])
        values["health_address"] = _address(values["health_address"])
        return cls(**values)


def _check_intervals(intervals: dict[str, float]) -> None:
    before = 0.0
    for name, value in intervals.items():
        if not value > 0:  # also true for NaN
            raise _not_a_duration(name, value)
        if value < before:
            raise _wrong(
                name,
                f"{value:g}",
                f"it is shorter than the interval of the more frequent cycles, {before:g}.",
                "Set poll_interval <= drift_interval <= full_interval.",
            )
        before = value


def _not_a_duration(key: str, value: float) -> ConfigurationError:
    return _wrong(key, f"{value:g}", "this is not a duration.", "Set a number of seconds above 0.")


def _socket(conf: cfg.ConfigOpts, given: str | None) -> Path:
    if not given:
        # DefaultSection reports an invalid state_path; Path.expanduser would raise an error here.
        option = next(one for one in default.OPTIONS if one.dest == "state_path")
        state_path = read_options(conf, DEFAULT, [option])["state_path"]
        return Path(os.path.expanduser(state_path)) / "agent.sock"  # noqa: PTH111
    path = Path(os.path.expanduser(given))  # noqa: PTH111
    if not path.is_absolute() or not path.name or not given.isprintable():
        problem = "this is not the absolute path of a file."
        raise _wrong("health_socket", given, problem, "Write it as /run/wharfinger/agent.sock.")
    return path


def _address(given: str | None) -> tuple[str, int] | None:
    if not given:
        return None
    from oslo_utils import netutils  # noqa: PLC0415 - slow to import, and seldom needed

    try:
        host, port = netutils.parse_host_port(given)
    except ValueError:
        host, port = "", None
    if not host or port is None or not 0 < port <= _HIGHEST_PORT:
        raise _wrong(
            "health_address",
            given,
            "this is not an address and a port.",
            "Write it as 127.0.0.1:9479 or [::1]:9479.",
        )
    return host, port


def _wrong(key: str, value: str, problem: str, remedy: str) -> ConfigurationError:
    return ConfigurationError(section=GROUP, key=key, value=value, problem=problem, remedy=remedy)
