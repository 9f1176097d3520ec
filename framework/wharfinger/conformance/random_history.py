"""Random histories: sequences of backend changes, driver cycles and faults."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from hypothesis import strategies
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from wharfinger.conformance.exceptions import Violation
from wharfinger.conformance.expected_figures import see_as_expected
from wharfinger.conformance.fault_sweep import Breaking, see_old_or_new
from wharfinger.conformance.harness import Fault
from wharfinger.conformance.placement_diff import Contents, at_and_below, difference, is_reserved
from wharfinger.conformance.rules import are_kept_so_far, can_be_busy
from wharfinger.conformance.subject import Publishing, Subject, problems

#: A random number that selects an event, or the thing to which it happens.
_WHICH: Final = strategies.integers(0, 1023)
#: The types of the cycle after a change. With "" the next event follows without a cycle.
_CYCLE_TYPES: Final = ("", "sync", "drift", "poll")
#: A fault meets one of this many first calls of a cycle.
_CALLS: Final = 10
#: The faults, each with the rule that a driver must follow for it to be injected.
_FAULTS: Final = {Fault.RAISE: "WHF-703", Fault.HALF: "WHF-704"}
#: The most things that the backend has.
_MANY: Final = 6
#: An event, and the things to which it can happen.
_Step = tuple[Callable[[str], None], Sequence[str]]


class History(RuleBasedStateMachine):
    """One random history, and comparisons of Placement with the backend."""

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self._subject = subject
        self._harness = subject.harness
        self._acts: list[str] = []
        self._busy: set[str] = set()
        self._gone: list[str] = []
        #: The busy and the free things at the end of the last ``_settle``.
        self._listed_busy: set[str] = set()
        self._listed_free: set[str] = set()
        #: The providers at and below each thing, as they were when it was first seen free.
        self._free: dict[str, Contents] = {}
        self._publishing: Publishing | None = None

    @initialize()
    def begins(self) -> None:
        """Reset the backend, start a driver, and publish the driver's providers."""
        self._subject.begin()
        self._publishing = Publishing(self._subject)
        self._publishing.start()
        self._settle()

    def teardown(self) -> None:
        """Stop the driver."""
        if self._publishing is not None:
            self._publishing.stop()

    # Hypothesis uses only few of several rules in one history. So one rule makes all events.

    @rule(step=_WHICH, which=_WHICH, cycle_type=strategies.sampled_from([*_CYCLE_TYPES]))
    def happens(self, step: int, which: int, cycle_type: str) -> None:
        """Do one action on the backend or the driver; a cycle may follow."""
        changes, others = [*self._changes()], [*self._of_driver()]
        (happens, things) = [*changes, *others][step % (len(changes) + len(others))]
        happens(things[which % len(things)])
        if (happens, things) in changes and self._may_run(cycle_type):
            self._publish(cycle_type)

    def _changes(self) -> Iterator[_Step]:
        free = [thing for thing in self._there if thing not in self._busy]
        if len(self._there) < _MANY:
            yield self._add, [""]
        if len(self._there) > 1 and free and self._keeps("WHF-402", "WHF-403"):
            yield self._remove, free
        if self._gone:
            yield self._put_back, self._gone
        if free and self._can_be_busy:
            yield self._make_busy, free
        if self._busy:
            yield self._make_free, sorted(self._busy)

    def _add(self, _: str) -> None:
        self._tell(f"add {self._subject.add()}")

    def _remove(self, thing: str) -> None:
        self._harness.remove(thing)
        self._gone.append(thing)
        self._tell(f"remove {thing}")

    def _put_back(self, thing: str) -> None:
        self._harness.put_back(thing)
        self._gone.remove(thing)
        self._tell(f"put back {thing}")

    def _make_busy(self, thing: str) -> None:
        self._harness.make_busy(thing)
        self._busy.add(thing)
        self._tell(f"make {thing} busy")

    def _make_free(self, thing: str) -> None:
        self._harness.make_free(thing)
        self._busy.remove(thing)
        self._tell(f"make {thing} free")

    # Events of the driver.

    def _of_driver(self) -> Iterator[_Step]:
        yield self._publish, ["sync"]
        if self._keeps("WHF-303"):
            yield self._restart, [""]
        for fault, id in _FAULTS.items():
            if self._keeps("WHF-304", "WHF-702", id):
                yield self._run_with_fault, [f"{fault} {at}" for at in range(_CALLS)]

    def _may_run(self, cycle_type: str) -> bool:
        return cycle_type in ("sync", "drift") or (
            cycle_type == "poll" and self._keeps("WHF-911", "WHF-912", "WHF-913")
        )

    def _publish(self, cycle_type: str) -> None:
        self._tell(cycle_type)
        outcome = getattr(self._running.cycle, cycle_type)()
        # Without a new listing, a driver may report a removed thing as a problem.
        for problem in problems(outcome, ignore_reported=cycle_type != "sync"):
            self._fail(str(problem), "a cycle without a problem")
        self._check_unchanged_things()
        self._settle()

    def _restart(self, _: str) -> None:
        self._tell("restart")
        self._running.restart()
        self._settle()

    def _run_with_fault(self, fault_and_call: str) -> None:
        fault, at = fault_and_call.rsplit(" ", 1)
        self._tell(f"call {at} gets {fault}")
        old = self._subject.placement.contents()
        Breaking(self._subject, Fault(fault)).attempt(self._running.cycle.sync, int(at))
        middle = self._subject.placement.contents()
        self._settle()
        if not self._gone:  # the framework removes a provider in two steps
            new = self._subject.placement.contents()
            see_old_or_new(old, middle, new, ", ".join(self._acts))

    # Checks.

    def _check_unchanged_things(self) -> None:
        contents = self._subject.placement.contents()
        for thing in self._listed_busy & self._busy & contents.keys():
            self._check_reserved(contents, thing)
        for thing in (self._listed_free & {*self._there} & contents.keys()) - self._busy:
            self._check_free(contents, thing)

    def _check_free(self, contents: Contents, thing: str) -> None:
        now = _its_providers(contents, thing)
        before = self._free.setdefault(thing, now)
        if before != now:
            self._fail(difference(before, now), "no difference")

    def _settle(self) -> None:
        contents = self._running.settle_free(self._are_free)
        for thing in self._there:
            if thing not in contents:
                self._fail(f"{thing} is not in Placement", f"+ {thing}")
            elif thing in self._busy:
                self._check_reserved(contents, thing)
            else:
                self._check_free(contents, thing)
        for thing in self._gone:
            if thing in contents:
                self._fail(f"{thing} is in Placement", f"- {thing}")
        see_as_expected(self._subject, contents)
        self._listed_busy = {*self._busy}
        self._listed_free = {*self._there} - self._busy

    def _are_free(self, contents: Contents) -> bool:
        there = {one for one in {*self._there} - self._busy if one in contents}
        return all(
            _its_providers(contents, one) == self._free[one]
            if one in self._free
            else not is_reserved(contents[one])
            for one in there
        )

    def _check_reserved(self, contents: Contents, thing: str) -> None:
        for name, provider in _its_providers(contents, thing).items():
            for kind, one in sorted(provider.inventories.items()):
                if not one.is_fully_reserved:
                    self._fail(f"{name} {kind}: {one.reserved} of {one.total}", "all reserved")

    def _fail(self, found: str, expected: str) -> None:
        raise Violation(f"{', '.join(self._acts)}: {found}", expected)

    def _tell(self, what: str) -> None:
        self._acts.append(what)

    def _keeps(self, *ids: str) -> bool:
        return are_kept_so_far(self._subject, ids)

    @property
    def _can_be_busy(self) -> bool:
        return can_be_busy(self._subject)

    @property
    def _there(self) -> Sequence[str]:
        return self._harness.things()

    @property
    def _running(self) -> Any:
        return self._publishing


def _its_providers(contents: Contents, thing: str) -> Contents:
    return {name: contents[name] for name in at_and_below(contents, thing)}


def histories_of(subject: Subject) -> type[History]:
    """Return a subclass of History that needs no arguments."""

    class Its(History):
        def __init__(self) -> None:
            super().__init__(subject)

    return Its
