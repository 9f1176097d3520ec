"""Status of the agent and of its driver instances, as values.

Times are in seconds of ``time.monotonic()``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

import msgspec

from wharfinger.agent.schedule import CycleType


class State(StrEnum):
    """State of a driver instance."""

    #: It has not completed a full cycle since it was started.
    STARTING = "starting"
    RUNNING = "running"
    #: Its driver or its process hangs.
    WEDGED = "wedged"
    #: It has ended, and will be restarted.
    ENDED = "ended"
    #: It has ended several times in a row.
    CRASH_LOOP = "crash loop"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleCounts:
    """Statistics of the cycles of one type since the start of the instance."""

    completed: int = 0
    failed: int = 0
    #: The total duration of all these cycles.
    seconds: float = 0.0
    #: The duration and the end of the last completed cycle.
    last_seconds: float = 0.0
    completed_at: float | None = None
    #: The text of the last failure, "" after a completed cycle.
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationCount:
    """Number of providers that are reserved for one reason."""

    providers: int
    oldest_since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderCounts:
    """Numbers of the published providers of a driver instance."""

    published: int = 0
    reserved: int = 0
    #: Providers that the last complete list lacked.
    absent: int = 0
    #: Providers with a value that another program undoes again and again.
    fought: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceReport:
    """Report of a driver instance about its work."""

    #: The driver and its owner trait are None until the driver is loaded.
    driver: str | None = None
    owner: str | None = None
    #: Whether the last completed full cycle had no problems.
    is_complete: bool = False
    #: The cycle in progress, and its start.
    cycle: CycleType | None = None
    cycle_began_at: float | None = None
    cycles: Mapping[CycleType, CycleCounts] = field(default_factory=dict)
    providers: ProviderCounts = ProviderCounts()
    reservations: Mapping[str, ReservationCount] = field(default_factory=dict)
    #: Without the errors of failed cycles, which are in ``cycles``.
    problems: tuple[str, ...] = ()
    #: The number of trees that another process changed at the same time.
    conflicts: int = 0
    #: The numbers of requests to Placement, by method, then by HTTP status ("0": no answer).
    requests: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    #: The number of cycles in a row in which Placement did not answer.
    unreachable_cycles: int = 0
    #: The number of reservations, and the sum of the seconds from the starts of their cycles until
    #: Placement had them.
    reserving_count: int = 0
    reserving_seconds: float = 0.0

    @property
    def has_published(self) -> bool:
        """Return whether the instance has completed a full cycle since its start."""
        counts = self.cycles.get(CycleType.FULL)
        return counts is not None and counts.completed > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceStatus:
    """Status of a driver instance, as the agent sees it."""

    name: str
    state: State
    #: The start of ``state``, and the first start of the instance by this agent.
    since: float
    started_at: float
    #: The end of the last completed cycle by type, also from before a restart.
    completed_at: Mapping[CycleType, float] = field(default_factory=dict)
    #: None without a process of its own.
    pid: int | None = None
    #: The number of starts after the first one.
    restarts: int = 0
    #: How it ended last, such as "exit code 3", and when it will be restarted.
    last_end: str = ""
    next_start_at: float | None = None
    #: The call to its driver in progress, "" without one, and the start of this call.
    driver_call: str = ""
    driver_call_began_at: float | None = None
    report: InstanceReport = InstanceReport()

    def with_report(self, report: InstanceReport) -> "InstanceStatus":
        """Return this status with a newer report."""
        completed = {
            kind: counts.completed_at
            for kind, counts in report.cycles.items()
            if counts.completed_at is not None
        }
        return replace(self, report=report, completed_at={**self.completed_at, **completed})


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """Configured intervals and timeouts of the agent, in seconds."""

    poll: float
    drift: float
    full: float
    hang: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStatus:
    """Status of an agent and of its driver instances."""

    started_at: float
    #: The time of the agent's last check of its instances.
    looked_at: float
    intervals: Intervals
    instances: tuple[InstanceStatus, ...] = ()
    is_stopping: bool = False
    #: The number of configurations that were accepted after the first one.
    reloads: int = 0
    #: Why the last new configuration was refused ("": accepted), and when either happened.
    refused_reload: str = ""
    reloaded_at: float | None = None
    #: The error of the last report of the host's service ("": success), and its time.
    service_error: str = ""
    service_reported_at: float | None = None


def encode(report: InstanceReport) -> bytes:
    """Return a report as bytes of JSON."""
    return msgspec.json.encode(report)


#: Decode a report from JSON; raises msgspec.ValidationError or msgspec.DecodeError.
decode: Final = msgspec.json.Decoder(InstanceReport).decode
