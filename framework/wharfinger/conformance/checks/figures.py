"""Rules on the totals and traits that a driver publishes (WHF-221, 313 and 314)."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Final
from uuid import NAMESPACE_URL, uuid5

from wharfinger.conformance.checks.stability import check_nothing_done
from wharfinger.conformance.exceptions import Unproven, Violation
from wharfinger.conformance.expected_figures import ALL_ALIKE, FIGURES, see_as_expected, see_figures
from wharfinger.conformance.placement_diff import (
    Contents,
    at_and_below,
    concerned,
    difference,
    without,
)
from wharfinger.conformance.rules import Level, Profile, rule
from wharfinger.conformance.subject import Publishing, Subject, as_contents, describe
from wharfinger.providers import Inventory, Provider

#: A consumer that has a part of each provider.
_CONSUMER: Final = str(uuid5(NAMESPACE_URL, "wharfinger.conformance/consumer"))
#: How often all types of cycle run with one instance of the driver.
_ROUNDS: Final = 2


@rule(
    FIGURES,
    Level.MUST,
    "The provider of each thing has exactly the totals that the backend has, and at least its "
    "traits.",
    "Placement schedules instances by these figures. A constant, or the figure of another device, "
    "sends them to a device that has less.",
    profile=Profile.EXTENDED,
    needs=("expected",),
    after=("WHF-208",),
)
def as_the_backend_has_it(subject: Subject) -> None:
    """Check that the providers have the totals and the traits that the backend has."""
    harness = subject.harness
    with subject.publishing() as publishing:
        see_figures(subject, publishing.settle())
        publishing.restart()
        see_figures(subject, publishing.settle())
        expected = harness.expected()
        for thing in harness.things():
            if thing not in expected:
                raise Unproven(f"the harness's expected returns nothing for {thing}")
        first, *others = expected.values()
        if any(one != first for one in others):
            return
        if not subject.can("change"):
            raise Unproven(ALL_ALIKE)
        harness.change(harness.things()[0])
        see_figures(subject, publishing.settle())


@rule(
    "WHF-313",
    Level.MUST,
    "When a total or trait of a thing changes in the backend, the next complete cycle publishes "
    "the change of that thing, and of no other, also when a total becomes smaller again.",
    "Hardware is repaired, extended and reconfigured. A driver that reads a figure only once "
    "publishes a wrong one after that.",
    profile=Profile.EXTENDED,
    needs=("change",),
    wants=("expected",),
    after=("WHF-303",),
)
def follows_changes(subject: Subject) -> None:
    """Check that changed totals and traits are published in related providers only."""
    harness = subject.harness
    with subject.publishing() as publishing:
        for thing in (harness.things()[-1], harness.things()[0]):
            before = publishing.settle()
            harness.change(thing)
            after = publishing.settle()
            its = at_and_below(before, thing)
            if all(after.get(name) == before[name] for name in its):
                raise Violation(
                    f"a total or trait of {thing} changed in the backend, but no provider at or "
                    f"below {thing} changed in Placement. Other changes in Placement: "
                    f"{difference(before, after)}",
                    f"the next cycle publishes the change at or below {thing}",
                )
            others = concerned(before, after, thing)
            if without(before, others) != without(after, others):
                raise Violation(
                    f"only {thing} changed in the backend. Change in Placement: "
                    f"{difference(before, after)}",
                    f"a change of {thing} alone, apart from its ancestors and sharing providers",
                )
            see_as_expected(subject, after)
        publishing.restart()
        check_nothing_done(subject, after, publishing.cycle.sync())
    _check_figures_after_reset(subject)


def _check_figures_after_reset(subject: Subject) -> None:
    with subject.driver() as driver:
        describe(driver, subject.placement.contents())
        subject.begin()
        live = subject.placement.contents()
        with suppress(Exception):  # it may have to connect again
            driver.get_available_nodes(refresh=True)
        found = as_contents(describe(driver, live))
        with subject.driver() as other:
            expected = as_contents(describe(other, live))
    for name in sorted(found.keys() & expected.keys()):
        if _figures(found[name]) != _figures(expected[name]):
            both = ({name: one[name]} for one in (expected, found))
            raise Violation(
                "after a reset of the backend, the driver still describes old inventories or "
                f"traits: {difference(*both)}",
                "the same as from a new driver instance",
            )


def _figures(provider: Provider) -> tuple[object, object]:
    return provider.inventories, provider.traits


@rule(
    "WHF-314",
    Level.MUST,
    "The driver publishes the same figures while instances use things: a total is the sum of used "
    "and free inventory.",
    "Placement subtracts the allocations. If the driver also subtracts them, used inventory is "
    "subtracted twice.",
    profile=Profile.EXTENDED,
    wants=("use",),
    after=("WHF-303",),
)
def counts_what_is_used(subject: Subject) -> None:
    """Check that published figures do not depend on the use of inventory."""
    with subject.publishing() as publishing:
        before = publishing.settle()
        if parts := dict(_parts(subject, before)):
            subject.placement.allocate(_CONSUMER, parts)
        _check_nothing_changes(subject, publishing, before)
        things = {*(subject.harness.things()[index] for index in (0, -1))}
        for thing in things if subject.can("use") else ():
            subject.harness.use(thing)
            _check_nothing_changes(subject, publishing, before)


def _parts(subject: Subject, contents: Contents) -> Iterator[tuple[str, dict[str, int]]]:
    names = {name for thing in subject.harness.things() for name in at_and_below(contents, thing)}
    for name in sorted(names):
        one = contents[name]
        amounts = {kind: _least_allocatable(figures) for kind, figures in one.inventories.items()}
        if had := {kind: amount for kind, amount in amounts.items() if amount}:
            yield one.uuid, had


def _least_allocatable(figures: Inventory) -> int:
    steps = -(-figures.min_unit // figures.step_size)
    amount = max(steps, 1) * figures.step_size
    capacity = (figures.total - figures.reserved) * figures.allocation_ratio
    return amount if amount <= min(capacity, figures.max_unit) else 0


def _check_nothing_changes(subject: Subject, publishing: Publishing, before: Contents) -> None:
    for _ in range(2):
        cycle = publishing.cycle
        for run in (cycle.sync, cycle.drift, cycle.poll, cycle.sync) * _ROUNDS:
            check_nothing_done(subject, before, run())
        publishing.sync()
        publishing.restart()
