"""Rules on the running driver: its calls, its shared state, and its leftovers (WHF-8..)."""

from wharfinger.conformance.exceptions import Violation
from wharfinger.conformance.rules import Level, Profile, rule
from wharfinger.conformance.side_effects import watching
from wharfinger.conformance.subject import Subject, describe


@rule(
    "WHF-801",
    Level.MUST,
    "After a refresh everything is answered from memory: no calls to the backend, and no programs.",
    "A cycle describes all nodes of one moment; a call for each is a request for each, and another "
    "moment.",
    profile=Profile.EXTENDED,
    after=("WHF-203",),
)
def in_memory(subject: Subject) -> None:
    """Describe all nodes twice after a refresh."""
    harness = subject.harness
    with subject.driver() as driver:
        live = subject.placement.contents()
        driver.get_available_nodes(refresh=True)
        harness.expect()
        with watching() as seen:
            for _ in range(2):
                describe(driver, live, refresh=False)
                driver.capabilities_as_traits()
                driver.get_problems()
        if harness.calls:
            raise Violation(f"{len(harness.calls)} calls: {', '.join(harness.calls[:3])}", "none")
        if seen:
            raise Violation(", ".join(seen[:3]), "answers, and nothing else")


@rule(
    "WHF-803",
    Level.MUST,
    "Two instances of the driver share nothing: one's refresh is not the other's.",
    "They run in threads of their own, for backends of their own.",
    profile=Profile.EXTENDED,
    after=("WHF-401",),
)
def apart(subject: Subject) -> None:
    """Refresh one instance, add a thing, refresh another instance, and ask the first one again."""
    live = subject.placement.contents()
    with subject.driver() as one, subject.driver() as other:
        before = describe(one, live)
        subject.harness.add()
        describe(other, live)
        after = describe(one, live, refresh=False)
    if after != before:
        news = sorted(after.keys() ^ before.keys())
        raise Violation(f"the first instance now differs in: {', '.join(news)}", "its own snapshot")
