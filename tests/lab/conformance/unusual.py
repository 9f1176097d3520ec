"""Drivers that do what few do, and that is right, with the rule that could take it for wrong."""

import threading
from collections.abc import Sequence
from typing import Any, ClassVar

from tests.lab.conformance.honest import DevicesDriver, Facts, LabDriver, MachinesDriver
from wharfinger.driver import Allocations
from wharfinger.objects import Migration, Service
from wharfinger.providers import ProviderTree


class EndsItsThreadSoon(DevicesDriver):
    """It has a thread that comes to its end a moment after it has been told to."""

    def init_host(self, service: Service) -> None:
        super().init_host(service)
        self.over = threading.Event()
        threading.Thread(target=self.watch, name="watching", daemon=True).start()

    def watch(self) -> None:
        self.over.wait()
        threading.Event().wait(0.2)

    def cleanup_host(self) -> None:
        self.over.set()


class LooksWhoLeaves(MachinesDriver):
    """It looks which of the moves leave a node, and what they take."""

    def update_provider_tree(
        self,
        provider_tree: ProviderTree,
        nodename: str,
        allocations: Allocations | None = None,
        migrations: Sequence[Migration] | None = None,
    ) -> None:
        ends = [(one.source_compute, one.source_node) for one in migrations or ()]
        assert all(end == (self.host, nodename) for end in ends)
        self.leaving = sum(one.old_flavor.vcpus for one in migrations or ())
        super().update_provider_tree(provider_tree, nodename, allocations, migrations)


class LooksAtEverySecondPoll(MachinesDriver):
    """It spares its backend: every other poll has no news, and the mark of before."""

    polls = 0

    def news(self, since: str) -> tuple[set[str], str]:
        self.polls += 1
        return super().news(since) if self.polls % 2 else (set(), since)


class RepeatsItsNews(MachinesDriver):
    """It names once more what was new at the poll before: its backend's clocks may differ."""

    before: frozenset[str] = frozenset()

    def news(self, since: str) -> tuple[set[str], str]:
        changed, mark = super().news(since)
        again, self.before = self.before, frozenset(changed)
        return self.changed(changed | again), mark


class RefusesMarksOfOthers(MachinesDriver):
    """It refuses a mark of an instance before it."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        life, _, place = (since or "").partition(":")
        if since is not None and life != str(id(self)):
            raise self.failed("events", ValueError("the mark is of another process"))
        changed, mark = super().changed_nodes(place or None)
        return changed, f"{id(self)}:{mark}"


class AsksTwice(MachinesDriver):
    """It asks again where one answer was an error."""

    def refused(self, words: str, answer: Facts) -> Any:
        if words in self.noted:
            return super().refused(words, answer)
        self.noted.add(words)
        try:
            return self.asked(words)
        finally:
            self.noted.remove(words)


class SortsItsMachines(MachinesDriver):
    """It sorts what it lists: n log n is no square."""

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        return sorted(super().get_available_nodes(refresh))


class HasManyMachines(MachinesDriver):
    """It has two thousand machines from the beginning."""

    has_many: ClassVar[bool] = True


UNUSUAL: Sequence[tuple[str, type[LabDriver]]] = [
    ("WHF-211", LooksWhoLeaves),
    ("WHF-401", HasManyMachines),
    ("WHF-451", AsksTwice),
    ("WHF-802", SortsItsMachines),
    ("WHF-804", EndsItsThreadSoon),
    ("WHF-806", HasManyMachines),
    ("WHF-914", AsksTwice),
    ("WHF-914", LooksAtEverySecondPoll),
    ("WHF-915", LooksAtEverySecondPoll),
    ("WHF-915", RepeatsItsNews),
    ("WHF-916", RepeatsItsNews),
    ("WHF-917", LooksAtEverySecondPoll),
    ("WHF-918", LooksAtEverySecondPoll),
    ("WHF-918", RefusesMarksOfOthers),
    ("WHF-919", RepeatsItsNews),
]
