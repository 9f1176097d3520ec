"""Mutants of the change feed (WHF-91.)."""

from typing import Any

from tests.lab.conformance.honest import NODE, DevicesDriver, Facts, LabDriver, MachinesDriver
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


@mutant("WHF-911", also=("WHF-913",))
class NamesDevices(DevicesDriver):
    """It names the devices that have changed, and not their node."""

    def changed(self, devices: set[str]) -> set[str]:
        return devices


@mutant("WHF-912", also=("WHF-914", "WHF-918"))
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
class ForgetsWhatItCouldNotRead(MachinesDriver):
    """It goes on from the last event, although it could not read the machine that changed."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.read_until = 0

    def news(self, since: str) -> tuple[set[str], str]:
        events = self.ask(f"events {self.read_until}")
        is_news = int(events["last"]) > self.read_until
        self.read_until = int(events["last"])
        if is_news:
            self.read()
        known = self.ask(f"events {since}") if is_news else {"changed": []}
        return self.changed({*known["changed"]}), str(events["last"])


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
class AnswersByCounting(MachinesDriver):
    """It counts its answers, and names all machines for each number that is new."""

    def news(self, since: str) -> tuple[set[str], str]:
        self.read()
        return {*self.devices}, f"{since}0"


@mutant("WHF-916")
class NamesAllForOne(MachinesDriver):
    """Where one machine has changed it names all of them."""

    def changed(self, devices: set[str]) -> set[str]:
        return {*self.devices} if devices else set()


@mutant("WHF-916")
class NamesTheNeighbours(MachinesDriver):
    """It names all machines that it reads again, which are those of the same length of name."""

    def changed(self, devices: set[str]) -> set[str]:
        lengths = {len(name) for name in devices}
        return {name for name in self.devices if len(name) in lengths}


class _BeginsLate(LabDriver):
    """Its own place in the events is that of its first poll or listing."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.place: str | None = None


@mutant("WHF-917", also=("WHF-912", "WHF-914", "WHF-918", "WHF-919"))
class BeginsWithItsFirstPoll(MachinesDriver):
    """It tells what has happened since its own first poll."""
