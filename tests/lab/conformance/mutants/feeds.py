"""Mutants of the change feed (WHF-91.)."""

from tests.lab.conformance.honest import DevicesDriver, MachinesDriver
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
