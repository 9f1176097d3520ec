"""A real Cyborg that tests share, and the Placement to which it reports.

Tests share it, since a Cyborg takes seconds to start. Each test begins with new devices.
"""

import json
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import fixtures

from tests.lab.between import Between, forward
from tests.lab.cycles import everything
from tests.lab.placement import PlacementFixture, Requests, adapter_to, empty, over_http
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.placement.embedded import EmbeddedPlacement
from wharfinger.providers import Inventory
from wharfinger.scheduling import provider_details
from wharfinger_harnesses.cyborg import Cyborg, Part
from wharfinger_harnesses.daemons import PythonDaemon

NOVA: Final = "OWNER_NOVA"
OURS: Final = "OWNER_CYBORG"
#: The owner trait and the instance trait of a driver instance named fpga.
MARKS: Final = frozenset({OURS, "CUSTOM_WHARFINGER_FPGA"})
#: The path of Cyborg's API in its URL.
MOUNTED_AT: Final = "/accelerator/v2"
#: The requests of one listing by the Cyborg driver, in order.
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

#: Contents of Placement by provider name.
Contents = dict[str, dict[str, Any]]


class SecondPlacement(PythonDaemon):
    """Another Placement, in its own process, with a root provider for each of these hosts."""

    url: str

    def __init__(self, *hosts: str) -> None:
        super().__init__()
        self._hosts = hosts

    def _setUp(self) -> None:
        super()._setUp()
        (self.directory / "placement.conf").write_text(_SECOND.format(directory=self.directory))
        self.start_program(Path(__file__).with_name("placement_service.py"))
        self.url = f"http://127.0.0.1:{(self.directory / 'port').read_text()}"
        client = WritingClient(adapter_to(self.url))
        for host in self._hosts:
            create_root(client, host)


class _Guarded:
    """A WSGI application that passes one request at a time to this process's Placement."""

    def __init__(self, service: EmbeddedPlacement, lock: threading.Lock) -> None:
        self._service = service
        self._lock = lock

    def application(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        with self._lock:
            answer: Iterable[bytes] = self._service.application(environ, start_response)
            return answer


@dataclass(frozen=True)
class Write:
    """A writing request to Placement, and the contents of Placement before and after it."""

    request: str
    before: Contents
    after: Contents

    @property
    def harm(self) -> list[str]:
        """The providers of which the request has changed a value that Cyborg or nova owns."""
        return [
            f"{self.request}: {name}"
            for name in self.before.keys() | self.after.keys()
            if _theirs(self.before.get(name)) != _theirs(self.after.get(name))
        ]


def _theirs(one: Mapping[str, Any] | None) -> Any:
    """Return a provider without what Wharfinger may change: MARKS and the reserved amounts."""
    return one and {
        **one,
        "traits": one["traits"] - MARKS,
        "inventories": {kind: total for kind, (total, _) in one["inventories"].items()},
    }


class _Elsewhere:
    """A WSGI application for Cyborg's requests to Placement.

    They go to this process's Placement, or to the one at ``url`` if that is set.
    """

    def __init__(self, here: _Guarded) -> None:
        self._here = here
        self.url: str | None = None

    def application(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if self.url is not None:
            return [forward(self.url, environ, start_response)]
        return self._here.application(environ, start_response)


class Harness(fixtures.Fixture):
    """A real Cyborg that reports to the real Placement of this process, with proxies between.

    ``begin`` resets both before a test. ``placement`` has the client of the tests, ``cyborgs`` the
    requests by Cyborg. Driver instances reach Cyborg through the proxy ``between``. Other processes
    reach Placement at ``placement_url``.
    """

    placement: PlacementFixture
    cyborgs: Requests
    placement_url: str

    def __init__(self, service: EmbeddedPlacement, *hosts: str) -> None:
        super().__init__()
        self._service = service
        self.hosts = hosts

    def _setUp(self) -> None:
        self._one_at_a_time = threading.Lock()
        guarded = _Guarded(self._service, self._one_at_a_time)
        self._reports_to = _Elsewhere(guarded)
        self.placement_url, _ = self._serve(guarded)
        of_cyborg, self.cyborgs = self._serve(self._reports_to)
        self._client = WritingClient(adapter_to(self.placement_url))
        self._empty(*self.hosts)
        self.cyborg = self.useFixture(Cyborg(of_cyborg, hosts=self.hosts))
        self.between = self.useFixture(Between(self.cyborg.url.removesuffix(MOUNTED_AT)))
        self.url = f"{self.between.url}{MOUNTED_AT}"

    def _serve(self, application: Any) -> tuple[str, Requests]:
        serving = over_http(application)
        served = serving.__enter__()
        self.addCleanup(serving.__exit__, None, None, None)
        return served

    def begin(
        self,
        *devices: Part,
        more: Mapping[str, Iterable[Part]] | None = None,
        reports_to: str | None = None,
    ) -> None:
        """Reset Cyborg and Placement, and let Cyborg report these devices.

        ``devices`` belong to the first host, ``more`` to other hosts. Each host gets a root
        provider. With ``reports_to``, Cyborg reports to the Placement at that URL, which already
        has root providers.
        """
        self.placement = PlacementFixture(self._service)
        self.placement.setUp()
        wanted = {self.hosts[0]: [*devices], **{host: [*its] for host, its in (more or {}).items()}}
        self._empty(*self.hosts)
        self._stop_all()
        self.between.expect()
        is_so = all(self.cyborg.hardware(host) == wanted.get(host, []) for host in self.hosts)
        if reports_to is None or self._reports_to.url != reports_to or not is_so:
            self._forget_devices()
            self._reports_to.url = reports_to
            self._empty(*wanted)
            self.report(wanted)
        else:
            self._empty(*wanted)
        self.cyborgs.clear()

    def _stop_all(self) -> None:
        """Start Cyborg if it has stopped; end programmings, and delete requests and images."""
        cyborg = self.cyborg
        if cyborg.process.poll() is not None:
            cyborg.start_again()
        programmings = cyborg.directory / "programmings"
        if programmings.exists():
            events = [json.loads(line) for line in programmings.read_text().splitlines()]
            for host, bus in {(one["host"], one["bus"]) for one in events}:
                for _ in cyborg.underway(bus, host):
                    cyborg.go(bus, host)
                if cyborg.underway(bus, host):
                    cyborg.wait_until_programmed(bus, host)
            programmings.unlink()
        for left in (*cyborg.directory.glob("go/*/*"), *cyborg.directory.glob("holds/*")):
            left.unlink()
        (cyborg.directory / "images.json").write_text("{}")
        cyborg.execute("DELETE FROM extended_accelerator_requests")
        cyborg.execute("DELETE FROM device_profiles")

    def start_again(self) -> None:
        """Start Cyborg again. Its agents need the root providers of all hosts for that moment."""
        there = {one.name for one in self._client.list_providers()}
        more = [create_root(self._client, host) for host in self.hosts if host not in there]
        self.cyborg.start_again()
        for uuid in more:
            self._client.delete_provider(uuid)

    def _empty(self, *hosts: str) -> None:
        """Empty Placement, and create the root providers of these hosts."""
        empty()
        for host in hosts:
            create_root(self._client, host)

    def _forget_devices(self) -> None:
        """Remove all devices from the hosts, and let Cyborg discover that."""
        names = [one["name"] for one in self.cyborg.deployables()]
        for host in self.hosts:
            if self.cyborg.hardware(host) or any(name.startswith(f"{host}_") for name in names):
                self.cyborg.set_hardware(host=host)
                self.cyborg.discover(host)

    def report(self, wanted: Mapping[str, Iterable[Part]]) -> None:
        """Replace the devices of each host, and let Cyborg discover and report them."""
        for host in self.hosts:
            its = [*wanted.get(host, ())]
            if self.cyborg.hardware(host) != its:
                self.cyborg.set_hardware(*its, host=host)
                self.cyborg.discover(host)

    @contextmanager
    def watching(self) -> Iterator[list["Write"]]:
        """Yield a list that gets each write to Placement by the tests' clients.

        Cyborg's requests wait while Placement is read before and after such a write.
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
        """Return the uuid of a deployable's provider."""
        return str(self.cyborg.deployable(bus, name, host)["rp_uuid"])

    def name(self, bus: str, name: str = "r0", host: str | None = None) -> str:
        return f"{host or self.hosts[0]}_{bus}_{name}"


def create_root(client: WritingClient, host: str) -> str:
    """Create the root provider of a host, as nova does; return its uuid."""
    return create(client, host, None, {"VCPU": 8}, {NOVA, "COMPUTE_NODE"})


def create(
    client: WritingClient,
    name: str,
    parent: str | None,
    totals: Mapping[str, int],
    traits: Iterable[str],
) -> str:
    """Create a provider below the provider named ``parent``, as another program would.

    Return the uuid of the new provider.
    """
    above = None if parent is None else provider_details.find(client, parent).uuid
    made = client.create_provider(str(uuid4()), name, above)
    inventories = {kind: Inventory(total=total) for kind, total in totals.items()}
    client.set_inventories(made.uuid, made.generation, inventories)
    add_traits(client, made.uuid, *traits)
    return made.uuid


def add_traits(client: WritingClient, uuid: str, *traits: str) -> None:
    """Add traits to a provider, as another program would."""
    change_traits(client, uuid, client.get_traits(uuid).traits.union(traits))


def change_traits(client: WritingClient, uuid: str, traits: Iterable[str]) -> None:
    """Replace the traits of a provider, as another program would."""
    generation = client.get_traits(uuid).resource_provider_generation
    wanted = frozenset(traits)
    for trait in sorted(wanted):
        if trait.startswith("CUSTOM_"):
            client.create_trait(trait)
    client.set_traits(uuid, generation, wanted)
