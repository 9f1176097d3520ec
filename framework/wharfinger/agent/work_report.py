"""Make the report of a driver instance about its cycles."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from wharfinger.agent.schedule import CycleType
from wharfinger.agent.status import CycleCounts, InstanceReport, ProviderCounts, ReservationCount
from wharfinger.error_codes import with_code
from wharfinger.exceptions import PlacementUnavailable, printable
from wharfinger.placement.client import PlacementClient
from wharfinger.providers import fights
from wharfinger.providers.inventory import Inventory
from wharfinger.providers.plan import SetInventories, Step
from wharfinger.providers.provider import Record
from wharfinger.reconcile.cycle_result import CycleResult

#: The largest numbers of problems, of characters of each, and of reasons of reservations.
_PROBLEMS: Final = 20
_LONGEST: Final = 500
_REASONS: Final = 50
#: The reason under which all further reasons are counted.
OTHER_REASONS: Final = "other reasons"


class WorkReport:
    """Makes the report of a driver instance from its cycles."""

    def __init__(self, client: PlacementClient) -> None:
        self._client: Final = client
        self._report = InstanceReport()
        self._requests_before: dict[tuple[str, int], int] = {}
        self._steps = 0

    @property
    def current(self) -> InstanceReport:
        """Return the present report."""
        return self._report

    def loaded(self, driver: str, owner: str) -> None:
        """Note the loaded driver and the owner trait of the driver instance."""
        self._report = replace(self._report, driver=driver, owner=owner)

    def begin(self, kind: CycleType) -> None:
        """Note that a cycle starts."""
        self._steps = 0
        self._requests_before = dict(self._client.counts)
        self._report = replace(self._report, cycle=kind, cycle_began_at=time.monotonic())

    def written(self, step: Step) -> None:
        """Note that a step was written to Placement."""
        self._steps += 1
        began = self._report.cycle_began_at
        if became_reserved(step) and began is not None:
            self._report = replace(
                self._report,
                reserving_count=self._report.reserving_count + 1,
                reserving_seconds=self._report.reserving_seconds + time.monotonic() - began,
            )

    def failed(self, error: BaseException) -> None:
        """Note that a cycle or the start of the instance failed."""
        if self._report.cycle is None:
            self._report = replace(self._report, problems=_texts([error]))
        counts = self._counts()
        self._end(replace(counts, failed=counts.failed + 1, error=_text(error)), [error])

    def completed(self, result: CycleResult, records: Mapping[str, Record]) -> None:
        """Note the result of the cycle in progress."""
        kind, began = self._report.cycle, self._report.cycle_began_at
        counts, now = self._counts(), time.monotonic()
        is_listing = kind is CycleType.FULL
        self._report = replace(
            self._report,
            conflicts=self._report.conflicts + result.conflicts,
            is_complete=not result.problems if is_listing else self._report.is_complete,
        )
        if self._steps or result.problems or kind is not CycleType.POLL:
            self._report = replace(
                self._report,
                providers=_provider_counts(records.values()),
                reservations=_reservation_counts(records.values()),
            )
        if is_listing or result.problems:
            self._report = replace(self._report, problems=_texts(result.problems))
        counts = replace(
            counts,
            completed=counts.completed + 1,
            completed_at=now,
            last_seconds=now - (began or now),
            error="",
        )
        self._end(counts, result.problems)

    def _counts(self) -> CycleCounts:
        kind = self._report.cycle
        return self._report.cycles.get(kind, CycleCounts()) if kind else CycleCounts()

    def _end(self, counts: CycleCounts, errors: Iterable[BaseException]) -> None:
        report = self._report
        now = time.monotonic()
        seconds = counts.seconds + now - (report.cycle_began_at or now)
        cycles = dict(report.cycles)
        if report.cycle is not None:
            cycles[report.cycle] = replace(counts, seconds=seconds)
        requests: dict[str, dict[str, int]] = {}
        for (method, status), count in dict(self._client.counts).items():
            requests.setdefault(method, {})[str(status)] = count
        self._report = replace(
            report,
            cycle=None,
            cycle_began_at=None,
            cycles=cycles,
            requests=requests,
            unreachable_cycles=self._count_unreachable_cycles(errors),
        )

    def _count_unreachable_cycles(self, errors: Iterable[BaseException]) -> int:
        before = self._requests_before
        statuses = {
            status
            for (method, status), count in dict(self._client.counts).items()
            if count > before.get((method, status), 0)
        }
        if any(isinstance(error, PlacementUnavailable) for error in errors):
            return self._report.unreachable_cycles + 1
        return 0 if statuses else self._report.unreachable_cycles


def became_reserved(step: Step) -> bool:
    """Return whether a step makes a provider fully reserved."""
    return isinstance(step, SetInventories) and _is_full(step.after) and not _is_full(step.before)


def became_free(step: Step) -> bool:
    """Return whether a step ends the full reservation of a provider."""
    return isinstance(step, SetInventories) and _is_full(step.before) and not _is_full(step.after)


def _is_full(inventories: Mapping[str, Inventory]) -> bool:
    return bool(inventories) and all(one.is_fully_reserved for one in inventories.values())


def _provider_counts(records: Iterable[Record]) -> ProviderCounts:
    applied = [(one, one.applied) for one in records if one.applied is not None]
    return ProviderCounts(
        published=len(applied),
        reserved=sum(_is_full(provider.inventories) for _record, provider in applied),
        absent=sum(record.absence is not None for record, _provider in applied),
        fought=sum(bool(record.undone and fights.fights(record)) for record, _provider in applied),
    )


def _reservation_counts(records: Iterable[Record]) -> dict[str, ReservationCount]:
    offset = time.monotonic() - time.time()
    counts: dict[str, ReservationCount] = {}
    for record in records:
        for reason, since in record.reserved_since.items():
            name = printable(reason)[:_LONGEST]
            name = name if name in counts or len(counts) < _REASONS else OTHER_REASONS
            known = counts.get(name, ReservationCount(providers=0, oldest_since=since + offset))
            counts[name] = ReservationCount(
                providers=known.providers + 1, oldest_since=min(known.oldest_since, since + offset)
            )
    return counts


def _texts(errors: Iterable[BaseException]) -> tuple[str, ...]:
    return tuple(map(_text, list(errors)[:_PROBLEMS]))


def _text(error: BaseException) -> str:
    return printable(with_code(error) or type(error).__name__)[:_LONGEST]
