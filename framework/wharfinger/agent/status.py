"""Status of the agent and of its driver instances.

Values only. An instance reports an ``InstanceReport`` after each change; the agent adds what it
knows of the thread or process in which the instance runs. Health, metrics and ``agent status`` are
made from an ``AgentStatus`` and ask nothing.

Moments are in seconds of ``time.monotonic()``, which all processes of a machine share and which no
change of the clock moves.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

import msgspec

from wharfinger.agent.schedule import CycleType


class State(StrEnum):
    """State of a driver instance."""

    #: It runs, and has not completed a full cycle since it was started.
    STARTING = "starting"
    RUNNING = "running"
    #: A call to its driver has not returned, or its process has shown no sign of life, for
    #: ``hang_timeout``. It is being ended.
    WEDGED = "wedged"
    #: It has ended, and will be started again.
    ENDED = "ended"
    #: It has ended several times in a row, each time soon after its start.
    CRASH_LOOP = "crash loop"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleCounts:
    """Cycles of one type since the instance was started.

    ``seconds`` is the sum of the durations of all of them, ``last_seconds`` the duration of the
    last one that was completed, ``completed_at`` the moment of its end. ``error`` is the text of
    the last failure, empty after a completed cycle.
    """

    completed: int = 0
    failed: int = 0
    seconds: float = 0.0
    last_seconds: float = 0.0
    completed_at: float | None = None
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationCount:
    """Number of providers that are reserved for one reason.

    ``oldest_since`` is the begin of the oldest of these reservations.
    """

    providers: int
    oldest_since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderCounts:
    """Providers of an instance by state.

    ``published`` are all that it publishes; ``reserved`` are those of them that are fully reserved,
    ``absent`` those that the last complete listing lacked, ``fought`` those with a value that
    another program undoes again and again.
    """

    published: int = 0
    reserved: int = 0
    absent: int = 0
    fought: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceReport:
    """Report of a driver instance on its work.

    ``driver`` and ``owner`` are None until the driver is loaded. ``is_complete``: the last full
    cycle published all nodes and devices. ``cycle`` is the cycle in progress, and
    ``cycle_began_at`` its begin. ``cycles`` are counted by type. ``problems`` are the texts of the
    current problems. ``conflicts`` is the number of trees that another process changed at the same
    time. ``requests`` are those sent to Placement, by method, then by HTTP status (``0``: no
    answer). ``unreachable_cycles`` is the number of cycles in a row that failed since Placement did
    not answer. ``reserving_seconds`` is the sum, for ``reserving_count`` reservations, of the
    time from the begin of the cycle that found the change until Placement had the reservation.
    """

    driver: str | None = None
    owner: str | None = None
    is_complete: bool = False
    cycle: CycleType | None = None
    cycle_began_at: float | None = None
    cycles: Mapping[CycleType, CycleCounts] = field(default_factory=dict)
    providers: ProviderCounts = ProviderCounts()
    reservations: Mapping[str, ReservationCount] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    conflicts: int = 0
    requests: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    unreachable_cycles: int = 0
    reserving_count: int = 0
    reserving_seconds: float = 0.0

    @property
    def has_published(self) -> bool:
        """Whether a full cycle was completed."""
        counts = self.cycles.get(CycleType.FULL)
        return counts is not None and counts.completed > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceStatus:
    """Status of a driver instance, as the agent sees it.

    ``since`` is the begin of ``state``, ``started_at`` the first start by this agent.
    ``completed_at`` has the end of the last completed cycle of each type since then, also before it
    was started again. ``pid`` is None in a thread of the agent, and while no process
    runs. ``restarts`` counts the starts after the first one. ``last_end`` says how it ended last
    ("exit code 3", "signal SIGSEGV"), ``next_start_at`` when it will be started again.
    ``driver_call`` is the call to its driver in progress, empty without one, and
    ``driver_call_began_at`` its begin.
    """

    name: str
    state: State
    since: float
    started_at: float
    completed_at: Mapping[CycleType, float] = field(default_factory=dict)
    pid: int | None = None
    restarts: int = 0
    last_end: str = ""
    next_start_at: float | None = None
    driver_call: str = ""
    driver_call_began_at: float | None = None
    report: InstanceReport = InstanceReport()

    def with_report(self, report: InstanceReport) -> "InstanceStatus":
        """Return the status with a newer report."""
        completed = {
            kind: counts.completed_at
            for kind, counts in report.cycles.items()
            if counts.completed_at is not None
        }
        return replace(self, report=report, completed_at={**self.completed_at, **completed})


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """Seconds between cycles, by type, and ``hang_timeout``."""

    poll: float
    drift: float
    full: float
    hang: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStatus:
    """Status of an agent: of all its driver instances, in the order of the configuration.

    ``looked_at`` is the moment at which the agent looked after its instances last.
    ``reloads`` counts the configurations that were taken after the first one. ``refused_reload`` is
    the text of the problems for which the last new configuration was refused, empty if it was
    taken; ``reloaded_at`` is the moment of either. ``service_error`` is the error of the last
    report of the host's service, empty after a success; ``service_reported_at`` is the moment of
    either.
    """

    started_at: float
    looked_at: float
    intervals: Intervals
    instances: tuple[InstanceStatus, ...] = ()
    is_stopping: bool = False
    reloads: int = 0
    refused_reload: str = ""
    reloaded_at: float | None = None
    service_error: str = ""
    service_reported_at: float | None = None


def encode(report: InstanceReport) -> bytes:
    """Return a report as one line of JSON, without its end."""
    return msgspec.json.encode(report)


#: Return the report of one line of JSON; raise msgspec.ValidationError or msgspec.DecodeError for
#: any other line.
decode: Final = msgspec.json.Decoder(InstanceReport).decode
