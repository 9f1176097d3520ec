"""Mutants of the change feed (WHF-91.)."""

from contextlib import suppress
from typing import Any

from tests.lab.conformance.honest import NODE, DevicesDriver, Facts, MachinesDriver
from tests.lab.conformance.mutants import mutant
from wharfinger.exceptions import BackendError


@mutant("WHF-911")
class NamesNothing(DevicesDriver):
    """It asks for what has happened, and names nothing."""

    def news(self, since: str) -> tuple[set[str], str]:
        return set(), super().news(since)[1]


@mutant("WHF-911")
class NamesWithoutALook(MachinesDriver):
    """It names what has changed, and answers from what it knew before."""

    def news(self, since: str) -> tuple[set[str], str]:
        events = self.ask(f"events {since}")
        return self.changed({*events["changed"]}), str(events["last"])


@mutant("WHF-911")
class NamesDevices(DevicesDriver):
    """It names the devices that have changed, and not their node."""

    def changed(self, devices: set[str]) -> set[str]:
        return devices


@mutant("WHF-912")
class NamesOnce(DevicesDriver):
    """It tells each event once."""

    def news(self, since: str) -> tuple[set[str], str]:
        changed, mark = super().news(since)
        if mark in self.noted:
            return set(), mark
        self.noted.add(mark)
        return changed, mark


@mutant("WHF-913")
class NamesWhatIsGone(MachinesDriver):
    """It names every machine of which there is an event."""

    def changed(self, devices: set[str]) -> set[str]:
        return devices


@mutant("WHF-914")
class TakesSilenceForPeace(DevicesDriver):
    """A backend that does not answer has no news."""

    def news(self, since: str) -> tuple[set[str], str]:
        try:
            return super().news(since)
        except BackendError:
            return set(), since


@mutant("WHF-914")
class ReadsNoNewsFromAnError(MachinesDriver):
    """It takes an error for an answer without events."""

    def refused(self, words: str, answer: Facts) -> Any:
        if words.startswith("events"):
            return {"changed": [], "last": words.removeprefix("events").strip() or "0"}
        return super().refused(words, answer)


@mutant("WHF-914")
class NamesWhatItCouldNotRead(DevicesDriver):
    """It names what has changed, and answers from what it knew where it could not read that."""

    def news(self, since: str) -> tuple[set[str], str]:
        events = self.ask(f"events {since}")
        if events["changed"]:
            with suppress(BackendError):
                self.read()
        return self.changed({*events["changed"]}), str(events["last"])


@mutant("WHF-915")
class NamesItsNodeAlways(DevicesDriver):
    """It has one node, and names it at each poll."""

    def changed(self, devices: set[str]) -> set[str]:
        return {NODE}


@mutant("WHF-915")
class KeepsItsMark(MachinesDriver):
    """Its mark is the first one, for as long as it runs."""

    def news(self, since: str) -> tuple[set[str], str]:
        return super().news(since)[0], since


@mutant("WHF-915")
class NamesAllNowAndThen(MachinesDriver):
    """Every third poll names all machines, to be sure."""

    polls = 0

    def news(self, since: str) -> tuple[set[str], str]:
        changed, mark = super().news(since)
        self.polls += 1
        return changed if self.polls % 3 else {*self.devices}, mark


@mutant("WHF-916")
class NamesAllForOne(MachinesDriver):
    """Where one machine has changed it names all of them."""

    def changed(self, devices: set[str]) -> set[str]:
        return {*self.devices} if devices else set()


@mutant("WHF-916")
class NamesWhatComesAfter(MachinesDriver):
    """It names all machines of the list from the first one on that has changed."""

    def changed(self, devices: set[str]) -> set[str]:
        names = [*self.devices]
        return {*names[min((names.index(one) for one in devices & {*names}), default=len(names)) :]}


@mutant("WHF-917")
class BeginsWithItsFirstPoll(DevicesDriver):
    """It tells what has happened since its own first poll, whatever the mark."""

    first: str | None = None

    def news(self, since: str) -> tuple[set[str], str]:
        self.first = self.first or str(self.ask("events")["last"])
        return super().news(max(since, self.first, key=int))


@mutant("WHF-917")
class NamesNothingAtFirst(MachinesDriver):
    """Its first poll reads all changes, and names none of them."""

    has_polled = False

    def news(self, since: str) -> tuple[set[str], str]:
        changed, mark = super().news(since)
        is_first, self.has_polled = not self.has_polled, True
        return set() if is_first else changed, mark


@mutant("WHF-918")
class RemembersOneMark(MachinesDriver):
    """It has a place of its own in the events, and gives its last answer again for its mark."""

    place = "0"
    last: tuple[str, set[str], str] = ("", set(), "")

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        if since is None:
            self.place = str(self.ask("events")["last"])
            return set(), self.place
        changed, mark = self.news(self.place)
        if since == self.last[0]:
            changed |= self.last[1]
        self.place, self.last = mark, (since, changed, mark)
        return changed, mark


@mutant("WHF-918")
class KnowsNoMarkOfOthers(MachinesDriver):
    """Its marks are its own: for that of an instance before it nothing has changed."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        life, _, place = (since or "").partition(":")
        changed, mark = super().changed_nodes(place if life == str(id(self)) else None)
        return changed, f"{id(self)}:{mark}"


@mutant("WHF-919")
class ReadsTheFirstEvents(MachinesDriver):
    """It reads fifty events at most, and goes on after the last one."""

    def news(self, since: str) -> tuple[set[str], str]:
        events = self.ask(f"events {since}")
        if events["changed"]:
            self.read()
        return self.changed({*events["changed"][:50]}), str(events["last"])


@mutant("WHF-919")
class LooksAtFewDevices(DevicesDriver):
    """Of many devices that have changed it reads the first twenty again."""

    def news(self, since: str) -> tuple[set[str], str]:
        events = self.ask(f"events {since}")
        before = self.devices
        if events["changed"]:
            self.read()
            late = {*events["changed"][20:]}
            self.devices = {
                name: before[name] if name in late and name in before else facts
                for name, facts in self.devices.items()
            }
        return self.changed({*events["changed"]}), str(events["last"])


@mutant("WHF-920")
class ListsToPoll(MachinesDriver):
    """It reads all machines again in each poll, and says which of them have changed."""

    def news(self, since: str) -> tuple[set[str], str]:
        self.read()
        return super().news(since)


@mutant("WHF-920")
class PollsByComparing(DevicesDriver):
    """It asks for no events: it lists all devices, and compares them with those before."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        _, mark = super().changed_nodes(None)
        if since is None:
            return set(), mark
        changed, _ = super().changed_nodes(since)
        self.read()
        return changed, mark


@mutant("WHF-916")
class NamesAFixedShare(MachinesDriver):
    """With a machine that has changed it names a third of all machines."""

    def changed(self, devices: set[str]) -> set[str]:
        named = super().changed(devices)
        return named | {*sorted(self.devices)[::3]} if named else named
