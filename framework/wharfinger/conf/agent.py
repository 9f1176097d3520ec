"""[agent]: how `wharfinger agent` runs its driver instances, and how often their cycles."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

from oslo_config import cfg

from wharfinger.conf.option_reading import read_options
from wharfinger.exceptions import ConfigurationError

GROUP: Final = "agent"
_LONGEST: Final = 2**31 - 1


class Isolation(StrEnum):
    """What runs a driver instance."""

    PROCESS = "process"
    THREAD = "thread"


_INTERVALS: Final = (
    cfg.FloatOpt(
        "poll_interval",
        default=2,
        max=_LONGEST,
        help="Seconds until a backend's change feed is asked again for what has changed.",
    ),
    cfg.FloatOpt(
        "drift_interval",
        default=60,
        max=_LONGEST,
        help="Seconds until Placement is asked again for what others have changed there; and "
        "until what failed as a whole is tried again: a full listing, or a driver that could not "
        "be loaded or connected.",
    ),
    cfg.FloatOpt(
        "full_interval",
        default=300,
        max=_LONGEST,
        help="Seconds until a backend is asked again for all that it has.",
    ),
)
OPTIONS: Final = (
    *_INTERVALS,
    cfg.StrOpt(
        "isolation",
        default=Isolation.PROCESS.value,
        choices=[
            (Isolation.PROCESS.value, "each driver instance in a process of its own"),
            (Isolation.THREAD.value, "all in one process: for tests and tiny hosts"),
        ],
        help="What runs a driver instance. A driver that ends, hangs or grows too large disturbs "
        "no other instance if each has a process.",
    ),
    cfg.FloatOpt(
        "hang_timeout",
        default=300,
        max=_LONGEST,
        help="Seconds after which a call to a driver counts as hanging. The process of the "
        "instance writes the stacks of its threads to the log, and is started again.",
    ),
    cfg.IntOpt(
        "memory_limit",
        default=2048,
        min=0,
        max=_LONGEST,
        help="MiB of resident memory above which the process of a driver instance is started "
        "again. 0: no limit.",
    ),
)


@dataclass(frozen=True, slots=True)
class AgentSection:
    """[agent], validated.

    Intervals and ``hang_timeout`` are in seconds, ``memory_limit`` is in MiB (0: none). No interval
    is shorter than the one before it.
    """

    poll_interval: float
    drift_interval: float
    full_interval: float
    isolation: Isolation = Isolation.PROCESS
    hang_timeout: float = 300
    memory_limit: int = 2048

    @classmethod
    def read(cls, conf: cfg.ConfigOpts) -> Self:
        """Read the section; raises ConfigurationError."""
        values = read_options(conf, GROUP, OPTIONS)
        section = cls(**values | {"isolation": Isolation(values["isolation"])})
        for key in (*(option.dest for option in _INTERVALS), "hang_timeout"):
            if not values[key] > 0:  # nor is what is no number
                raise _wrong(key, values[key], "this is no time.", "It takes a number above 0.")
        before = 0.0
        for option in _INTERVALS:
            value = values[option.dest]
            if value < before:
                raise _wrong(
                    option.dest,
                    value,
                    f"it is shorter than the interval of what is done more often, {before:g}.",
                    "It takes poll_interval <= drift_interval <= full_interval.",
                )
            before = value
        return section


def _wrong(key: str, value: float, problem: str, remedy: str) -> ConfigurationError:
    return ConfigurationError(
        section=GROUP, key=key, value=f"{value:g}", problem=problem, remedy=remedy
    )
