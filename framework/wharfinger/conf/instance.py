"""[<instance>]: what every driver instance has, whatever its driver."""

from dataclasses import dataclass
from typing import Final, Self

from oslo_config import cfg

from wharfinger.conf.reading import read_options

OPTIONS: Final = (
    cfg.StrOpt(
        "driver",
        help="The driver: a name in the entry point group wharfinger.drivers. Default: the name "
        "of this section.",
    ),
    cfg.StrOpt(
        "owner",
        help="The owner trait of everything that this instance publishes: OWNER_NOVA, "
        "OWNER_CYBORG or CUSTOM_OWNER_*. Default: the driver's own.",
    ),
    cfg.IntOpt(
        "removal_delay",
        default=60,
        min=0,
        help="Seconds between the first complete listing that lacks a device or node and the "
        "second one that makes it gone. Only then is its provider removed.",
    ),
)


@dataclass(frozen=True, slots=True)
class InstanceSection:
    """A driver instance's section, as far as the framework reads it.

    ``owner`` is None where the driver's own is to be used; ``removal_delay`` in seconds.
    """

    name: str
    driver: str
    owner: str | None
    removal_delay: int

    @classmethod
    def read(cls, conf: cfg.ConfigOpts, name: str) -> Self:
        """Read the section of an instance; raises ConfigurationError."""
        values = read_options(conf, name, OPTIONS)
        return cls(name, values["driver"] or name, values["owner"], values["removal_delay"])
