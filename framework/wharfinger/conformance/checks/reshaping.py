"""Rules on reshapes, which move used inventory to other providers (WHF-601 to 606)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from wharfinger.conformance.checks.stability import check_nothing_done
from wharfinger.conformance.exceptions import NotShown, Unproven, Violation
from wharfinger.conformance.harness import Fault, OldLayout
from wharfinger.conformance.placement_diff import difference
from wharfinger.conformance.rules import Level, Profile, rule
from wharfinger.conformance.subject import Publishing, Subject, listed, tree_of
from wharfinger.driver import ComputeDriver
from wharfinger.exceptions import ReshapeNeeded, WharfingerError
from wharfinger.providers import Inventory

#: A provider of another program, its inventory, and its amounts for each consumer.
_ELSEWHERE: Final = "6f3f6a1e-7d0b-4c53-9a0e-2f1f7c9d4b10"
_ROOM: Final = {"DISK_GB": Inventory(total=1_000_000)}
_OF_OTHERS: Final = {"DISK_GB": 1}


@rule(
    "WHF-601",
    Level.MUST,
    "A reshape conserves allocations: each consumer has the same amount of each class as before.",
    "Placement gives lost amounts to another instance. No instance ever releases amounts that are "
    "counted twice.",
    profile=Profile.EXTENDED,
    supports="reshape",
    after=("WHF-208",),
)
def conserved(subject: Subject) -> None:
    """Check that consumers keep their amounts of each resource class in a reshape."""
    placement = subject.placement
    layout = subject.harness.use_old_layout()
    with subject.publishing() as publishing:
        _create_old_layout(subject, publishing, layout)
        before = placement.contents()
        publishing.sync()
        after = placement.contents()
    for consumer, amounts in layout.allocations.items():
        held = placement.allocated(consumer)
        if (elsewhere := held.pop(_ELSEWHERE, {})) != _OF_OTHERS:
            raise Violation(
                f"after the reshape, consumer {consumer} has allocations {elsewhere} of the "
                "provider of another program",
                f"still {_OF_OTHERS}",
            )
        if (sums := _sums(held)) != Counter(amounts):
            raise Violation(
                f"after the reshape, consumer {consumer} has allocations of {dict(sums)}",
                f"still {dict(amounts)}",
            )
    (root,) = (name for name, one in before.items() if one.uuid != _ELSEWHERE)
    if not layout.inventories.keys() - after[root].inventories.keys():
        raise Violation(
            f"after the reshape, the root provider {root} still has all resource classes of the "
            f"old layout: {difference(before, after)}",
            f"inventory that has moved from {root} to other providers",
        )


@rule(
    "WHF-602",
    Level.MUST,
    "After a reshape, the driver does not ask for another one.",
    "Otherwise every cycle writes all allocations again.",
    profile=Profile.EXTENDED,
    supports="reshape",
    after=("WHF-303", "WHF-601"),
)
def over(subject: Subject) -> None:
    """Check that the driver asks for no other reshape after a reshape."""
    layout = subject.harness.use_old_layout()
    with subject.publishing() as publishing:
        _create_old_layout(subject, publishing, layout)
        after = publishing.settle()
        check_nothing_done(subject, after, publishing.cycle.sync())
        publishing.restart()
        check_nothing_done(subject, after, publishing.cycle.sync())


@rule(
    "WHF-603",
    Level.MUST,
    "If a call to the backend fails during a reshape, the reshape changes nothing, or is complete.",
    "Inventories and allocations have to move together.",
    profile=Profile.EXTENDED,
    supports="reshape",
    after=("WHF-301", "WHF-602"),
)
def all_or_nothing(subject: Subject) -> None:
    """Check that a reshape is complete, or changes nothing, if a backend call fails."""
    harness = subject.harness
    layout = harness.use_old_layout()
    with subject.driver() as driver:
        harness.expect()
        if driver.capabilities.supports("change_feed"):
            driver.changed_nodes(None)  # a cycle begins with this call
        listed(driver)
        at = len(harness.calls)
    with subject.publishing() as publishing:
        _create_old_layout(subject, publishing, layout)
        before = seen = subject.placement.contents()
        while seen == before and _sync_with_failing_call(subject, publishing, at):
            seen = subject.placement.contents()
            at += 1
        # If the failed call did not stop the reshape, it may be complete.
        after = publishing.settle()
        if seen not in (before, after):
            expected = f"no difference, or {difference(before, after)}"
            raise Violation(difference(before, seen), expected)


def _sync_with_failing_call(subject: Subject, publishing: Publishing, at: int) -> bool:
    harness = subject.harness
    harness.expect(at, Fault.RAISE)
    with suppress(WharfingerError):
        publishing.cycle.sync()
    made = len(harness.calls) > at
    harness.expect()
    return made


def _create_old_layout(subject: Subject, publishing: Publishing, layout: OldLayout) -> None:
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
    total: Counter[str] = Counter()
    for amounts in held.values():
        total.update(amounts)
    return total


@rule(
    "WHF-604",
    Level.MUST,
    "A reshape moves the allocations of a consumer to the providers of the things that this "
    "consumer uses.",
    "When an instance ends, Placement offers the device of its allocation. If another instance "
    "uses that device, two instances get it.",
    profile=Profile.EXTENDED,
    supports="reshape",
    after=("WHF-601",),
)
def moved_to_its_own(subject: Subject) -> None:
    """Check that allocations move to the devices that their consumers use."""
    layout = subject.harness.use_old_layout()
    if layout.uses is None:
        raise Unproven("the harness's OldLayout does not say which things consumers use (uses)")
    with subject.publishing() as publishing:
        _create_old_layout(subject, publishing, layout)
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
            raise Violation(
                f"after the reshape, consumer {consumer} has allocations {held} of devices",
                f"{used}, since the harness says that the consumer uses these devices",
            )


@rule(
    "WHF-605",
    Level.MUST,
    "A reshape moves the allocations of a consumer to the same providers, whatever other consumers "
    "there are and in whatever order, if these providers have room.",
    "The backend knows the devices of each consumer. Placement lists consumers in any order.",
    profile=Profile.EXTENDED,
    supports="reshape",
    after=("WHF-601",),
)
def moved_alike(subject: Subject) -> None:
    """Check that the allocations of a consumer move independently of other consumers."""
    layout = subject.harness.use_old_layout()
    with subject.publishing() as publishing:
        _create_old_layout(subject, publishing, layout)
    consumers = [*layout.allocations]
    with subject.driver() as driver:
        moved = _moved(subject, driver, consumers)
        if moved is None:
            raise NotShown("update_provider_tree raises with the allocations of all consumers")
        others = [consumers[::-1], *([one] for one in consumers)]
        for each in others:
            again = _moved(subject, driver, each)
            if again is not None:
                for consumer in each:
                    _check_moved_alike(consumer, moved, again)


@rule(
    "WHF-606",
    Level.MUST,
    "After a reshape, the totals of each provider are the same as while no instance uses it.",
    "A total is the sum of used and free inventory. Placement subtracts the allocations.",
    profile=Profile.EXTENDED,
    supports="reshape",
    after=("WHF-601",),
)
def totals_of_all(subject: Subject) -> None:
    """Check that totals after a reshape do not depend on allocations."""
    with subject.publishing() as publishing:
        before = publishing.settle()
    subject.begin()
    layout = subject.harness.use_old_layout()
    with subject.publishing() as publishing:
        _create_old_layout(subject, publishing, layout)
        after = publishing.settle()
    for name in sorted(before.keys() & after.keys()):
        unused, used = (
            {kind: one.total for kind, one in contents[name].inventories.items()}
            for contents in (before, after)
        )
        if used != unused:
            raise Violation(f"{name}: totals {used}", f"totals {unused}")


@dataclass(frozen=True, slots=True)
class _ReshapeResult:
    #: The amounts of each consumer, by the name of the provider and by class.
    held: Mapping[str, Mapping[str, Mapping[str, int]]]
    #: The inventories of each provider by its name.
    inventories: Mapping[str, Mapping[str, Inventory]]


def _moved(
    subject: Subject, driver: ComputeDriver, consumers: Sequence[str]
) -> _ReshapeResult | None:
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
    return _ReshapeResult(
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


def _check_moved_alike(consumer: str, moved: _ReshapeResult, again: _ReshapeResult) -> None:
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
        raise Violation(
            f"reshapes with other consumers, or in another order, move the allocations of consumer "
            f"{consumer} once to {before}, and once to {after}",
            "allocations of the same providers in each reshape",
        )
