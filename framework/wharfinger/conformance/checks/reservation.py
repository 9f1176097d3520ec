"""Rules of what is there, and not to be had (WHF-5..)."""

from wharfinger.conformance.rules import Level, Profile, Violation, rule
from wharfinger.conformance.subject import Subject, describe
from wharfinger.conformance.trees import difference


@rule(
    "WHF-501",
    Level.MUST,
    "While a thing is busy its inventory stays, and all of it is reserved (reserved == total).",
    "Inventory that is deleted takes the allocations' ground away; inventory that is free is given "
    "to somebody.",
    profile=Profile.EXTENDED,
    busy=True,
    after=("WHF-301",),
)
def reserved(subject: Subject) -> None:
    """Make a thing busy."""
    harness = subject.harness
    with subject.publishing() as publishing:
        before = publishing.settle()
        thing = harness.things()[0]
        harness.make_busy(thing)
        after = publishing.settle()
        mine = after[thing].inventories if thing in after else {}
        kept = {kind: one.total for kind, one in before[thing].inventories.items()}
        if {kind: one.total for kind, one in mine.items()} != kept:
            raise Violation(difference(before, after), f"all of {thing} kept, and reserved")
        if not all(one.is_fully_reserved for one in mine.values()):
            raise Violation(difference(before, after), f"all of {thing} reserved")


@rule(
    "WHF-502",
    Level.MUST,
    "When a thing is free again it has its own figures back, what it reserves for itself too.",
    "A figure that is lost is lost for good: nobody remembers it but the driver.",
    profile=Profile.EXTENDED,
    busy=True,
    after=("WHF-303", "WHF-501"),
)
def restored(subject: Subject) -> None:
    """Make a thing busy, and free again; also with a restart between."""
    harness = subject.harness
    with subject.publishing() as publishing:
        before = publishing.settle()
        for meanwhile in (publishing.sync, publishing.restart):
            thing = harness.things()[0]
            harness.make_busy(thing)
            publishing.settle()
            meanwhile()
            harness.make_free(thing)
            after = publishing.settle()
            if after != before:
                raise Violation(difference(before, after), "no difference")


@rule(
    "WHF-503",
    Level.MUST,
    "Only what is busy is reserved for it.",
    "One node that is cleaned is no reason to refuse all others.",
    profile=Profile.EXTENDED,
    busy=True,
    after=("WHF-501",),
)
def others_free(subject: Subject) -> None:
    """Make a thing busy, and look at the others."""
    harness = subject.harness
    with subject.publishing() as publishing:
        before = publishing.settle()
        thing, *others = harness.things()
        harness.make_busy(thing)
        after = publishing.settle()
        for name in others:
            if after.get(name) != before[name]:
                raise Violation(difference(before, after), f"a difference of {thing} alone")


@rule(
    "WHF-504",
    Level.MUST,
    "What is busy when the driver first sees it can be had by nobody, either.",
    "A process may start, or a node be found, in the middle of its cleaning.",
    profile=Profile.EXTENDED,
    busy=True,
    after=("WHF-501",),
)
def reserved_at_first(subject: Subject) -> None:
    """Make a thing busy before anything is published."""
    harness = subject.harness
    thing = harness.things()[0]
    harness.make_busy(thing)
    with subject.publishing() as publishing:
        found = publishing.settle().get(thing)
    for kind, one in sorted(found.inventories.items()) if found else ():
        if not one.is_fully_reserved:
            raise Violation(f"{thing} {kind}: {one.reserved} of {one.total} reserved", "all")


@rule(
    "WHF-505",
    Level.SHOULD,
    "A reservation is said with a reason (ProviderTree.reserve), and not by figures.",
    "Operators ask why a node cannot be had; and figures that are reported as they are need not "
    "be remembered.",
    profile=Profile.EXTENDED,
    busy=True,
    after=("WHF-501",),
)
def reasoned(subject: Subject) -> None:
    """Make a thing busy, and look at what is said of it."""
    harness = subject.harness
    with subject.publishing() as publishing:
        live = publishing.settle()
        thing = harness.things()[0]
        harness.make_busy(thing)
        one = describe(publishing.driver, live).get(thing)
        if one is None or not one.reservations:
            raise Violation(f"{thing}: no reason", "reserve(name_or_uuid, reason)")
