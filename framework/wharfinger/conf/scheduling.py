"""Options in [scheduling]: the request filters for allocation candidates."""

from dataclasses import dataclass
from typing import Final, Self

from oslo_config import cfg

from wharfinger.conf.option_reading import read_options

GROUP: Final = "scheduling"

OPTIONS: Final = (
    cfg.ListOpt(
        "request_filters",
        default=["compute_status", "owner"],
        help="The filters of all requests for allocation candidates, in this order: names in the "
        "entry point group wharfinger.request_filters.",
    ),
    cfg.StrOpt(
        "untagged",
        default="forbid",
        choices=[
            ("forbid", "no, except for providers that share through an aggregate"),
            ("allow", "yes"),
        ],
        help="Whether a request for an owner's resources may use providers without an owner trait. "
        "Even with forbid, it may use them while a service of the owner does not tag all its "
        "providers. No effect without the request filter owner.",
    ),
    cfg.IntOpt(
        "cache_time",
        default=30,
        min=1,
        help="Seconds for which two things are cached: the owner traits in Placement, and whether "
        "all services of an owner tag their providers. No effect without the request filter owner.",
    ),
)


@dataclass(frozen=True, slots=True)
class SchedulingSection:
    """The options in [scheduling], validated; ``cache_time`` is in seconds."""

    request_filters: tuple[str, ...]
    allows_untagged: bool
    cache_time: int

    @classmethod
    def read(cls, conf: cfg.ConfigOpts) -> Self:
        """Read and check the section; raises ConfigurationError."""
        values = read_options(conf, GROUP, OPTIONS)
        filters = tuple(values["request_filters"])
        return cls(filters, values["untagged"] == "allow", values["cache_time"])
