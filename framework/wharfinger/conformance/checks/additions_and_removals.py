"""Rules of what comes and goes (WHF-4..)."""

from wharfinger.conformance.exceptions import Violation
from wharfinger.conformance.placement_diff import difference
from wharfinger.conformance.rules import Level, Profile, rule
from wharfinger.conformance.subject import Subject


@rule(
    "WHF-401",
    Level.MUST,
    "What is added to the backend is published by the next complete cycle, and changes nothing of "
    "the others.",
    "Capacity that nobody sees is paid for, and not used.",
    profile=Profile.EXTENDED,
    after=("WHF-301",),
)
def added(subject: Subject) -> None:
    """Add a thing."""
    with subject.publishing() as publishing:
        before = publishing.settle()
        thing = subject.add()
        after = publishing.settle()
        if thing not in after:
            raise Violation(difference(before, after), f"+ {thing}")
        rest = {name: one for name, one in after.items() if name in before}
        # A node may say of itself how many it has; other things have nothing to do with it.
        for name in subject.harness.things():
            if name != thing and rest.get(name) != before[name]:
                raise Violation(difference(before, rest), "no other difference")


@rule(
    "WHF-402",
    Level.MUST,
    "What is gone from the backend is said no longer: after two complete cycles it is not in "
    "Placement, and nothing else has changed.",
    "What is published and not there is given to instances that cannot be started.",
    profile=Profile.EXTENDED,
    after=("WHF-301",),
)
def removed(subject: Subject) -> None:
    """Remove a thing, then all others, the last one while it is busy."""
    harness = subject.harness
    with subject.publishing() as publishing:
        before = publishing.settle()
        thing, *others = harness.things()
        harness.remove(thing)
        after = publishing.settle()
        if thing in after:
            raise Violation(difference(before, after), f"- {thing}")
        for name in others:
            if after.get(name) != before[name]:
                raise Violation(difference(before, after), f"- {thing}, and no other difference")
        if harness.busy.supported:
            harness.make_busy(others[-1])
            publishing.sync()
        for name in others:
            harness.remove(name)
        after = publishing.settle()
        if left := [name for name in others if name in after]:
            raise Violation(f"left: {', '.join(left)}", "none of what is gone")


@rule(
    "WHF-403",
    Level.MUST,
    "A thing that was removed and has returned ends as it was before: name, uuid, figures, traits.",
    "A card that was taken out and put back is the same card to everybody.",
    profile=Profile.EXTENDED,
    after=("WHF-401", "WHF-402"),
)
def returned(subject: Subject) -> None:
    """Remove a thing and put it back: after it has been missed, and before."""
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
