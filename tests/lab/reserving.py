"""Help tests of reservations: drivers that reserve, writes of other owners, and crashes."""

import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from subprocess import PIPE, Popen
from threading import Lock
from typing import Any, ClassVar, Final

import fixtures
from oslo_utils.uuidutils import is_uuid_like

from tests.lab.cycles import HOST, Publishing, contents
from tests.lab.database_writes import name_of
from tests.lab.drivers import Edit, ScriptedDriver
from tests.lab.placement import PlacementFixture, adapter_to
from tests.lab.sqlite import WithoutSync
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.driver import SUPPORTED, Allocations, Capabilities
from wharfinger.exceptions import (
    ConcurrentSave,
    ConcurrentUpdate,
    ObjectExists,
    ObjectNotFound,
)
from wharfinger.objects import (
    Context,
    ProviderRecordList,
    RecordBatch,
    Reservation,
    ReservationList,
)
from wharfinger.objects.database_context import local
from wharfinger.placement.model import ProviderSummary
from wharfinger.providers import Inventory, ProviderTree, PublishingMode
from wharfinger.reconcile.reserve_and_release import Reservations

#: Total and reserved amount, by resource class.
Figures = Mapping[str, tuple[int, int]]


class ReservingDriver(ScriptedDriver):
    """A driver that reserves the providers for which the test has set reasons with ``says``.

    It sees new reasons in its next listing or poll. Its change feed names the nodes whose reasons
    have changed. ``meanwhile`` is called once in the next listing or poll, for other programs.
    """

    capabilities: ClassVar[Capabilities] = replace(
        ScriptedDriver.capabilities, change_feed=SUPPORTED
    )

    def __init__(self, name: str = "scripted") -> None:
        super().__init__(name)
        self._reasons: dict[str, dict[str, tuple[str, ...]]] = {}
        self._seen: dict[str, dict[str, tuple[str, ...]]] = {}
        self._changed: list[str] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def says(self, node: str, provider: str, *reasons: str) -> None:
        """Set the reasons to reserve a provider of a node, from the next listing or poll on."""
        self._reasons.setdefault(node, {})[provider] = reasons
        self._changed.append(node)

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        names = super().get_available_nodes(refresh)
        self._look(names)
        return names

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        start = len(self._changed) if since is None else int(since)
        changed = set(self._changed[start:]) & self.nodes.keys()
        self._look(changed)
        return changed, str(len(self._changed))

    def update_provider_tree(
        self,
        provider_tree: ProviderTree,
        nodename: str,
        allocations: Allocations | None = None,
        migrations: Any = None,
    ) -> None:
        super().update_provider_tree(provider_tree, nodename, allocations, migrations)
        for provider, reasons in self._seen.get(nodename, {}).items():
            for reason in reasons:
                provider_tree.reserve(provider, reason)

    def _look(self, nodes: Any) -> None:
        self._seen.update({node: dict(self._reasons.get(node, {})) for node in nodes})
        act, self.meanwhile = self.meanwhile, lambda: None
        act()


class CleaningDriver(ReservingDriver):
    """A driver with the capability cleans_after_release; ``clean`` has the uuids of clean ones.

    ``asked`` has the arguments of the calls of is_clean.
    """

    capabilities: ClassVar[Capabilities] = replace(
        ReservingDriver.capabilities, cleans_after_release=SUPPORTED
    )

    def __init__(self, name: str = "scripted") -> None:
        super().__init__(name)
        self.clean: set[str] = set()
        self.asked: list[tuple[str, datetime]] = []

    def is_clean(self, provider_uuid: str, since: datetime) -> bool:
        self.asked.append((provider_uuid, since))
        return provider_uuid in self.clean


def drives(publishing: Publishing, driver: ScriptedDriver) -> None:
    """Replace the driver of ``publishing``, and create its cycle anew, as in a new process."""
    publishing.driver = driver
    publishing.restarted()


def node(root: Figures, **children: Figures) -> Edit:
    """Return an edit that gives a node these inventories, and exactly these children."""

    def edit(tree: ProviderTree, name: str, allocations: Allocations | None) -> None:
        _report(tree, name, root)
        for uuid in tree.get_provider_uuids(name)[1:]:
            if tree.exists(uuid) and tree.data(uuid).name not in children:
                tree.remove(uuid)
        for child, figures in children.items():
            if not tree.exists(child):
                tree.new_child(child, name)
            _report(tree, child, figures)

    return edit


def overlaid(tree: ProviderTree, name: str, allocations: Allocations | None) -> None:
    """Edit that sets a node to overlay mode, since another owner publishes its inventory."""
    tree.set_publishing_mode(name, PublishingMode.OVERLAY)
    tree.update_traits(name, [])


def _report(tree: ProviderTree, provider: str, figures: Figures) -> None:
    tree.update_inventory(
        provider,
        {
            kind: {"total": total, "reserved": reserved}
            for kind, (total, reserved) in figures.items()
        },
    )


def summary(placement: PlacementFixture, name: str) -> ProviderSummary:
    """Return uuid, generation and parents of the provider with this name."""
    [found] = placement.client.list_providers(name=name)
    return found


def writes(placement: PlacementFixture, name: str, /, **figures: tuple[int, int]) -> None:
    """Replace the inventories of a provider as another owner would, such as Cyborg."""
    client, uuid = placement.client, summary(placement, name).uuid
    client.set_inventories(
        uuid,
        client.get_inventories(uuid).resource_provider_generation,
        {
            kind: Inventory(total=total, reserved=reserved)
            for kind, (total, reserved) in figures.items()
        },
    )


def makes(placement: PlacementFixture, name: str, /, **figures: tuple[int, int]) -> str:
    """Create a provider as another owner would; return its uuid."""
    uuid = placement.client.create_provider(_uuid_of(name), name, None).uuid
    for resource_class in figures:
        if resource_class.startswith("CUSTOM_"):
            placement.client.create_resource_class(resource_class)
    writes(placement, name, **figures)
    return uuid


def _uuid_of(name: str) -> str:
    """Return a uuid made of a provider's name, or the name itself if it is a uuid."""
    if is_uuid_like(name):
        return name
    return f"00000000-0000-4000-8000-{name.encode().hex().zfill(12)[:12]}"


def figures(placement: PlacementFixture, name: str) -> Figures:
    """Return total and reserved amount of a provider in Placement by class."""
    found: Figures = contents(placement)[name]["inventories"]
    return found


def is_full(placement: PlacementFixture, name: str) -> bool:
    """Return whether all inventory of a provider is reserved in Placement."""
    return all(total == reserved for total, reserved in figures(placement, name).values())


def is_candidate(client: WritingClient, uuid: str, kind: str) -> bool:
    """Return whether Placement could allocate one unit of a class from a provider."""
    return any(one.uuid == uuid for one in client.list_providers(resources={kind: 1}))


def rows(context: Context) -> dict[tuple[str, str], Reservation]:
    """Return the reservations in the database, by provider uuid and holder."""
    return {(one.provider_uuid, one.holder): one for one in ReservationList.get_by_filters(context)}


def lose_records(publishing: Publishing) -> None:
    """Delete the records of a driver instance's providers, and create its cycle anew."""
    instance = publishing.publisher.instance
    found = ProviderRecordList.get_by_filters(
        publishing.context, host=HOST, driver_instance=instance
    )
    uuids = [one.provider_uuid for one in found]
    assert uuids
    ProviderRecordList.replace(
        publishing.context, HOST, instance, ProviderRecordList(objects=[]), uuids
    )
    publishing.restarted()


class Crash(BaseException):
    """Simulates the end of the process at a boundary."""


#: Methods that write reservations.
_WRITES: Final = (
    (Reservation, ("create", "save", "destroy")),
    (ReservationList, ("create", "save", "destroy")),
)


class Passing(fixtures.Fixture):
    """Counts boundaries, which subclasses place before and after steps of the tested code.

    ``passed`` has the names of the boundaries so far. At the boundary ``crash_at``, counted from 0,
    Crash is raised. At ``act_at``, ``act`` is called; its own steps have no boundaries.
    """

    def __init__(
        self,
        placement: PlacementFixture,
        *,
        crash_at: int | None = None,
        act_at: int | None = None,
        act: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__()
        self._placement = placement
        self._crash_at = crash_at
        self._act_at = act_at
        self._act = act
        self._acting = False
        self.passed: list[str] = []

    def _reach(self, name: str) -> None:
        if self._acting:
            return
        number = len(self.passed)
        self.passed.append(name)
        if number == self._crash_at:
            raise Crash(name)
        if number == self._act_at:
            self._acting = True
            try:
                self._act()
            finally:
                self._acting = False


class Steps(Passing):
    """Boundaries before and after each write to Placement, of reservations and of records."""

    def _setUp(self) -> None:
        adapter = self._placement.adapter
        before, after = adapter.before, adapter.after
        adapter.before = lambda method, path: self._request("before", method, path)
        adapter.after = lambda method, path: self._request("after", method, path)
        self.addCleanup(setattr, adapter, "before", before)
        self.addCleanup(setattr, adapter, "after", after)
        for kind, names in _WRITES:
            for name in names:
                self._replace(kind, name, self._around(kind, name))
        self._replace(RecordBatch, "save", self._around(RecordBatch, "save"))

    def _replace(self, kind: type, name: str, new: Any) -> None:
        old = kind.__dict__.get(name)
        setattr(kind, name, new)
        self.addCleanup(
            *((delattr, kind, name) if old is None else (setattr, kind, name, old)),
        )

    def _around(self, kind: type, name: str) -> Callable[..., Any]:
        write = getattr(kind, name)

        def written(*args: Any) -> Any:
            what = f"{kind.__name__}.{name}"
            if isinstance(args[0], RecordBatch):
                what += f" ({name_of(args[0])})"
            self._reach(f"before {what}")
            answer = write(*args)
            self._reach(f"after {what}")
            return answer

        return written

    def _request(self, when: str, method: str, path: str) -> None:
        # Also after reads, if another actor acts: it may change Placement after a read.
        if method != "GET" or (when == "after" and self._act_at is not None):
            self._reach(f"{when} {method} {path}")


def holds_at_random(
    holds: Reservations, providers: Sequence[ProviderSummary], holders: Sequence[str], seed: int
) -> Iterator[str]:
    """Reserve and release random providers for ever; yield "done" or the error of each attempt."""
    choose = random.Random(seed)
    while True:
        provider, holder = choose.choice(providers), choose.choice(holders)
        try:
            if choose.random() < 0.5:
                holds.reserve(provider, holder=holder, reason="at random")
            else:
                holds.release(provider, holder)
        except (ConcurrentSave, ConcurrentUpdate, ObjectExists, ObjectNotFound) as error:
            yield type(error).__name__
        else:
            yield "done"


def hold_in_a_process() -> None:
    """Reserve and release random providers in this process until it is killed; print results."""
    url, state, seed, *names = sys.argv[1:]
    with WithoutSync():
        client = WritingClient(adapter_to(url))
        providers = [one for one in client.list_providers() if one.name in names]
        holds = Reservations(client, local(Path(state), HOST))
        for what in holds_at_random(holds, providers, [f"process {seed}", "both"], int(seed)):
            print(what, flush=True)


def start_holding(url: str, state: Path, seed: int, names: Sequence[str]) -> Popen[str]:
    """Start a process that reserves and releases random providers; see ``hold_in_a_process``."""
    return Popen(
        [
            *(sys.executable, "-c", f"import {__name__} as lab; lab.hold_in_a_process()"),
            *(url, str(state), str(seed), *names),
        ],
        cwd=Path(__file__).resolve().parents[2],
        stdout=PIPE,
        text=True,
    )


@contextmanager
def seen_free(placement: PlacementFixture, uuid: str, kind: str) -> Iterator[list[str]]:
    """Yield a list that gets each request before or after which a provider was not reserved.

    Not reserved means that Placement could allocate one unit of the class.
    """
    looker, adapter = placement.new_client(), placement.adapter
    looking, free = Lock(), list[str]()

    def look(when: str, method: str, path: str) -> None:
        if looking.acquire(blocking=False):
            try:
                if is_candidate(looker, uuid, kind):
                    free.append(f"{when} {method} {path}")
            finally:
                looking.release()

    before, after = adapter.before, adapter.after
    adapter.before = lambda method, path: look("before", method, path)
    adapter.after = lambda method, path: look("after", method, path)
    try:
        yield free
    finally:
        adapter.before, adapter.after = before, after
