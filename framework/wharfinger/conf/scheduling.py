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
        help="The request filters that are applied to each request for allocation candidates, in "
        "this order. Each is a name in the entry point group wharfinger.request_filters.",
    ),
    cfg.StrOpt(
        "untagged",
        default="forbid",
        choices=[
            ("forbid", "no, except for providers that share through an aggregate"),
            ("allow", "yes"),
        ],
        help="Whether a request for an owner's resources may get resources of providers without "
        "an owner trait. forbid takes effect when all services of the owner tag all their "
        "providers: `wharfinger service list` then shows the gate of the owner as on. No effect "
        "without owner in request_filters.",
    ),
    cfg.IntOpt(
        "cache_time",
        default=30,
        min=1,
        help="Seconds for which the request filter owner caches Placement's owner traits, and "
        "whether all services of an owner tag their providers. No effect without owner in "
        "request_filters.",
    ),
)


@dataclass(frozen=True, slots=True)
class SchedulingSection:
    """The validated options in [scheduling]."""

    request_filters: tuple[str, ...]
    allows_untagged: bool
    #: In seconds.
    cache_time: int

    @classmethod
    def read(cls, conf: cfg.ConfigOpts) -> Self:
        """Read and check the section. Raises ConfigurationError."""
        values = read_options(conf, GROUP, OPTIONS)
        filters = tuple(values["request_filters"])
        return cls(filters, values["untagged"] == "allow", values["cache_time"])
