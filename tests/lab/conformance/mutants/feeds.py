"""Mutants of the change feed (WHF-91.)."""

from oslo_config import cfg

from tests.lab.conformance.honest import DevicesDriver, MachinesDriver
from tests.lab.conformance.mutants import mutant
from wharfinger.exceptions import BackendError


@mutant("WHF-911")
class NamesNothing(DevicesDriver):
    """It asks for what has happened, and names nothing."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        return set(), str(self.ask("events")["last"])


@mutant("WHF-911")
class NamesWithoutALook(MachinesDriver):
    """It names what has changed, and answers from what it knew before."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        events = self.ask("events" if since is None else f"events {since}")
        changed = set() if since is None else self.changed(set(events["changed"]))
        return changed, str(events["last"])


@mutant("WHF-912")
class NamesOnce(DevicesDriver):
    """It goes by a mark of its own, and tells each event once."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.mark: str | None = None

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        changed, self.mark = super().changed_nodes(since and self.mark)
        return changed, self.mark


@mutant("WHF-913")
class NamesWhatIsGone(MachinesDriver):
    """It names every machine of which there is an event."""

    def changed(self, devices: set[str]) -> set[str]:
        return devices


@mutant("WHF-914")
class TakesSilenceForPeace(DevicesDriver):
    """A backend that does not answer has no news."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        try:
            return super().changed_nodes(since)
        except BackendError:
            return set(), since or "0"
