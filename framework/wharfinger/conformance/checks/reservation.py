"""Rules on busy nodes and devices, which cannot be used at the moment (WHF-501 to 507)."""

from collections.abc import Callable, Iterator
from typing import Final

from wharfinger.conformance.busy_things import BusyThings
from wharfinger.conformance.exceptions import Violation
from wharfinger.conformance.placement_diff import at_and_below, difference
from wharfinger.conformance.rules import Level, Profile, rule
from wharfinger.conformance.subject import Publishing, Subject, describe, sound
from wharfinger.providers import DesiredProvider

#: A trait that another owner puts on a provider.
_OTHERS = "CUSTOM_CONFORMANCE_OTHERS"


@rule(
    "WHF-501",
    Level.MUST,
    "While a thing is busy, the inventory at and below its provider stays, and all of it is "
    "reserved (reserved == total).",
    "Allocations need the inventory, so the driver must not delete it. Placement would give free "
    "inventory to an instance.",
    profile=Profile.EXTENDED,
    busy=True,
    after=("WHF-301",),
)
def reserved(subject: Subject) -> None:
    """Check that all inventory of a busy node or device stays, and is reserved."""
    harness = subject.harness
    with subject.publishing() as publishing:
        before = publishing.settle()
        thing = harness.things()[0]
        harness.make_busy(thing)
        after = publishing.settle()
        for name in at_and_below(before, thing):
            mine = after[name].inventories if name in after else {}
            kept = {kind: one.total for kind, one in before[name].inventories.items()}
            if {kind: one.total for kind, one in mine.items()} != kept:
                raise Violation(
                    f"{thing} has become busy. Change in Placement: {difference(before, after)}",
                    f"all inventory of provider {name} kept, and reserved",
                )
            if not all(one.is_fully_reserved for one in mine.values()):
                raise Violation(
                    f"{thing} has become busy. Change in Placement: {difference(before, after)}",
                    f"all inventory of provider {name} reserved",
                )


@rule(
    "WHF-502",
    Level.MUST,
    "When a thing is free again, its provider has the same figures as before it was busy, also the "
    "reserved amounts: at the latest after ten more complete cycles and ten minutes.",
    "Only the driver knows these figures. If it loses them, no other program restores them.",
    profile=Profile.EXTENDED,
    busy=True,
    after=("WHF-303", "WHF-501"),
)
def restored(subject: Subject) -> None:
    """Check that a node or device has its old figures when it is free again."""
    harness = subject.harness
    with subject.publishing() as publishing:
        before = publishing.settle()
        for meanwhile in (publishing.sync, publishing.restart):
            thing = harness.things()[0]
            harness.make_busy(thing)
            publishing.settle()
            meanwhile()
            harness.make_free(thing)
            after = publishing.settle_free(lambda now: now == before)
            if after != before:
                raise Violation(difference(before, after), "no difference")


@rule(
    "WHF-504",
    Level.MUST,
    "The driver reserves a thing that is already busy when the driver lists it for the first time.",
    "The driver may start, or an operator may add a node, while the node is cleaned.",
    profile=Profile.EXTENDED,
    busy=True,
    after=("WHF-501",),
)
def reserved_at_first(subject: Subject) -> None:
    """Check that the driver reserves a node or device that is busy from the start."""
    harness = subject.harness
    thing = harness.things()[0]
    harness.make_busy(thing)
    with subject.publishing() as publishing:
        found = publishing.settle().get(thing)
    for kind, one in sorted(found.inventories.items()) if found else ():
        if not one.is_fully_reserved:
            raise Violation(
                f"{thing} was busy when the driver started, but only {one.reserved} of {one.total} "
                f"{kind} are reserved",
                f"all inventory of {thing} reserved",
            )


@rule(
    "WHF-505",
    Level.SHOULD,
    "The driver reserves a thing with a reason (ProviderTree.reserve), and not by the reserved "
    "amounts of its inventories.",
    "Operators want to know why a node is reserved. A driver that always reports the true amounts "
    "need not remember them.",
    profile=Profile.EXTENDED,
    busy=True,
    after=("WHF-501",),
)
def reasoned(subject: Subject) -> None:
    """Check that the driver gives a reason when it reserves a node or device."""
    harness = subject.harness
    with subject.publishing() as publishing:
        live = publishing.settle()
        thing = harness.things()[0]
        harness.make_busy(thing)
        one = describe(publishing.driver, live).get(thing)
        if one is None or not one.reservations:
            raise Violation(
                f"{thing} is busy, but the driver describes {thing} without a reservation that has "
                "a reason",
                f"update_provider_tree calls provider_tree.reserve({thing!r}, reason)",
            )


@rule(
    "WHF-506",
    Level.MUST,
    "The driver reserves a busy thing in each description: also when it describes the node twice "
    "after one listing, after another program has written to Placement, after another thing was "
    "added, and after a poll for another thing.",
    "If one description does not reserve the thing, the thing is free in Placement until the next "
    "one.",
    profile=Profile.EXTENDED,
    busy=True,
    after=("WHF-502", "WHF-504"),
)
def reserved_for_as_long(subject: Subject) -> None:
    """Check that the driver reserves a busy node or device in each description."""
    harness = subject.harness
    thing, other, *_ = harness.things()
    with subject.publishing() as publishing:
        cycle = publishing.cycle
        publishing.settle()
        harness.make_busy(thing)
        publishing.settle()
        for _ in range(2):
            again = describe(publishing.driver, subject.placement.contents(), refresh=False)
            if thing not in again or not _is_reserved(again[thing]):
                raise Violation(
                    f"{thing} is busy, but not reserved when the driver describes {thing} again "
                    "without a new listing",
                    f"all inventory of {thing} reserved in each description",
                )
        subject.placement.add_trait(subject.placement.contents()[thing].uuid, _OTHERS)
        sound(cycle.drift())
        _check_reserved(subject, thing, "after another owner has added a trait, and a drift cycle")
        harness.make_busy(other)
        sound(cycle.poll())
        _check_reserved(subject, thing, f"after {other} has become busy, and a poll")
        new = subject.add()
        publishing.sync()
        for one in (thing, other):
            _check_reserved(subject, one, f"after {new} was added")


@rule(
    "WHF-507",
    Level.MUST,
    "The driver reserves the provider of a busy thing and the providers below it, and changes "
    "nothing else: no other figure, trait, aggregate, name or uuid, and no other provider. It may "
    "remove the trait of a function that current_function does not return at the moment.",
    "Placement schedules by figures and traits. An allocation that no longer fits them cannot be "
    "moved or resized. The other things can still be used.",
    profile=Profile.EXTENDED,
    busy=True,
    after=("WHF-501",),
)
def only_reserved(subject: Subject) -> None:
    """Check that only the reservation of a busy node or device changes."""
    with subject.publishing() as publishing:
        things = BusyThings(subject, publishing)
        things.make_busy(subject.harness.things()[0])
        for run in (*_runs(publishing), *_runs(publishing)):
            run()
            things.see(_AFTER[run.__name__])


#: The text in a verdict for each function of ``_runs``.
_AFTER: Final = {
    "settle": "after a full cycle",
    "drift": "after a drift cycle",
    "poll": "after a poll",
    "restart": "after a restart",
}


def _runs(publishing: Publishing) -> Iterator[Callable[[], object]]:
    def drift() -> None:
        sound(publishing.cycle.drift())

    def poll() -> None:
        sound(publishing.cycle.poll())

    def restart() -> None:
        publishing.restart()
        publishing.settle()

    yield from (publishing.settle, drift, poll, restart, poll)


def _is_reserved(one: DesiredProvider) -> bool:
    figures = one.provider.inventories.values()
    return bool(one.reservations) or (
        bool(figures) and all(each.is_fully_reserved for each in figures)
    )


def _check_reserved(subject: Subject, thing: str, when: str) -> None:
    provider = subject.placement.contents().get(thing)
    if provider is None or not provider.inventories:
        raise Violation(
            f"{when}, busy {thing} has no inventory in Placement",
            f"all inventory of {thing} kept and reserved",
        )
    for kind, one in sorted(provider.inventories.items()):
        if not one.is_fully_reserved:
            raise Violation(
                f"{when}, busy {thing} has only {one.reserved} of {one.total} {kind} reserved",
                f"all inventory of {thing} reserved",
            )
