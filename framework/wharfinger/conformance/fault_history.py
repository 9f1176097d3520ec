"""Play a fixed history of backend changes with and without faults, and compare Placement."""

import os
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final, Protocol
from weakref import WeakKeyDictionary

from wharfinger.conformance.exceptions import NotShown, Violation
from wharfinger.conformance.harness import Fault
from wharfinger.conformance.placement_diff import Contents, at_and_below, difference, is_reserved
from wharfinger.conformance.rules import can_be_busy
from wharfinger.conformance.subject import Publishing, Subject
from wharfinger.exceptions import WharfingerError
from wharfinger.providers import Provider
from wharfinger.providers.full_reservation import reserve_fully

#: Seconds in which polls must show a change: in the reference, and in a play with faults.
_POLLS: Final = 5.0
_POLLS_AFTER_A_FAULT: Final = 15.0
#: Seconds between two polls, and between two checks of whether a call has met its fault.
_POLL_PACE: Final = 0.05
_PAUSE: Final = 0.005
#: Seconds in which a cycle must end when no call hangs any more.
_END: Final = 60.0
#: Seconds to wait while a driver receives a late answer.
_TAKES_IN: Final = 0.05
#: Full cycles at the end of the reference, and at most at the end of a play with faults.
_LAST: Final = 4
_MOST: Final = 10
#: A harness is slow if one play waits longer than this for it, in seconds.
_SLOW: Final = 3.0
#: Factor by which a busy machine may be slower.
_SLOWEST: Final = 3
#: Further full cycles for a step that ends differently from the reference.
_MORE: Final = 4
_AS_IN_REFERENCE: Final = "no difference from a run without faults"


class Driving(Protocol):
    """A driver that publishes, in this process or in another one."""

    def run(self, cycle_type: str) -> Sequence[str]:
        """Run a "sync", "poll" or "drift" cycle, or "restart" the driver; return the problems."""

    def stop(self) -> None:
        """Stop the driver if it runs."""


class Here:
    """A driver in this process."""

    def __init__(self, subject: Subject) -> None:
        self._subject: Final = subject
        self._publishing: Publishing | None = None

    def run(self, cycle_type: str) -> Sequence[str]:
        """Run a cycle or restart the driver; return the problems."""
        try:
            if cycle_type == "restart":
                self.stop()
            publishing = self._started()
            if cycle_type == "restart":
                return ()
            return [str(problem) for problem in getattr(publishing.cycle, cycle_type)().problems]
        except WharfingerError as error:
            return [str(error)]

    def stop(self) -> None:
        """Stop the driver if it runs."""
        publishing, self._publishing = self._publishing, None
        if publishing is not None:
            publishing.stop()

    def _started(self) -> Publishing:
        if self._publishing is None:
            publishing = Publishing(self._subject)
            try:
                publishing.start()
            except BaseException:
                publishing.stop()
                raise
            self._publishing = publishing
        return self._publishing


@dataclass(frozen=True, slots=True)
class Case:
    """A fault to inject into one backend call of one step of the history."""

    step: int
    at: int
    fault: Fault
    call: str
    step_name: str
    #: Whether a late answer arrives after the cycles of the next step, not before them.
    arrives_in_next_step: bool = False

    def __str__(self) -> str:
        return (
            f"backend call {self.at} ({self.call}) of the step {self.step_name!r} gets {self.fault}"
        )


@dataclass(frozen=True, slots=True)
class Step:
    """Result of a step: a change of the backend, and the cycles after it."""

    #: The change, such as "add node-3".
    name: str
    calls: Sequence[str]
    #: The same calls, each with the type of its cycle: "sync: GET /nodes".
    typed_calls: Sequence[str]
    after_cycles: Sequence[Contents]
    #: The providers that a poll, not a later cycle, changed to their state after the step.
    shown_by_polls: Contents = field(default_factory=dict)

    @property
    def end(self) -> Contents:
        """Return the contents of Placement after the step."""
        return self.after_cycles[-1]


@dataclass(frozen=True, slots=True)
class Reference:
    """The result of ``History.play``."""

    steps: Sequence[Step]
    #: The contents of Placement after the last step and some full cycles.
    final: Contents
    #: The names of all things, in the order in which the harness added them.
    things: Sequence[str]
    #: Whether a reset of the harness brings the same names and uuids each time.
    has_stable_names: bool
    harness_seconds: float = 0.0

    @property
    def fewer_steps(self) -> int:
        """Return the number of steps to play, fewer for a slow harness."""
        count = len(self.steps)
        return count // 2 if self.is_slow else count

    @property
    def is_slow(self) -> bool:
        """Return whether the harness takes long for one run of the history."""
        return self.harness_seconds > _SLOW


def backend_changes(
    subject: Subject, things: list[str], freed: set[str]
) -> Iterator[tuple[str, Sequence[str]]]:
    """Make the changes of the history one by one; yield their names and cycle types.

    Run cycles of these types before the next change. Also updates ``things`` and ``freed``.
    """
    harness = subject.harness
    first, second = things[:2]
    is_busy = can_be_busy(subject)

    def add() -> str:
        things.append(subject.add())
        return things[-1]

    yield "start", ("sync",)
    third = add()
    yield f"add {third}", ("sync",)
    if is_busy:
        harness.make_busy(first)
        yield f"make {first} busy", ("polls", "sync")
    yield "nothing", ("poll", "drift", "sync")
    harness.remove(second)
    yield f"remove {second}", ("sync", "sync")
    if subject.can("change"):
        harness.change(third)
        yield f"change {third}", ("polls", "sync", "sync")  # a busy thing may hide it later
    if is_busy:
        harness.make_busy(third)
        yield f"make {third} busy", ("sync",)
    harness.put_back(second)
    yield f"put back {second}", ("sync",)
    yield "restart of the driver", ("restart", "sync")
    if is_busy:
        harness.make_free(first)
        freed.add(first)
        yield f"make {first} free", ("polls", "sync")
    if subject.can("use"):
        harness.use(second)
        yield f"use {second}", ("poll", "sync")
    fourth = add()
    yield f"add {fourth}", ("poll", "sync")
    if is_busy:
        harness.make_free(third)
        freed.add(third)
        yield f"make {third} free", ("sync",)
    harness.remove(first)
    yield f"remove {first}", ("sync", "sync")
    if is_busy:
        harness.make_busy(second)
        yield f"make {second} busy", ("sync",)


class History:
    """Makes backend changes, with the faults of ``cases``."""

    def __init__(
        self,
        subject: Subject,
        driving: Driving,
        reference: Reference | None = None,
        cases: Sequence[Case] = (),
    ) -> None:
        self._subject: Final = subject
        self._driving: Final = driving
        self._reference: Final = reference
        self._cases: Final = {case.step: case for case in cases}
        self._faults: Final = {case.fault for case in cases}
        #: The cases whose call was made so far.
        self.met: Final[list[Case]] = []
        #: Seconds of waiting for the harness.
        self.waited = 0.0
        #: The case whose late answer has not arrived yet.
        self._late: Case | None = None
        self._things: list[str] = []
        #: The things that were busy and are free now.
        self._freed: set[str] = set()
        self.steps: list[Step] = []
        self._last: Contents = {}
        self._problems: Sequence[str] = ()
        #: Whether the driver needed more cycles than in the reference.
        self._is_slow = False
        self._feeds = subject.capabilities.supports("change_feed")

    def play(self, first: int | None = None) -> Reference:
        """Reset the backend, and run all or the ``first`` changes with their cycles.

        Raises Violation and NotShown.
        """
        harness = self._subject.harness
        with self._waiting():
            self._subject.begin()
        self._things = [*harness.things()]
        steps = backend_changes(self._subject, self._things, self._freed)
        try:
            while first is None or len(self.steps) < first:
                with self._waiting():
                    name, cycle_types = next(steps, ("", None))
                if cycle_types is None:
                    break
                self._play_step(len(self.steps), name, cycle_types)
            if self._late is not None:
                self._deliver()
            harness.expect()
            final = self._run_last_cycles()
        finally:
            harness.expect()
            self._driving.stop()
        return Reference(
            self.steps, final, self._things, has_stable_names=True, harness_seconds=self.waited
        )

    def _play_step(self, number: int, name: str, cycle_types: Sequence[str]) -> None:
        case = self._cases.get(number)
        if case is not None:
            self.expect(case)
        elif self._late is None:
            self._subject.harness.expect()
        before = self._last
        seen: list[Contents] = []
        polled: Contents = {}
        kinds: list[str] = []
        for cycle_type in cycle_types:
            if cycle_type == "polls":
                polled = self._poll_until_shown(number, case)
            else:
                self._cycle(cycle_type, case)
            seen.append(self._look(number))
            kinds += [f"{cycle_type}: {call}" for call in self._subject.harness.calls[len(kinds) :]]
        calls = tuple(self._subject.harness.calls)
        changed = {
            one: new
            for one, new in polled.items()
            if seen[-1].get(one) == new and before.get(one) != new
        }
        self.steps.append(Step(name, calls, kinds, seen, changed))
        if self._late is not None and (
            self._late is not case or not self._late.arrives_in_next_step
        ):
            self._deliver()
        self._check_step(number)

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        begin = time.monotonic()
        try:
            yield
        finally:
            self.waited += time.monotonic() - begin

    def expect(self, case: Case) -> None:
        """Let the harness inject the fault of a case into the step that begins."""
        self._subject.harness.expect(case.at, case.fault)

    def is_met(self, case: Case) -> bool:
        """Return whether a call has met the fault of the case since ``expect``."""
        return len(self._subject.harness.calls) > case.at

    def after_met(self, case: Case) -> None:
        """Release the call if the fault of the case lets it hang."""
        if case.fault is Fault.HANG:
            self._subject.harness.expect()

    def _cycle(self, cycle_type: str, case: Case | None) -> None:
        if case is None or case in self.met:
            self._problems = self._driving.run(cycle_type)
            if self._problems and self._late is not None:
                # The driver makes one call at a time, and waits still.
                self._deliver()
                self._problems = self._driving.run(cycle_type)
        elif case.fault is Fault.LATE:
            with self._waiting():
                self._problems = self._attempt(cycle_type, case)
        else:
            self._problems = self._attempt(cycle_type, case)

    def _attempt(self, cycle_type: str, case: Case) -> Sequence[str]:
        problems: list[str] = []
        running = threading.Thread(
            target=lambda: problems.extend(self._driving.run(cycle_type)), name="cycle", daemon=True
        )
        running.start()
        harness = self._subject.harness
        end: float | None = None
        while running.is_alive():
            running.join(_PAUSE)
            if end is None and self.is_met(case):
                self.met.append(case)
                end = time.monotonic() + _END
                self.after_met(case)
                if case.fault is Fault.LATE:
                    self._late = case
                    end = time.monotonic() + harness.patience
            if end is not None and time.monotonic() > end:
                if self._late is None:
                    found = f"the cycle has not ended {_END:g} s later"
                    raise self._violation(found, "the end of the cycle, with or without an error")
                self._deliver()
                end = time.monotonic() + _END
        if case not in self.met and self.is_met(case):
            self.met.append(case)
        return problems

    def _deliver(self) -> None:
        self._late = None
        self._subject.harness.expect()
        time.sleep(_TAKES_IN)

    def _poll_until_shown(self, number: int, case: Case | None) -> Contents:
        if not self._feeds:
            return {}
        wanted = self._wanted(number)
        before = self._last
        seconds = _POLLS if self._reference is None else _POLLS_AFTER_A_FAULT
        end = time.monotonic() + seconds
        while True:
            self._cycle("poll", case)
            contents = self._subject.placement.contents()
            now = self._alike(contents)
            if self._reference is None:
                is_named = contents != before
            else:
                is_named = all(now.get(name) == one for name, one in wanted.items())
            if is_named:
                return contents
            if time.monotonic() > end:
                break
            time.sleep(_POLL_PACE)
        if self._reference is None:
            self._feeds = False
            return {}
        found = difference(wanted, {name: now[name] for name in wanted if name in now})
        raise self._violation(f"polls do not show the change: {found}", _AS_IN_REFERENCE)

    def _wanted(self, number: int) -> Contents:
        if self._reference is None or Fault.STALE in self._faults:
            return {}  # after a stale answer, a feed need not name the change
        return self._comparable(self._reference.steps[number].shown_by_polls)

    def _run_last_cycles(self) -> Contents:
        reference, number = self._reference, len(self.steps)
        expected: Contents | None = None
        if reference is not None:
            is_whole = number == len(reference.steps)
            expected = reference.final if is_whole else reference.steps[number - 1].end
        for _ in range(_LAST if expected is None else _MOST):
            self._cycle("sync", None)
            contents = self._subject.placement.contents()
            if expected is not None and not self._problems and self._is_as(expected):
                return contents
        if expected is not None:
            differences = self._difference(expected)
            raise self._violation(f"{_MOST} full cycles later: {differences}", _AS_IN_REFERENCE)
        for problem in self._problems:
            raise NotShown(f"a cycle without a fault has a problem: {problem}")
        return contents

    # Comparison with the reference.

    def _look(self, number: int) -> Contents:
        before, self._last = self._last, self._subject.placement.contents()
        if self._reference is not None and number:
            old, now = self._alike(before), self._alike(self._last)
            self._check_kept(number, old, now)
        return self._last

    def _check_kept(self, number: int, old: Contents, now: Contents) -> None:
        assert self._reference is not None
        all_the_while = (
            self._reference.steps[number - 1].end,
            *self._reference.steps[number].after_cycles,
        )
        freed = self._freed_providers(now)
        for name in sorted(set(old).intersection(*all_the_while)):
            if name not in now:
                raise self._violation(f"provider {name} is removed", f"provider {name} stays")
            is_kept_busy = name not in freed and all(
                is_reserved(one[name]) for one in (old, *all_the_while)
            )
            # A driver cannot know that an answer is stale.
            if is_kept_busy and Fault.STALE not in self._faults and not is_reserved(now[name]):
                differences = difference({name: old[name]}, {name: now[name]})
                raise self._violation(
                    f"{name} is busy, but not fully reserved: {differences}",
                    f"all inventory of {name} reserved",
                )

    def _is_as_or_early(self, expected: Contents) -> bool:
        now, expected = self._alike(self._subject.placement.contents()), self._comparable(expected)
        freed = self._freed_providers(now)
        return now.keys() == expected.keys() and all(
            one == now[name] or (name in freed and one == _reserved(now[name]))
            for name, one in expected.items()
        )

    def _freed_providers(self, contents: Contents) -> set[str]:
        assert self._reference is not None
        # A driver that was killed may release them earlier than in the reference.
        names = zip(self._things, self._reference.things, strict=False)
        freed = [theirs for ours, theirs in names if ours in self._freed]
        return {name for thing in freed for name in at_and_below(contents, thing)}

    def _check_step(self, number: int) -> None:
        if self._reference is None or self._is_slow or not self.met:
            return
        case = self.met[-1]
        if number <= case.step + (case.fault is Fault.LATE):
            return
        expected = self._reference.steps[number].end
        # A driver may have to see a change several times. After a late answer, it gets no time to
        # hide that it is one answer behind.
        for _ in range(0 if case.fault is Fault.LATE else _MORE):
            if self._is_as(expected):
                return
            self._is_slow = True
            self._cycle("sync", None)
            self._last = self._subject.placement.contents()
        if not self._is_as_or_early(expected):
            raise self._violation(
                f"after the step {self.steps[-1].name!r}: {self._difference(expected)}",
                _AS_IN_REFERENCE,
            )

    def _is_as(self, expected: Contents) -> bool:
        return self._alike(self._subject.placement.contents()) == self._comparable(expected)

    def _difference(self, expected: Contents) -> str:
        now = self._alike(self._subject.placement.contents())
        return difference(self._comparable(expected), now)

    def _comparable(self, contents: Contents) -> Contents:
        if self._reference is None or self._reference.has_stable_names:
            return contents
        return _alike(contents, {})

    def _alike(self, contents: Contents) -> Contents:
        if self._reference is None or self._reference.has_stable_names:
            return contents
        return _alike(contents, dict(zip(self._things, self._reference.things, strict=False)))

    def _violation(self, found: str, expected: str) -> Violation:
        cases = "; ".join(map(str, self.met)) or "no call gets a fault"
        problem = f" ({self._problems[0]})" if self._problems else ""
        return Violation(f"{cases}: {found}{problem}", expected)


def _reserved(provider: Provider) -> Provider:
    return replace(provider, inventories=reserve_fully(provider.inventories))


def _alike(contents: Contents, names: Mapping[str, str]) -> Contents:
    texts = {**names, **{_as_trait(own): _as_trait(other) for own, other in names.items()}}
    uuids = {one.uuid: _replaced(name, texts) for name, one in contents.items()}
    return {
        uuids[one.uuid]: replace(
            one,
            name=uuids[one.uuid],
            uuid=uuids[one.uuid],
            root_uuid=uuids.get(one.root_uuid, ""),
            parent_uuid=one.parent_uuid and uuids.get(one.parent_uuid),
            traits=frozenset(_replaced(trait, texts) for trait in one.traits),
        )
        for one in contents.values()
    }


def _as_trait(name: str) -> str:
    return re.sub(r"[^A-Z0-9]", "_", name.upper())


def _replaced(text: str, texts: Mapping[str, str]) -> str:
    for own in sorted(texts, key=len, reverse=True):
        if own in text:
            return text.replace(own, texts[own])
    return text


# Which cases are tried.

_REFERENCES: Final[WeakKeyDictionary[Subject, Reference]] = WeakKeyDictionary()


def reference_of(subject: Subject) -> Reference:
    """Return the result of ``History.play`` without faults, cached by subject."""
    if subject not in _REFERENCES:
        reference = History(subject, Here(subject)).play()
        subject.begin()
        here = Here(subject)
        try:
            here.run("sync")
            again = subject.placement.contents()
        finally:
            here.stop()
        has_stable_names = again == reference.steps[0].end
        _REFERENCES[subject] = replace(reference, has_stable_names=has_stable_names)
    return _REFERENCES[subject]


def queues_of(
    reference: Reference, faults: Sequence[Fault], draw: random.Random
) -> list[list[Case]]:
    """Return the cases of each step in the order to try them."""
    in_steps = Counter(kind for step in reference.steps for kind in {*step.typed_calls})
    # Calls that few steps make probably read what has changed.
    queues: list[list[Case]] = []
    for number, step in enumerate(reference.steps):
        rarity = [in_steps[kind] for kind in step.typed_calls]
        order = sorted(draw.sample(range(len(rarity)), len(rarity)), key=rarity.__getitem__)
        kinds = draw.sample(faults, len(faults))
        queues.append(
            [
                Case(
                    number,
                    at,
                    kinds[(turn + index) % len(kinds)],
                    step.calls[at],
                    step.name,
                    arrives_in_next_step=draw.random() < 0.5,
                )
                for turn in range(len(kinds))
                for index, at in enumerate(order)
            ]
        )
    return queues


#: Returns a history in which these cases are met.
MakeHistory = Callable[[Sequence[Case]], History]


def try_faults(
    subject: Subject,
    faults: frozenset[Fault],
    *,
    seconds: float,
    apart: int,
    is_short: bool = False,
) -> str:
    """Inject faults of these kinds into the history; return as text how many.

    Raises Violation and NotShown.
    """
    reference = reference_of(subject)
    draw = random.Random(subject.seed)
    queues = queues_of(reference, sorted(faults), draw)

    def make_history(cases: Sequence[Case]) -> History:
        return History(subject, Here(subject), reference, cases)

    count = reference.fewer_steps if is_short else len(queues)
    seconds = 0.0 if reference.is_slow else seconds
    return try_cases(subject, make_history, queues[:count], seconds=seconds, apart=apart)


def try_cases(
    subject: Subject,
    make_history: MakeHistory,
    queues: list[list[Case]],
    *,
    seconds: float,
    apart: int,
) -> str:
    """Run the history with these cases; return as text how many were tried.

    Cases of one run are at least ``apart`` steps apart. Use 2; with late answers, use 3.
    Raises Violation and NotShown.
    """
    count = sum(map(len, queues))
    if not count:
        raise NotShown("the harness's attribute calls is empty after each step of the history")
    if subject.thorough:
        for case in (case for queue in queues for case in queue):
            make_history([case]).play(len(queues))
        return f"all {count} faults were tried"
    tried = turn = 0
    spent = -_processor_time()
    end = time.monotonic() + _SLOWEST * seconds
    while any(queues) and (
        not turn or (spent + _processor_time() < seconds and time.monotonic() < end)
    ):
        chosen = [queue.pop(0) for queue in queues[turn % apart :: apart] if queue]
        turn += 1
        if not chosen:
            continue
        history = make_history(chosen)
        try:
            history.play(len(queues))
        except Violation as violation:
            for case in reversed(history.met):
                make_history([case]).play(len(queues))
            raise Violation(
                f"{violation.found} (seed {subject.seed})", violation.expected
            ) from None
        spent += history.waited
        tried += len(history.met)
    return f"{tried} of {count} faults were tried (seed {subject.seed})"


def _processor_time() -> float:
    return sum(os.times()[:4])
