"""Rules on large backends: complete descriptions, at a linear cost (WHF-802, WHF-806)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from wharfinger.conformance.cost import is_quadratic, lines_of, processor_time_of
from wharfinger.conformance.exceptions import Unproven, Violation
from wharfinger.conformance.growing import sizes
from wharfinger.conformance.placement_diff import Contents, difference
from wharfinger.conformance.rules import Level, Profile, rule
from wharfinger.conformance.subject import Subject, as_contents, describe
from wharfinger.driver import ComputeDriver
from wharfinger.exceptions import WharfingerError
from wharfinger.providers import DesiredProvider

#: How many times its ``growth`` a harness has to make, at least.
_TIMES: Final = 4
#: More things than these are not made: to see what they cost, and to see that all are described.
_MOST: Final = 8192
_FAR: Final = 2560
#: Things that are more than some backends have on a page or two.
_ENOUGH: Final = 2000
_TOO_FEW: Final = "; more could not be made in a few seconds, and backends have larger pages"
#: Up to how many things lines are counted, and from how many on processor time is measured.
_TRACED: Final = 512
_TIMED: Final = 64
_RUNS: Final = 3
#: A processor time that is too short to be compared with others, in the unit of ``cost``.
_SHORT: Final = 100.0
#: Seconds for one number of things, with all measurements.
_CHEAP: Final = 8.0
#: A cost that is linear doubles its increase when that of the things doubles; n log n nearly does.
_INCREASE: Final = 2.5
_INCREASE_OF_TIME: Final = 2.6
#: The growth of the time for twice as many things that is not linear; a quadratic cost has 4.
_GROWTH_OF_TIME: Final = 2.5
#: Amounts that do not count.
_SLACK: Final = {"calls to the backend": 6, "lines of Python": 500}


@dataclass(frozen=True, slots=True)
class _Cost:
    """Cost of a listing and a description of that many things. None: it was not measured.

    The processor time is that of the description alone: the backend may be in this process.
    """

    things: int
    calls: int
    lines: int | None
    time: float | None


@rule(
    "WHF-802",
    Level.MUST,
    "The cost of a cycle, in calls to the backend and in work, is linear in the number of things.",
    "A quadratic driver is quick with ten nodes, and takes hours with ten thousand.",
    profile=Profile.EXTENDED,
    after=("WHF-401",),
)
def linear(subject: Subject) -> str:
    """Count calls and lines at some sizes, and measure processor time at larger ones."""
    costs, refused = _costs(subject)
    for what, figures in (
        ("calls to the backend", [(one.things, one.calls) for one in costs]),
        ("lines of Python", [(one.things, one.lines) for one in costs if one.lines is not None]),
    ):
        for three in zip(figures, figures[1:], figures[2:], strict=False):
            if is_quadratic([cost for _, cost in three], _INCREASE, _SLACK[what]):
                raise Violation(_message(what, three), "linear growth")
    # Other programs may have slowed one series of measurements down.
    if _takes_quadratic_time(costs):
        subject.begin()
        again, refused = _costs(subject)
        if _takes_quadratic_time(again):
            text = _message(
                "processor time", [(one.things, round(one.time or 0)) for one in again[-3:]]
            )
            raise Violation(text, "linear growth")
    if refused and (not costs or costs[-1].things < _ENOUGH):
        raise Unproven(refused)
    return refused or (f"up to {costs[-1].things} things" if costs else "")


@rule(
    "WHF-806",
    Level.MUST,
    "All things are described, however many there are, each as it was when there were few.",
    "Backends answer by pages, and what is on none that was asked for is removed.",
    profile=Profile.EXTENDED,
    after=("WHF-802",),
)
def complete(subject: Subject) -> str:
    """Double the things, while that is cheap, and describe them all each time."""
    subject.begin(is_whole=True)
    least = _TIMES * subject.harness.growth
    with subject.driver() as driver:
        few = _all_described(subject, driver)
        seen = len(few)
        for size in sizes(subject, least=least, most=_FAR):
            try:
                many = _all_described(subject, driver)
            except WharfingerError as error:
                # A backend may be too slow for that many. An incomplete listing has to raise.
                if size <= least:
                    raise
                refused = _refusal(seen, size, error)
                if seen < _ENOUGH:
                    raise Unproven(refused) from error
                return refused
            _see_same(few, many)
            seen = size
            few = few | {name: one for name, one in many.items() if size <= least}
    return f"of {seen} things{_TOO_FEW if seen < _ENOUGH else ''}"


def _all_described(subject: Subject, driver: ComputeDriver) -> dict[str, DesiredProvider]:
    """Return the description of each thing; raises Violation if the driver leaves one out."""
    described = describe(driver, subject.placement.contents())
    there = subject.harness.things()
    if missing := [thing for thing in there if thing not in described]:
        text = f"{len(missing)} of {len(there)} are missing, such as {missing[0]}"
        raise Violation(text, "all of them")
    return {thing: described[thing] for thing in there}


def _see_same(few: dict[str, DesiredProvider], many: dict[str, DesiredProvider]) -> None:
    """Raise Violation if a thing is described differently since there are more things."""
    before, after = as_contents(few), {name: many[name].provider for name in few if name in many}
    if after != before:
        raise Violation(f"with {len(many)} things: {difference(before, after)}", "no difference")
    usual = {*map(_form, few.values())}
    for name, one in many.items():
        if _form(one) not in usual:
            text = difference({}, {name: one.provider})
            raise Violation(f"with {len(many)} things: {text}", "a form that few things had too")


def _form(one: DesiredProvider) -> tuple[object, ...]:
    """Return the parts of a description that many things share with at least one of the few."""
    return (one.stated, one.mode, bool(one.reservations), frozenset(one.provider.inventories))


def _costs(subject: Subject) -> tuple[list[_Cost], str]:
    """Return the costs of a cycle for several numbers of things.

    The text says which number the driver refused. A backend may be too slow for that many.
    """
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
    return costs, ""


def _refusal(seen: int, size: int, error: WharfingerError) -> str:
    return f"the driver describes {seen} things, and raises with {size}: {error}"


def _cost(subject: Subject, driver: ComputeDriver, size: int) -> _Cost:
    """Return the cost of a cycle for the present things."""
    described = describe(driver, subject.placement.contents())
    live = {name: one.provider for name, one in described.items()}
    subject.harness.expect()
    work = partial(_ask_all, driver, live, refresh=True)
    lines = time = None
    if size <= _TRACED:
        lines = lines_of(subject, work)
    else:
        work()
    calls = len(subject.harness.calls)
    if size >= _TIMED:
        time = processor_time_of(subject, partial(_ask_all, driver, live), _RUNS)
    return _Cost(things=size, calls=calls, lines=lines, time=time)


def _ask_all(driver: ComputeDriver, live: Contents, *, refresh: bool = False) -> None:
    """Make all calls of a cycle to a driver."""
    describe(driver, live, refresh=refresh)
    for _ in driver.get_available_nodes():
        driver.capabilities_as_traits()
    driver.get_problems()


def _takes_quadratic_time(costs: Sequence[_Cost]) -> bool:
    """Return whether the processor time of the largest three sizes grows quadratically."""
    times = [one.time for one in costs if one.time is not None][-3:]
    if len(times) < len(range(3)) or times[-1] < _SHORT:
        return False
    return times[-1] > _GROWTH_OF_TIME * times[-2] and is_quadratic(times, _INCREASE_OF_TIME, 0)


def _message(what: str, figures: Sequence[tuple[int, object]]) -> str:
    costs = ", ".join(str(cost) for _, cost in figures)
    return f"{what}: {costs} for {', '.join(str(things) for things, _ in figures)} things"
