"""Options in the sections of all driver instances."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

from oslo_config import cfg

from wharfinger.conf.option_reading import read_options


class Adopt(StrEnum):
    """Which providers of other programs a driver instance adopts without a command."""

    NONE = "none"
    MATCHING = "matching"


OPTIONS: Final = (
    cfg.StrOpt(
        "driver",
        help="The driver of this instance: its name in the entry point group wharfinger.drivers. "
        "Default: the name of this section.",
    ),
    cfg.StrOpt(
        "owner",
        help="The owner trait of all providers of this instance: OWNER_NOVA, OWNER_CYBORG or "
        "CUSTOM_OWNER_*. Default: the default owner of the driver.",
    ),
    cfg.StrOpt(
        "adopt",
        default=str(Adopt.NONE),
        choices=(
            (str(Adopt.NONE), "no provider; `wharfinger provider adopt` adopts single ones"),
            (
                str(Adopt.MATCHING),
                "each provider whose uuid, name, parent and resource classes are those that the "
                "driver reports, if it has no owner trait or that of this instance, and no trait "
                "of another instance; never a root provider with VCPU",
            ),
        ),
        help="Which providers of another program, such as nova's ironic driver, this instance "
        "adopts: none, or the matching ones. From then on, the instance publishes these "
        "providers: it replaces their inventories, and deletes the providers when its backend no "
        "longer has them. Stop the other program first.",
    ),
    cfg.IntOpt(
        "removal_delay",
        default=60,
        min=0,
        help="A provider is deleted from Placement only if two complete lists of the driver, at "
        "least this many seconds apart, both lack its device or node. `wharfinger sync "
        "--removal-delay` overrides this option.",
    ),
)


@dataclass(frozen=True, slots=True)
class InstanceSection:
    """The framework's options in the section of a driver instance."""

    name: str
    driver: str
    #: None for the default owner of the driver.
    owner: str | None
    #: In seconds.
    removal_delay: int
    adopt: Adopt = Adopt.NONE

    @classmethod
    def read(cls, conf: cfg.ConfigOpts, name: str) -> Self:
        """Read the section of a driver instance. Raises ConfigurationError."""
        values = read_options(conf, name, OPTIONS)
        return cls(
            name,
            values["driver"] or name,
            values["owner"],
            values["removal_delay"],
            Adopt(values["adopt"]),
        )
