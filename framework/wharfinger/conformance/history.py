"""Random histories of a backend and of the driver that publishes it."""

from collections.abc import Sequence
from typing import Any, Final

from hypothesis import strategies
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from wharfinger.conformance.breaking import Breaking, see_old_or_new
from wharfinger.conformance.harness import Fault
from wharfinger.conformance.rules import Violation, requirements
from wharfinger.conformance.subject import Publishing, Subject
from wharfinger.conformance.trees import Contents, difference
from wharfinger.providers import Provider

#: Which of the things something happens to, and which of the calls.
_WHICH: Final = strategies.integers(0, 63)
_FAULTS: Final = {Fault.RAISE: "WHF-703", Fault.HALF: "WHF-704"}
#: More things than that are not made.
_MANY: Final = 6


class History(RuleBasedStateMachine):
    """What there is, and what has to be in Placement because of that.

    What is known not to be kept is left out: it has been told.
    """

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self._subject = subject
        self._harness = subject.harness
        self._told: list[str] = []
        self._busy: set[str] = set()
        self._gone: list[str] = []
        self._free: dict[str, Provider] = {}
        self._publishing: Publishing | None = None

    @initialize()
    def begins(self) -> None:
        """Publish what there is at the beginning."""
        self._subject.begin()
        self._publishing = Publishing(self._subject)
        self._publishing.start()
        self._settle()

    def teardown(self) -> None:
        """Let go of the driver."""
        if self._publishing is not None:
            self._publishing.stop()

    # What happens to the backend.

    @precondition(lambda self: len(self._there) < _MANY)
    @rule()
    def is_added(self) -> None:
        """There is one more."""
        self._tell(f"add {self._harness.add()}")

    @precondition(lambda self: len(self._there) > 1 and self._keeps("WHF-402", "WHF-403"))
    @rule(which=_WHICH)
    def is_removed(self, which: int) -> None:
        """There is one less."""
        thing = _one_of([thing for thing in self._there if thing not in self._busy], which)
        if thing is not None:
            self._harness.remove(thing)
            self._gone.append(thing)
            self._tell(f"remove {thing}")

    @precondition(lambda self: self._gone)
    @rule(which=_WHICH)
    def is_put_back(self, which: int) -> None:
        """One is there again."""
        thing = _one_of(self._gone, which)
        if thing is not None:
            self._harness.put_back(thing)
            self._gone.remove(thing)
            self._tell(f"put back {thing}")

    @precondition(lambda self: self._can_be_busy)
    @rule(which=_WHICH)
    def is_made_busy(self, which: int) -> None:
        """One cannot be had for a while."""
        thing = _one_of([thing for thing in self._there if thing not in self._busy], which)
        if thing is not None:
            self._harness.make_busy(thing)
            self._busy.add(thing)
            self._tell(f"make {thing} busy")

    @precondition(lambda self: self._busy)
    @rule(which=_WHICH)
    def is_made_free(self, which: int) -> None:
        """One can be had again."""
        thing = _one_of(sorted(self._busy), which)
        if thing is not None:
            self._harness.make_free(thing)
            self._busy.remove(thing)
            self._tell(f"make {thing} free")

    # What the driver does.

    @rule(pace=strategies.sampled_from(["sync", "drift", "poll"]))
    def publishes(self, pace: str) -> None:
        """Run a cycle; after that, all of it is as it has to be when it has been listed."""
        if pace == "poll" and not self._keeps("WHF-911", "WHF-913"):
            return
        self._tell(pace)
        outcome = getattr(self._running.cycle, pace)()
        for problem in outcome.problems:
            self._fail(str(problem), "a cycle without a problem")
        self._settle()

    @precondition(lambda self: self._keeps("WHF-303"))
    @rule()
    def restarts(self) -> None:
        """Go on with a new process."""
        self._tell("restart")
        self._running.restart()
        self._settle()

    @precondition(lambda self: self._keeps("WHF-304", "WHF-702"))
    @rule(fault=strategies.sampled_from([*_FAULTS]), at=_WHICH)
    def fails(self, fault: Fault, at: int) -> None:
        """Run a cycle in which a call fails, and go on."""
        if not self._keeps(_FAULTS[fault]):
            return
        self._tell(f"call {at} meets {fault}")
        old = self._subject.placement.contents()
        Breaking(self._subject, fault).attempt(self._running.cycle.sync, at)
        middle = self._subject.placement.contents()
        self._settle()
        if not self._gone:  # what is gone goes in two steps
            new = self._subject.placement.contents()
            see_old_or_new(old, middle, new, " then ".join(self._told))

    # What has to be.

    def _settle(self) -> None:
        contents = self._running.settle()
        for thing in self._there:
            if thing not in contents:
                self._fail(f"{thing} is not in Placement", f"+ {thing}")
            elif thing in self._busy:
                self._see_reserved(contents[thing])
            elif self._free.setdefault(thing, contents[thing]) != contents[thing]:
                before: Contents = {thing: self._free[thing]}
                self._fail(difference(before, {thing: contents[thing]}), "no difference")
        for thing in self._gone:
            if thing in contents:
                self._fail(f"{thing} is in Placement", f"- {thing}")

    def _see_reserved(self, provider: Provider) -> None:
        for kind, one in sorted(provider.inventories.items()):
            if not one.is_fully_reserved:
                self._fail(f"{provider.name} {kind}: {one.reserved} of {one.total}", "all reserved")

    def _fail(self, found: str, expected: str) -> None:
        raise Violation(f"{', '.join(self._told)}: {found}", expected)

    def _tell(self, what: str) -> None:
        self._told.append(what)

    def _keeps(self, *ids: str) -> bool:
        return self._subject.broken.isdisjoint(requirements(ids))

    @property
    def _can_be_busy(self) -> bool:
        return self._harness.busy.supported and self._keeps("WHF-502", "WHF-503", "WHF-504")

    @property
    def _there(self) -> Sequence[str]:
        return self._harness.things()

    @property
    def _running(self) -> Any:
        return self._publishing


def histories_of(subject: Subject) -> type[History]:
    """The histories of one driver."""

    class Its(History):
        def __init__(self) -> None:
            super().__init__(subject)

    return Its


def _one_of(things: Sequence[str], which: int) -> str | None:
    return things[which % len(things)] if things else None
