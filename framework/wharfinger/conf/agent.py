"""[agent]: how often `wharfinger agent` runs the cycles of its driver instances."""

from dataclasses import astuple, dataclass
from typing import Final, Self

from oslo_config import cfg

from wharfinger.conf.option_reading import read_options
from wharfinger.exceptions import ConfigurationError

GROUP: Final = "agent"
_LONGEST: Final = 2**31 - 1

OPTIONS: Final = (
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


@dataclass(frozen=True, slots=True)
class AgentSection:
    """[agent], validated: in seconds, none shorter than the one before it."""

    poll_interval: float
    drift_interval: float
    full_interval: float

    @classmethod
    def read(cls, conf: cfg.ConfigOpts) -> Self:
        """Read the section; raises ConfigurationError."""
        section = cls(**read_options(conf, GROUP, OPTIONS))
        before = 0.0
        for option, value in zip(OPTIONS, astuple(section), strict=True):
            if not value > 0:  # nor is what is no number
                raise _wrong(option.dest, value, "this is no time.", "It takes a number above 0.")
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
