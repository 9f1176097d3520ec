"""Mutants that break the rules on the change feed (WHF-91x)."""

from contextlib import suppress
from typing import Any

from tests.lab.conformance.honest import NODE, DevicesDriver, Facts, MachinesDriver
from tests.lab.conformance.mutants import mutant
from wharfinger.exceptions import BackendError


@mutant("WHF-911")
class NamesNothing(DevicesDriver):
    """Requests the events, but names no node."""

    def news(self, since: str) -> tuple[set[str], str]:
        return set(), super().news(since)[1]


@mutant("WHF-911")
class NamesWithoutALook(MachinesDriver):
    """Names the changed nodes, but describes them as before."""

    def news(self, since: str) -> tuple[set[str], str]:
        events = self.ask(f"events {since}")
        return self.changed({*events["changed"]}), str(events["last"])


@mutant("WHF-911")
class NamesDevices(DevicesDriver):
    """Names the changed devices instead of their node."""

    def changed(self, devices: set[str]) -> set[str]:
        return devices


@mutant("WHF-912")
class NamesOnce(DevicesDriver):
    """Names the nodes of an event only once, also if it is asked with the same mark again."""

    def news(self, since: str) -> tuple[set[str], str]:
        changed, mark = super().news(since)
        if mark in self.noted:
            return set(), mark
        self.noted.add(mark)
        return changed, mark


@mutant("WHF-913")
class NamesWhatIsGone(MachinesDriver):
    """Names every machine with an event, also removed ones."""

    def changed(self, devices: set[str]) -> set[str]:
        return devices


@mutant("WHF-914")
class TakesSilenceForPeace(DevicesDriver):
    """Names no node if the backend does not answer, and raises no error."""

    def news(self, since: str) -> tuple[set[str], str]:
        try:
            return super().news(since)
        except BackendError:
            return set(), since


@mutant("WHF-914")
class ReadsNoNewsFromAnError(MachinesDriver):
    """Takes an error answer for an answer without events."""

    def refused(self, words: str, answer: Facts) -> Any:
        if words.startswith("events"):
            return {"changed": [], "last": words.removeprefix("events").strip() or "0"}
        return super().refused(words, answer)


@mutant("WHF-914")
class NamesWhatItCouldNotRead(DevicesDriver):
    """Names the changed nodes although reading them failed, and describes them as before."""

    def news(self, since: str) -> tuple[set[str], str]:
        events = self.ask(f"events {since}")
        if events["changed"]:
            with suppress(BackendError):
                self.read()
        return self.changed({*events["changed"]}), str(events["last"])


@mutant("WHF-915")
class NamesItsNodeAlways(DevicesDriver):
    """Names its only node in each poll."""

    def changed(self, devices: set[str]) -> set[str]:
        return {NODE}


@mutant("WHF-915")
class KeepsItsMark(MachinesDriver):
    """Returns the same mark that it was given, so that it names old events again."""

    def news(self, since: str) -> tuple[set[str], str]:
        return super().news(since)[0], since


@mutant("WHF-915")
class NamesAllNowAndThen(MachinesDriver):
    """Names all machines in every third poll."""

    polls = 0

    def news(self, since: str) -> tuple[set[str], str]:
        changed, mark = super().news(since)
        self.polls += 1
        return changed if self.polls % 3 else {*self.devices}, mark


@mutant("WHF-916")
class NamesAllForOne(MachinesDriver):
    """Names all machines if one has changed."""

    def changed(self, devices: set[str]) -> set[str]:
        return {*self.devices} if devices else set()


@mutant("WHF-916")
class NamesWhatComesAfter(MachinesDriver):
    """Names all machines in the list from the first changed one on."""

    def changed(self, devices: set[str]) -> set[str]:
        names = [*self.devices]
        return {*names[min((names.index(one) for one in devices & {*names}), default=len(names)) :]}


@mutant("WHF-917")
class BeginsWithItsFirstPoll(DevicesDriver):
    """Names only what has changed since its own first poll, whatever the mark."""

    first: str | None = None

    def news(self, since: str) -> tuple[set[str], str]:
        self.first = self.first or str(self.ask("events")["last"])
        return super().news(max(since, self.first, key=int))


@mutant("WHF-917")
class NamesNothingAtFirst(MachinesDriver):
    """Names no node in its first poll."""

    has_polled = False

    def news(self, since: str) -> tuple[set[str], str]:
        changed, mark = super().news(since)
        is_first, self.has_polled = not self.has_polled, True
        return set() if is_first else changed, mark


@mutant("WHF-918")
class RemembersOneMark(MachinesDriver):
    """Keeps its own position among the events; repeats only its last answer for a repeated mark."""

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
    """Names no node for a mark of an earlier instance."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        life, _, place = (since or "").partition(":")
        changed, mark = super().changed_nodes(place if life == str(id(self)) else None)
        return changed, f"{id(self)}:{mark}"


@mutant("WHF-919")
class ReadsTheFirstEvents(MachinesDriver):
    """Names the nodes of only the first fifty events, but returns the mark after the last one."""

    def news(self, since: str) -> tuple[set[str], str]:
        events = self.ask(f"events {since}")
        if events["changed"]:
            self.read()
        return self.changed({*events["changed"][:50]}), str(events["last"])


@mutant("WHF-919")
class LooksAtFewDevices(DevicesDriver):
    """Reads only the first twenty of many changed devices again."""

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
    """Lists all machines in each poll."""

    def news(self, since: str) -> tuple[set[str], str]:
        self.read()
        return super().news(since)


@mutant("WHF-920")
class PollsByComparing(DevicesDriver):
    """Lists all devices in each poll, before it requests the events."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        _, mark = super().changed_nodes(None)
        if since is None:
            return set(), mark
        changed, _ = super().changed_nodes(since)
        self.read()
        return changed, mark


@mutant("WHF-916")
class NamesAFixedShare(MachinesDriver):
    """Names a third of all machines if one has changed."""

    def changed(self, devices: set[str]) -> set[str]:
        named = super().changed(devices)
        return named | {*sorted(self.devices)[::3]} if named else named


@mutant("WHF-911")
class FindsNoOtherDevices(DevicesDriver):
    """Reads only the devices that it knows again in a poll, and leaves new devices out."""

    def news(self, since: str) -> tuple[set[str], str]:
        known = {*self.devices}
        changed, mark = super().news(since)
        self.devices = {name: one for name, one in self.devices.items() if name in known}
        return changed, mark


@mutant("WHF-917")
class AsksForTheMarkLast(DevicesDriver):
    """Requests the next mark only after it has read the devices, and so loses events between."""

    def news(self, since: str) -> tuple[set[str], str]:
        changed, _ = super().news(since)
        return changed, str(self.ask("events")["last"])


@mutant("WHF-919")
class ComparesEventsWithEachOther(MachinesDriver):
    """Compares each event with all earlier events."""

    def news(self, since: str) -> tuple[set[str], str]:
        events = self.ask(f"events {since}")["changed"]
        seen: list[tuple[int, str]] = []
        for event in enumerate(events):
            assert event not in seen
            seen.append(event)
        return super().news(since)
