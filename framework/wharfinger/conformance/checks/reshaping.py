"""Rules on inventory in use that moves between providers (WHF-6..)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from wharfinger.conformance.checks.stability import see_nothing_done
from wharfinger.conformance.exceptions import NotShown, Unproven, Violation
from wharfinger.conformance.harness import Fault, OldLayout
from wharfinger.conformance.placement_diff import difference
from wharfinger.conformance.rules import Level, Profile, rule
from wharfinger.conformance.subject import Publishing, Subject, listed, tree_of
from wharfinger.driver import ComputeDriver
from wharfinger.exceptions import ReshapeNeeded, WharfingerError
from wharfinger.providers import Inventory

#: A provider of another program, its inventory, and the part of it that each consumer has.
_ELSEWHERE: Final = "6f3f6a1e-7d0b-4c53-9a0e-2f1f7c9d4b10"
_ROOM: Final = {"DISK_GB": Inventory(total=1_000_000)}
_OF_OTHERS: Final = {"DISK_GB": 1}


@rule(
    "WHF-601",
    Level.MUST,
    "A reshape conserves allocations: each consumer has as much of each class as before.",
    "Placement gives lost amounts to a second instance. Amounts that are counted twice are never "
    "released.",
    profile=Profile.EXTENDED,
    supports="reshape",
    after=("WHF-208",),
)
def conserved(subject: Subject) -> None:
    """Publish a node in its old layout, with allocations, and let the driver reshape it."""
    placement = subject.placement
    layout = subject.harness.use_old_layout()
    with subject.publishing() as publishing:
        _publish_old(subject, publishing, layout)
        before = placement.contents()
        publishing.sync()
        after = placement.contents()
    for consumer, amounts in layout.allocations.items():
        held = placement.allocated(consumer)
        if (elsewhere := held.pop(_ELSEWHERE, {})) != _OF_OTHERS:
            found = f"consumer {consumer} has {elsewhere} of the other program's provider"
            raise Violation(found, str(_OF_OTHERS))
        if (sums := _sums(held)) != Counter(amounts):
            raise Violation(f"consumer {consumer} has {dict(sums)}", str(dict(amounts)))
    (root,) = (name for name, one in before.items() if one.uuid != _ELSEWHERE)
    if not layout.inventories.keys() - after[root].inventories.keys():
        raise Violation(difference(before, after), f"{root} loses a class of the old layout")


@rule(
    "WHF-602",
    Level.MUST,
    "After a reshape there is nothing to reshape.",
    "Every cycle would write all allocations again.",
    profile=Profile.EXTENDED,
    supports="reshape",
    after=("WHF-303", "WHF-601"),
)
def over(subject: Subject) -> None:
    """Reshape, and run a full cycle before and after a restart."""
    layout = subject.harness.use_old_layout()
    with subject.publishing() as publishing:
        _publish_old(subject, publishing, layout)
        after = publishing.settle()
        see_nothing_done(subject, after, publishing.cycle.sync())
        publishing.restart()
        see_nothing_done(subject, after, publishing.cycle.sync())


@rule(
    "WHF-603",
    Level.MUST,
    "A reshape that the backend breaks off changes nothing.",
    "Inventories and allocations move together, or not at all.",
    profile=Profile.EXTENDED,
    supports="reshape",
    after=("WHF-301", "WHF-602"),
)
def all_or_nothing(subject: Subject) -> None:
    """Break the calls that the driver makes after the listing, for the reshape."""
    harness = subject.harness
    layout = harness.use_old_layout()
    with subject.driver() as driver:
        harness.expect()
        if driver.capabilities.supports("change_feed"):
            driver.changed_nodes(None)  # as a cycle's first call
        listed(driver)
        at = len(harness.calls)
    with subject.publishing() as publishing:
        _publish_old(subject, publishing, layout)
        before = seen = subject.placement.contents()
        while seen == before and _breaks(subject, publishing, at):
            seen = subject.placement.contents()
            at += 1
        # A reshape that a failed call did not stop may be complete.
        after = publishing.settle()
        if seen not in (before, after):
            raise Violation(difference(before, seen), f"nothing, or {difference(before, after)}")


def _breaks(subject: Subject, publishing: Publishing, at: int) -> bool:
    """Whether a cycle makes the call with that index, which fails."""
    harness = subject.harness
    harness.expect(at, Fault.RAISE)
    with suppress(WharfingerError):
        publishing.cycle.sync()
    made = len(harness.calls) > at
    harness.expect()
    return made


def _publish_old(subject: Subject, publishing: Publishing, layout: OldLayout) -> None:
    """Publish the node in its old layout, as an earlier release of the driver would.

    Each consumer also has a part of another program's provider.
    """
    if not any(sum(amounts.values()) for amounts in layout.allocations.values()):
        raise NotShown("the harness's old layout has no allocations")
    (node, *_) = listed(publishing.driver).nodes
    subject.placement.create(
        node.name, layout.inventories, publishing.publisher.traits, uuid=node.uuid
    )
    subject.placement.create("elsewhere", _ROOM, uuid=_ELSEWHERE)
    for consumer, amounts in layout.allocations.items():
        subject.placement.allocate(consumer, {node.uuid: amounts, _ELSEWHERE: _OF_OTHERS})


def _sums(held: Mapping[str, Mapping[str, int]]) -> Counter[str]:
    """Amounts by class, over all providers."""
    total: Counter[str] = Counter()
    for amounts in held.values():
        total.update(amounts)
    return total


@rule(
    "WHF-604",
    Level.MUST,
    "The driver moves the allocations of a consumer to the providers of the things that this "
    "consumer uses.",
    "When a consumer ends, Placement offers the device of its allocation. If that is the device of "
    "another consumer, two of them get it.",
    profile=Profile.EXTENDED,
    supports="reshape",
    after=("WHF-601",),
)
def moved_to_its_own(subject: Subject) -> None:
    """Reshape, and compare what each consumer has of each thing with what it uses."""
    layout = subject.harness.use_old_layout()
    if layout.uses is None:
        raise Unproven("the harness's OldLayout does not say which things consumers use (uses)")
    with subject.publishing() as publishing:
        _publish_old(subject, publishing, layout)
        after = publishing.settle()
    things = {after[thing].uuid: thing for thing in subject.harness.things() if thing in after}
    for consumer in layout.allocations:
        held = {
            things[uuid]: amounts
            for uuid, amounts in subject.placement.allocated(consumer).items()
            if uuid in things
        }
        used = {thing: {**amounts} for thing, amounts in layout.uses.get(consumer, {}).items()}
        if held != used:
            raise Violation(f"consumer {consumer} has {held}", str(used))


@rule(
    "WHF-605",
    Level.MUST,
    "The driver moves the allocations of a consumer to the same providers in any order of the "
    "consumers, and without the others, as far as there is room.",
    "The backend knows the devices of each consumer. Placement lists consumers in any order.",
    profile=Profile.EXTENDED,
    supports="reshape",
    after=("WHF-601",),
)
def moved_alike(subject: Subject) -> None:
    """Move all allocations, all in the reverse order, and those of each consumer alone."""
    layout = subject.harness.use_old_layout()
    with subject.publishing() as publishing:
        _publish_old(subject, publishing, layout)
    consumers = [*layout.allocations]
    with subject.driver() as driver:
        moved = _moved(subject, driver, consumers)
        if moved is None:
            raise NotShown("the driver raises when it is called with all allocations")
        others = [consumers[::-1], *([one] for one in consumers)]
        for each in others:
            again = _moved(subject, driver, each)
            if again is not None:
                for consumer in each:
                    _see_moved_alike(consumer, moved, again)


@rule(
    "WHF-606",
    Level.MUST,
    "After a reshape each thing has the totals that it has while no instance uses it.",
    "A total has what is used and what is free. Placement subtracts what is allocated.",
    profile=Profile.EXTENDED,
    supports="reshape",
    after=("WHF-601",),
)
def totals_of_all(subject: Subject) -> None:
    """Publish things that no instance uses; after a reset, reshape things in use, and compare."""
    with subject.publishing() as publishing:
        before = publishing.settle()
    subject.begin()
    layout = subject.harness.use_old_layout()
    with subject.publishing() as publishing:
        _publish_old(subject, publishing, layout)
        after = publishing.settle()
    for thing in subject.harness.things():
        if thing in before and thing in after:
            unused, used = (
                {kind: one.total for kind, one in contents[thing].inventories.items()}
                for contents in (before, after)
            )
            if used != unused:
                raise Violation(f"{thing}: totals {used}", f"totals {unused}")


@dataclass(frozen=True, slots=True)
class _Moved:
    """Allocations of each consumer by provider, and the inventories of the providers."""

    held: Mapping[str, Mapping[str, Mapping[str, int]]]
    inventories: Mapping[str, Mapping[str, Inventory]]


def _moved(subject: Subject, driver: ComputeDriver, consumers: Sequence[str]) -> _Moved | None:
    """Return the allocations of these consumers as the driver moves them; None if it raises."""
    live = subject.placement.contents()
    (node, *_) = listed(driver).nodes
    client = subject.placement.client
    allocations = {one: client.get_allocations(one) for one in consumers}
    with suppress(ReshapeNeeded):
        driver.update_provider_tree(tree_of(node.name, node.uuid, live), node.name)
    tree = tree_of(node.name, node.uuid, live)
    try:
        driver.update_provider_tree(tree, node.name, allocations=allocations)
    except Exception:
        return None
    described = {one.provider.uuid: one.provider for one in tree.desired()}
    return _Moved(
        held={
            consumer: {
                described[uuid].name: dict(its["resources"])
                for uuid, its in one["allocations"].items()
                if uuid in described and its["resources"]
            }
            for consumer, one in allocations.items()
        },
        inventories={one.name: one.inventories for one in described.values()},
    )


def _see_moved_alike(consumer: str, moved: _Moved, again: _Moved) -> None:
    """Raise Violation if a consumer's allocations move elsewhere although there is room."""
    before, after = moved.held[consumer], again.held.get(consumer, {})
    if before == after:
        return
    used: Counter[tuple[str, str]] = Counter()
    for held in [after, *(held for one, held in moved.held.items() if one != consumer)]:
        for provider, amounts in held.items():
            used.update({(provider, kind): amount for kind, amount in amounts.items()})
    capacities = {
        (provider, kind): one.capacity
        for provider, its in moved.inventories.items()
        for kind, one in its.items()
    }
    if all(amount <= capacities.get(one, 0) for one, amount in used.items()):
        raise Violation(f"consumer {consumer} has {before}, then {after}", "the same again")
