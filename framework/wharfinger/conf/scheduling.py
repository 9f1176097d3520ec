"""[scheduling]: how requests for allocation candidates are narrowed."""

from dataclasses import dataclass
from typing import Final, Self

from oslo_config import cfg

from wharfinger.conf.option_reading import read_options

GROUP: Final = "scheduling"

OPTIONS: Final = (
    cfg.ListOpt(
        "request_filters",
        default=["compute_status", "owner"],
        help="What every request for allocation candidates goes through, in this order: names in "
        "the entry point group wharfinger.request_filters.",
    ),
    cfg.StrOpt(
        "untagged",
        default="forbid",
        choices=[
            ("forbid", "they are not; those that share through an aggregate are, all the same"),
            ("allow", "they are"),
        ],
        help="Whether providers without an owner trait are offered to those who ask for an "
        "owner's resources. For as long as a service that publishes for the owner does not tag "
        "all that it has, they are.",
    ),
    cfg.IntOpt(
        "cache_time",
        default=30,
        min=1,
        help="Seconds for which it is believed which owner traits there are, and which owners' "
        "services tag all that they publish.",
    ),
)


@dataclass(frozen=True, slots=True)
class SchedulingSection:
    """[scheduling], validated; ``cache_time`` is in seconds."""

    request_filters: tuple[str, ...]
    allows_untagged: bool
    cache_time: int

    @classmethod
    def read(cls, conf: cfg.ConfigOpts) -> Self:
        """Read the section; raises ConfigurationError."""
        values = read_options(conf, GROUP, OPTIONS)
        filters = tuple(values["request_filters"])
        return cls(filters, values["untagged"] == "allow", values["cache_time"])
