"""Rules on large backends (WHF-802 and 806)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from wharfinger.conformance.cost import (
    is_quadratic,
    lines_of,
    processor_time_of,
    run_unobserved,
    takes_quadratic_time,
)
from wharfinger.conformance.exceptions import Unproven, Violation
from wharfinger.conformance.growing import sizes
from wharfinger.conformance.placement_diff import Contents, difference
from wharfinger.conformance.rules import Level, Profile, rule
from wharfinger.conformance.subject import Subject, as_contents, describe
from wharfinger.driver import ComputeDriver
from wharfinger.exceptions import WharfingerError
from wharfinger.providers import DesiredProvider

#: A harness has to make at least this many times its ``growth``.
_TIMES: Final = 4
#: The most things: for the measurement of the cost, and for the check that none is missing.
_MOST: Final = 8192
_FAR: Final = 2560
#: More things than two pages of most backends have.
_ENOUGH: Final = 2000
_TOO_FEW: Final = "; the harness could not make more in a few seconds, and pages may be larger"
#: The kit counts lines up to _TRACED things, and measures processor time from _TIMED things on.
_TRACED: Final = 512
_TIMED: Final = 64
_RUNS: Final = 3
#: Seconds for all measurements with one number of things.
_CHEAP: Final = 8.0
#: The most by which the increase of a linear cost grows when the things double; see ``cost``.
_INCREASE: Final = 2.5
#: Increases of a cost that do not count.
_SLACK: Final = {"calls to the backend": 6, "lines of Python": 500}


@dataclass(frozen=True, slots=True)
class _Cost:
    things: int
    #: Calls to the backend, and lines of Python. None: they were not counted.
    calls: int
    lines: int | None
    #: Processor time without the listing, since the backend may be in this process. None: it was
    #: not measured.
    time: float | None


@rule(
    "WHF-802",
    Level.MUST,
    "The cost of a cycle, in calls to the backend and in processor time, grows linearly with the "
    "number of things.",
    "A driver with a quadratic cost is quick with ten nodes, and takes hours with ten thousand.",
    profile=Profile.EXTENDED,
    after=("WHF-401",),
)
def linear(subject: Subject) -> str:
    """Check that the cost of a cycle grows at most linearly with the nodes or devices."""
    costs, refused = _costs(subject)
    if _nonlinear_growth(costs):
        # Random sizes of pages, or other programs, may have disturbed the measurements.
        subject.begin()
        costs, refused = _costs(subject)
        if figures := _nonlinear_growth(costs):
            raise Violation(
                f"the cost of a cycle grows faster than the number of things: {figures}",
                "a cost that grows linearly with the number of things",
            )
    if refused and (not costs or costs[-1].things < _ENOUGH):
        raise Unproven(refused)
    return refused or (f"up to {costs[-1].things} things" if costs else "")


@rule(
    "WHF-806",
    Level.MUST,
    "The driver describes all things, however many there are, and each one as when there were few.",
    "Backends answer by pages. The framework removes the things on a page that the driver has not "
    "requested.",
    profile=Profile.EXTENDED,
    after=("WHF-802",),
)
def complete(subject: Subject) -> str:
    """Check that the driver describes all nodes and devices of a large backend."""
    subject.begin(keep_all_things=True)
    least = _TIMES * subject.harness.growth
    with subject.driver() as driver:
        few = _all_described(subject, driver)
        seen = len(few)
        for size in sizes(subject, least=least, most=_FAR):
            try:
                many = _all_described(subject, driver)
            except WharfingerError as error:
                # A driver has to raise if its backend is too slow for so many things.
                if size <= least:
                    raise
                refused = _refusal(seen, size, error)
                if seen < _ENOUGH:
                    raise Unproven(refused) from error
                return refused
            _check_described_alike(few, many)
            seen = size
            few = few | {name: one for name, one in many.items() if size <= least}
    return f"of {seen} things{_TOO_FEW if seen < _ENOUGH else ''}"


def _all_described(subject: Subject, driver: ComputeDriver) -> dict[str, DesiredProvider]:
    described = describe(driver, subject.placement.contents())
    there = subject.harness.things()
    if missing := [thing for thing in there if thing not in described]:
        text = f"{len(missing)} of {len(there)} things are missing, such as {missing[0]}"
        raise Violation(text, "all things")
    return {thing: described[thing] for thing in there}


def _check_described_alike(
    few: dict[str, DesiredProvider], many: dict[str, DesiredProvider]
) -> None:
    before, after = as_contents(few), {name: many[name].provider for name in few if name in many}
    if after != before:
        raise Violation(
            f"when the backend has {len(many)} things, the driver describes the first ones "
            f"otherwise than before: {difference(before, after)}",
            "the same description of these things as when there were few",
        )
    usual = {*map(_form, few.values())}
    for name, one in many.items():
        if _form(one) not in usual:
            raise Violation(
                f"when the backend has {len(many)} things, the driver describes a new thing unlike "
                f"each of the first ones: {difference({}, {name: one.provider})}",
                "the same resource classes, mode and reservation as one of the first things",
            )


def _form(one: DesiredProvider) -> tuple[object, ...]:
    return (one.stated, one.mode, bool(one.reservations), frozenset(one.provider.inventories))


def _costs(subject: Subject) -> tuple[list[_Cost], str]:
    least = _TIMES * subject.harness.growth
    costs: list[_Cost] = []
    with subject.driver() as driver:
        for size in sizes(subject, least=least, most=_MOST, cheap=_CHEAP):
            try:
                costs.append(_cost(subject, driver, size))
            except WharfingerError as error:
                if size <= least:
                    raise
                return costs, _refusal(costs[-1].things if costs else 0, size, error)
            if _nonlinear_growth_of_counts(costs):
                break  # further cycles would take ever longer
    return costs, ""


def _refusal(seen: int, size: int, error: WharfingerError) -> str:
    return f"the driver describes {seen} things, and raises with {size} things: {error}"


def _cost(subject: Subject, driver: ComputeDriver, size: int) -> _Cost:
    first = partial(describe, driver, subject.placement.contents())
    described = first() if size <= _TRACED else run_unobserved(subject, first)
    live = as_contents(described)
    subject.harness.expect()
    work = partial(_ask_all, driver, live, refresh=True)
    lines = time = None
    if size <= _TRACED:
        lines = lines_of(subject, work)
    else:
        run_unobserved(subject, work)
    calls = len(subject.harness.calls)
    if size >= _TIMED:
        time = processor_time_of(subject, partial(_ask_all, driver, live), _RUNS)
    return _Cost(things=size, calls=calls, lines=lines, time=time)


def _ask_all(driver: ComputeDriver, live: Contents, *, refresh: bool = False) -> None:
    describe(driver, live, refresh=refresh)
    for _ in driver.get_available_nodes():
        driver.capabilities_as_traits()
    driver.get_problems()


def _nonlinear_growth(costs: Sequence[_Cost]) -> str:
    if counts := _nonlinear_growth_of_counts(costs):
        return counts
    times = [(one.things, one.time) for one in costs if one.time is not None]
    if takes_quadratic_time([time for _, time in times]):
        return _message("processor time", [(things, round(time)) for things, time in times[-3:]])
    return ""


def _nonlinear_growth_of_counts(costs: Sequence[_Cost]) -> str:
    for what, figures in (
        ("calls to the backend", [(one.things, one.calls) for one in costs]),
        ("lines of Python", [(one.things, one.lines) for one in costs if one.lines is not None]),
    ):
        for three in zip(figures, figures[1:], figures[2:], strict=False):
            if is_quadratic([cost for _, cost in three], _INCREASE, _SLACK[what]):
                return _message(what, three)
    return ""


def _message(what: str, figures: Sequence[tuple[int, object]]) -> str:
    costs = ", ".join(str(cost) for _, cost in figures)
    return f"{what}: {costs} for {', '.join(str(things) for things, _ in figures)} things"
