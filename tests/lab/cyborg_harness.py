"""A real Cyborg that tests share, and the Placement that it reports to.

A Cyborg takes seconds to come up: each test begins with what the hosts have anew.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import fixtures

from tests.lab.between import Between
from tests.lab.cycles import everything
from tests.lab.placement import PlacementFixture, Requests, adapter_to, empty, over_http
from wharfinger.placement import survey
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.embedded import EmbeddedPlacement
from wharfinger.providers import Inventory
from wharfinger_harnesses.cyborg import Cyborg, Part
from wharfinger_harnesses.daemons import PythonDaemon

NOVA: Final = "OWNER_NOVA"
OURS: Final = "OWNER_CYBORG"
#: What an instance called fpga marks its providers with.
MARKS: Final = frozenset({OURS, "CUSTOM_WHARFINGER_FPGA"})
#: Where a Cyborg's URL ends.
MOUNTED_AT: Final = "/accelerator/v2"
#: The requests of a listing, in their order.
LISTING: Final = (
    f"{MOUNTED_AT}/deployables",
    f"{MOUNTED_AT}/accelerator_requests",
    f"{MOUNTED_AT}/devices",
)
_SECOND: Final = """\
[api]
auth_strategy = noauth2

[placement_database]
connection = sqlite:///{directory}/placement.sqlite
sync_on_startup = true
"""

#: Everything in Placement, by provider name.
Contents = dict[str, dict[str, Any]]


class SecondPlacement(PythonDaemon):
    """Another Placement, in a process of its own, that has the roots of hosts."""

    url: str

    def __init__(self, *hosts: str) -> None:
        super().__init__()
        self._hosts = hosts

    def _setUp(self) -> None:
        super()._setUp()
        (self.directory / "placement.conf").write_text(_SECOND.format(directory=self.directory))
        self.start_program(Path(__file__).with_name("placement_service.py"))
        self.url = f"http://127.0.0.1:{(self.directory / 'port').read_text()}"
        client = PlacementClient(adapter_to(self.url))
        for host in self._hosts:
            create_root(client, host)


class _Guarded:
    """Placement for others, one request at a time."""

    def __init__(self, service: EmbeddedPlacement, lock: threading.Lock) -> None:
        self._service = service
        self._lock = lock

    def application(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        with self._lock:
            answer: Iterable[bytes] = self._service.application(environ, start_response)
            return answer


@dataclass(frozen=True)
class Write:
    """A request, and everything in Placement before and after it."""

    request: str
    before: Contents
    after: Contents

    @property
    def harm(self) -> list[str]:
        """What it has changed that is Cyborg's, or nova's."""
        return [
            f"{self.request}: {name}"
            for name in self.before.keys() | self.after.keys()
            if _theirs(self.before.get(name)) != _theirs(self.after.get(name))
        ]


def _theirs(one: Mapping[str, Any] | None) -> Any:
    """What is not ours of a provider: all but our marks, and how much is reserved."""
    return one and {
        **one,
        "traits": one["traits"] - MARKS,
        "inventories": {kind: total for kind, (total, _) in one["inventories"].items()},
    }


class Harness(fixtures.Fixture):
    """A real Cyborg that reports to the real Placement of this process, and what is between.

    It has the roots of the hosts. With ``reports_to`` Cyborg reports to another, at that URL.

    ``placement`` is for everybody else: ``cyborgs`` are the requests that were made over HTTP.
    ``between`` is where instances find Cyborg.
    """

    placement: PlacementFixture
    cyborgs: Requests
    placement_url: str

    def __init__(
        self, service: EmbeddedPlacement, *hosts: str, reports_to: str | None = None, **how: Any
    ) -> None:
        super().__init__()
        self._service = service
        self.hosts = hosts
        self._reports_to = reports_to
        self._how = how

    def _setUp(self) -> None:
        self.placement = self.useFixture(PlacementFixture(self._service))
        self._one_at_a_time = threading.Lock()
        serving = over_http(_Guarded(self._service, self._one_at_a_time))  # type: ignore[arg-type]
        self.placement_url, self.cyborgs = serving.__enter__()
        self.addCleanup(serving.__exit__, None, None, None)
        self._client = PlacementClient(adapter_to(self.placement_url))
        for host in self.hosts:
            create_root(self._client, host)
        placement = self._reports_to or self.placement_url
        self.cyborg = self.useFixture(Cyborg(placement, hosts=self.hosts, **self._how))
        self.between = self.useFixture(Between(self.cyborg.url.removesuffix(MOUNTED_AT)))
        self.url = f"{self.between.url}{MOUNTED_AT}"

    def begin(self, *devices: Part, more: Mapping[str, Iterable[Part]] | None = None) -> None:
        """Have Placement hold nothing but what Cyborg reports of these devices anew.

        They are the first host's; ``more`` are those of others.
        """
        self.between.expect()
        empty()
        for host in self.hosts:
            create_root(self._client, host)
        self.cyborg.execute("DELETE FROM extended_accelerator_requests")
        wanted = {self.hosts[0]: devices, **(more or {})}
        if self._reports_to is None or any(
            self.cyborg.hardware(host) != [*wanted.get(host, ())] for host in self.hosts
        ):
            self._report({})
            self._report(wanted)
        self.cyborgs.clear()

    def _report(self, wanted: Mapping[str, Iterable[Part]]) -> None:
        """Have Cyborg find these devices and no others, where there are others."""
        for host in self.hosts:
            its = [*wanted.get(host, ())]
            if self.cyborg.hardware(host) != its:
                self.cyborg.set_hardware(*its, host=host)
                self.cyborg.discover(host)

    @contextmanager
    def watching(self) -> Iterator[list["Write"]]:
        """Look at everything before and after each write that is not Cyborg's.

        Cyborg's own requests wait meanwhile.
        """
        adapter = self.placement.adapter
        looks: list[Contents] = []
        writes: list[Write] = []

        def before(method: str, path: str) -> None:
            self._one_at_a_time.acquire()
            looks.append(everything())

        def after(method: str, path: str) -> None:
            look = looks.pop()
            if method != "GET":
                writes.append(Write(f"{method} {path}", look, everything()))
            self._one_at_a_time.release()

        adapter.before, adapter.after = before, after
        try:
            yield writes
        finally:
            adapter.before = adapter.after = lambda method, path: None

    def uuid(self, bus: str, name: str = "r0", host: str | None = None) -> str:
        """The uuid of a deployable's provider."""
        return str(self.cyborg.deployable(bus, name, host)["rp_uuid"])

    def name(self, bus: str, name: str = "r0", host: str | None = None) -> str:
        return f"{host or self.hosts[0]}_{bus}_{name}"


def create_root(client: PlacementClient, host: str) -> None:
    """Have nova publish a host."""
    create(client, host, None, {"VCPU": 8}, {NOVA, "COMPUTE_NODE"})


def create(
    client: PlacementClient,
    name: str,
    parent: str | None,
    totals: Mapping[str, int],
    traits: Iterable[str],
) -> str:
    """Have somebody publish a provider below that of a name; returns its uuid."""
    above = None if parent is None else survey.find(client, parent).uuid
    made = client.create_provider(str(uuid4()), name, above)
    inventories = {kind: Inventory(total=total) for kind, total in totals.items()}
    client.set_inventories(made.uuid, made.generation, inventories)
    add_traits(client, made.uuid, *traits)
    return made.uuid


def add_traits(client: PlacementClient, uuid: str, *traits: str) -> None:
    """Have somebody add traits to a provider."""
    change_traits(client, uuid, client.get_traits(uuid).traits.union(traits))


def change_traits(client: PlacementClient, uuid: str, traits: Iterable[str]) -> None:
    """Have a provider have these traits."""
    generation = client.get_traits(uuid).resource_provider_generation
    wanted = frozenset(traits)
    for trait in sorted(wanted):
        if trait.startswith("CUSTOM_"):
            client.create_trait(trait)
    client.set_traits(uuid, generation, wanted)
