"""Rules on added and removed nodes and devices (WHF-401 to 404)."""

from collections.abc import Sequence
from typing import Final

from wharfinger.conformance.exceptions import Unproven, Violation
from wharfinger.conformance.expected_figures import ALL_ALIKE, see_as_expected
from wharfinger.conformance.placement_diff import (
    Contents,
    at_and_below,
    concerned,
    difference,
    without,
)
from wharfinger.conformance.rules import Level, Profile, rule
from wharfinger.conformance.subject import Subject

#: Enough things for a first, a last and two between them.
_SEVERAL: Final = 4


@rule(
    "WHF-401",
    Level.MUST,
    "The driver publishes an added thing by the next complete cycle, and changes no other "
    "provider.",
    "Hardware that Placement does not list stays unused.",
    profile=Profile.EXTENDED,
    wants=("expected",),
    after=("WHF-301",),
)
def added(subject: Subject) -> None:
    """Check that added nodes and devices are published, and other providers unchanged."""
    with subject.publishing() as publishing:
        for _ in range(2):
            before = publishing.settle()
            thing = subject.add()
            after = publishing.settle()
            if thing not in after:
                raise Violation(difference(before, after), f"+ {thing}")
            others = without(before, concerned(before, after, thing))
            rest = {name: one for name, one in after.items() if name in others}
            if rest != others:
                raise Violation(
                    f"providers of other things changed: {difference(others, rest)}",
                    f"no change of these providers, since only {thing} was added",
                )
            see_as_expected(subject, after)


@rule(
    "WHF-402",
    Level.MUST,
    "The driver stops reporting a removed thing: after two complete cycles the provider of the "
    "thing is not in Placement, and nothing else has changed.",
    "Placement gives a provider without hardware to instances, which cannot start.",
    profile=Profile.EXTENDED,
    after=("WHF-301",),
)
def removed(subject: Subject) -> None:
    """Check that the providers of removed nodes and devices are deleted."""
    harness = subject.harness
    with subject.publishing() as publishing:
        before = publishing.settle()
        thing, *others = harness.things()
        harness.remove(thing)
        after = publishing.settle()
        _check_removed(before, after, [thing], others)
        if harness.busy.supported:
            harness.make_busy(others[-1])
            publishing.sync()
        for name in others:
            harness.remove(name)
        after = publishing.settle()
        if left := [name for name in others if name in after]:
            raise Violation(
                f"things were removed, but their providers stay in Placement: {', '.join(left)}",
                "no providers of removed things",
            )


@rule(
    "WHF-403",
    Level.MUST,
    "A thing that was removed and put back has the same name, uuid, figures and traits as before.",
    "A card that was taken out and put back is the same card for operators and other programs.",
    profile=Profile.EXTENDED,
    after=("WHF-401", "WHF-402"),
)
def returned(subject: Subject) -> None:
    """Check that a node or device that comes back is published as before."""
    harness = subject.harness
    with subject.publishing() as publishing:
        before = publishing.settle()
        for cycles in (publishing.settle, publishing.sync):
            thing = harness.things()[0]
            harness.remove(thing)
            cycles()
            harness.put_back(thing)
            publishing.settle()
            after = publishing.settle()
            if after != before:
                raise Violation(difference(before, after), "no difference")


@rule(
    "WHF-404",
    Level.MUST,
    "When one of several things is removed, the providers of all other things keep their names, "
    "uuids, figures and traits.",
    "If devices are numbered anew after a removal, a device gets the name and the allocations of "
    "another device.",
    profile=Profile.EXTENDED,
    wants=("expected",),
    after=("WHF-303", "WHF-403"),
)
def not_renumbered(subject: Subject) -> None:
    """Check that a removal does not change the providers of other nodes and devices."""
    harness = subject.harness
    with subject.publishing() as publishing:
        while len(harness.things()) < _SEVERAL:
            subject.add()
        things = harness.things()
        if subject.can("change"):
            harness.change(things[1])  # all things may have been alike
        before = publishing.settle()
        with_each: dict[str, str] = {}
        for gone in ([things[0]], [things[1]], [things[-1]], [things[0], things[2]]):
            for thing in gone:
                harness.remove(thing)
            others = [one for one in things if one not in gone]
            for _ in range(2):
                after = publishing.settle()
                see_as_expected(subject, after)
                for name in _check_removed(before, after, gone, others):
                    other = with_each.setdefault(name, gone[0])
                    if other not in gone:
                        raise Violation(
                            f"provider {name} disappears with {' and '.join(gone)}, and also with "
                            f"{other}",
                            f"{name} deleted with only one node or device",
                        )
                publishing.restart()
            for thing in gone:
                harness.put_back(thing)
            publishing.settle()
            after = publishing.settle()
            if after != before:
                raise Violation(difference(before, after), "no difference")
    if not subject.can("change") and _are_alike(before, things):
        raise Unproven(ALL_ALIKE)


def _are_alike(contents: Contents, things: Sequence[str]) -> bool:
    first, *others = (
        [(contents[name].inventories, contents[name].traits) for name in its]
        for its in (at_and_below(contents, thing) for thing in things)
    )
    return all(one == first for one in others)


def _check_removed(
    before: Contents, after: Contents, gone: Sequence[str], others: Sequence[str]
) -> set[str]:
    things = ", ".join(gone)
    its = {name for thing in gone for name in at_and_below(before, thing)}
    if its & after.keys():
        raise Violation(
            f"{things} removed from the backend. Change in Placement: {difference(before, after)}",
            f"all providers at and below {things} deleted",
        )
    may_differ = concerned(before, after, *gone)
    kept = {name for thing in others for name in at_and_below(before, thing)}
    further = before.keys() - after.keys() - may_differ - kept
    may_differ |= further
    if without(before, may_differ) != without(after, may_differ):
        raise Violation(
            f"{things} removed from the backend. Change in Placement: {difference(before, after)}",
            f"the providers of {things} deleted, and no change of other things' providers",
        )
    return further
