"""Make nodes and devices busy and free, and check their reservations in Placement."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from wharfinger.conformance.device_function import UNKNOWN, held_function
from wharfinger.conformance.exceptions import Violation
from wharfinger.conformance.placement_diff import Contents, at_and_below, difference
from wharfinger.conformance.subject import Publishing, Subject
from wharfinger.providers import Provider
from wharfinger.providers.device_function_traits import function_traits


class BusyThings:
    """Makes things busy and free, and compares Placement with the expected contents."""

    def __init__(self, subject: Subject, publishing: Publishing) -> None:
        self._subject: Final = subject
        self._publishing: Final = publishing
        self._busy: Final[list[str]] = []
        self.before: Final = publishing.settle()
        self._programs: Final = publishing.driver.capabilities.supports("programming")
        self._held: Final = {name: self._function(name) for name in subject.harness.things()}

    def make_busy(self, thing: str) -> None:
        """Let the harness make a thing busy."""
        self._subject.harness.make_busy(thing)
        self._busy.append(thing)

    def make_free(self, thing: str) -> None:
        """Let the harness make a thing free, and run cycles that should release its provider."""
        self._subject.harness.make_free(thing)
        self._busy.remove(thing)
        self._publishing.settle_free(lambda now: now == self.expected(now))

    def see(self, when: str) -> None:
        """Raise Violation unless Placement has the expected contents."""
        now = self._subject.placement.contents()
        expected = self.expected(now)
        if now != expected:
            raise Violation(f"{when}: {difference(expected, now)}", self._expected)

    def see_others(self, when: str) -> None:
        """Do as ``see``, but accept any contents of the providers of busy nodes and devices."""
        now = self._subject.placement.contents()
        expected, concerned = self.expected(now), {*self._concerned()}
        for name in concerned & now.keys():
            expected = {**expected, name: now[name]}
        if now != expected:
            raise Violation(f"{when}: {difference(expected, now)}", self._expected)

    def expected(self, now: Contents) -> Contents:
        """Return the contents that Placement must have, given its contents now."""
        expected = {**self.before}
        for name in self._concerned():
            expected[name] = _reserved(expected[name])
        for name in self._programmed_with():
            if name in now and now[name] == _reserved(expected[name]):
                expected[name] = now[name]
        for thing in self._busy if self._programs else ():
            self._copy_changed_functions(thing, expected, now)
        return expected

    def _copy_changed_functions(
        self, thing: str, expected: dict[str, Provider], now: Contents
    ) -> None:
        held = self._function(thing)
        if held == self._held.get(thing) is not UNKNOWN:
            return
        driver, uuid = self._publishing.driver, self.before[thing].uuid
        named = {
            driver.function_trait(uuid, one)
            for one in (held, self._held.get(thing))
            if isinstance(one, str)
        }
        for name in at_and_below(self.before, thing):
            mine, theirs = expected[name].traits, now[name].traits if name in now else frozenset()
            functions = named | function_traits(mine | theirs)
            traits = (mine - functions) | (theirs & functions)
            expected[name] = replace(expected[name], traits=traits)

    def _concerned(self) -> list[str]:
        return [name for thing in self._busy for name in at_and_below(self.before, thing)]

    def _programmed_with(self) -> Iterator[str]:
        scope: set[str] = set()
        for thing in self._busy if self._programs else ():
            scope |= _scope(self._publishing, self.before[thing].uuid)
        concerned = {*self._concerned()}
        for name, one in self.before.items():
            if one.uuid in scope and name not in concerned:
                yield from at_and_below(self.before, name)

    def _function(self, thing: str) -> object:
        if not self._programs or thing not in self.before:
            return UNKNOWN
        return held_function(self._publishing.driver, self.before[thing].uuid)

    @property
    def _expected(self) -> str:
        busy = ", ".join(self._busy)
        return f"{busy} reserved, and no other difference" if busy else "no difference"


def _reserved(provider: Provider) -> Provider:
    inventories = {
        kind: replace(one, reserved=one.total) for kind, one in provider.inventories.items()
    }
    return replace(provider, inventories=inventories)


def _scope(publishing: Publishing, uuid: str) -> set[str]:
    try:
        return {*publishing.driver.programming_scope(uuid)}
    except Exception:
        return set()
