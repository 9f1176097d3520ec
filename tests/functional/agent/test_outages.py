"""Outages of each dependency of an agent, of each kind, and their ends.

During an outage, all attempts fail in time, and nothing is removed. The log has one line when the
outage begins, and one when it ends. Afterwards the agent publishes what has changed meanwhile.

The tests divide an agent's usual intervals and time limits by about a hundred. A slow answer has
one byte in 0.1 s, and a request may take 2 s: only a deadline for the whole request ends it.

``DEPENDENCIES`` has all dependencies and the kinds of their outages. Databases and libvirt do not
speak HTTP, Keystone lists nothing, and SQLite is a file, so these have fewer kinds.
"""

import gc
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from tests.functional.agent.drivers import Fleet
from tests.functional.agent.running import Log, Running
from tests.functional.db.databases import Place
from tests.lab.cycles import everything
from tests.lab.faults import Interceptor
from tests.lab.libvirtd import Libvirtd
from tests.lab.outages import Address, Gate, Outage
from tests.lab.placement import PlacementFixture, over_http
from tests.lab.samples import uuid
from tests.lab.stub_service import StubService
from tests.lab.tokens import keystone
from tests.unit.cyborg.samples import HOST as CARD_HOST
from tests.unit.cyborg.samples import deployable
from tests.unit.ironic.samples import node
from wharfinger import agent, sqlite
from wharfinger.objects.database_context import connect
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.embedded import EmbeddedPlacement
from wharfinger.placement.session import make_adapter

#: Time limits in seconds of requests to the dependency that is away, and to the other ones.
TIME, LONG = 2.0, 60.0
OF_HTTP = tuple(Outage)
OF_KEYSTONE = tuple(one for one in Outage if one is not Outage.EMPTY)  # it lists nothing
OF_SOCKETS = (Outage.REFUSED, Outage.HANGING, Outage.WRONG, Outage.SLOW)
NODES = [uuid(f"node {number}") for number in range(3)]


class Watched(Running):
    """An agent with the configured client and database; its log has DEBUG records, too."""

    def _setUp(self) -> None:
        super()._setUp()
        self.log.setLevel(logging.DEBUG)
        logging.getLogger(agent.__name__).setLevel(logging.DEBUG)

    def run_with(self, *more: str, drivers: tuple[str, ...] = ()) -> None:
        """Run the agent until the end of the test."""
        configuration = self.configure(*more, drivers=drivers, poll=0.05, drift=0.2, full=0.3)
        context = connect(configuration.conf)
        self.addCleanup(context.close)
        adapter = make_adapter(configuration.conf)
        self.agent = self.make_agent(configuration, lambda: PlacementClient(adapter, 4), context)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self.addCleanup(self.stop)

    def lines_of(self, subject: str) -> list[str]:
        """Return the warnings and errors that the log has about this subject."""
        return [
            one.getMessage()
            for one in self.log.records(f"{subject}: ")
            if one.levelno >= logging.WARNING
        ]


@dataclass
class Away:
    """Functions that begin and end the outage, and the agent's configuration for the dependency.

    ``fleet`` is the backend that changes during the outage; None if the backend itself is away.
    """

    begin: Callable[[], object]
    end: Callable[[], object]
    options: list[str]
    drivers: tuple[str, ...] = ()
    fleet: Fleet | None = None


@dataclass
class Lab:
    """A directory, Placement and a backend, of which the dependencies of a test are made."""

    directory: Path
    service: EmbeddedPlacement
    fleet: Fleet
    request: pytest.FixtureRequest

    def placement_options(self, url: str, timeout: float = LONG) -> list[str]:
        return [
            f"[placement]\nembedded = false\nauth_type = admin_token\nendpoint = {url}",
            f"token = admin\nendpoint_override = {url}\ntimeout = {timeout}",
        ]


def _port(url: str) -> Address:
    return "127.0.0.1", int(url.rpartition(":")[2])


@contextmanager
def of_placement(lab: Lab, outage: Outage) -> Iterator[Away]:
    with over_http(lab.service) as (url, _), Gate(_port(url)) as gate:
        options = lab.placement_options(gate.url, TIME)
        yield _fleet(lab, Away(lambda: gate.begin(outage), gate.end, options))


@contextmanager
def of_keystone(lab: Lab, outage: Outage) -> Iterator[Away]:
    with (
        over_http(lab.service) as (url, _),
        Interceptor(keystone(url)) as issuer,
        Gate(_port(issuer.url)) as gate,
    ):
        options = [
            "[placement]\nembedded = false\nauth_type = password",
            f"auth_url = {gate.url}/v3\nusername = wharfinger\npassword = secret-of-lab",
            "project_name = service\nuser_domain_name = Default\nproject_domain_name = Default",
            f"timeout = {TIME}",
        ]
        yield _fleet(lab, Away(lambda: gate.begin(outage), gate.end, options))


@contextmanager
def of_postgresql(lab: Lab, outage: Outage) -> Iterator[Away]:
    url = sa.make_url(lab.request.getfixturevalue("postgresql").create_database())
    directory = Path(str(url.query["host"]))
    name = f".s.PGSQL.{url.port}"
    front = lab.directory / "pg"
    front.mkdir()
    with (
        over_http(lab.service) as (placement, _),
        Gate(str(directory / name), front / name) as gate,
    ):
        away = url.update_query_dict({"host": str(front)})
        _upgrade(lab, url)
        options = [*lab.placement_options(placement), *_database_options(away)]
        yield _fleet(lab, Away(lambda: gate.begin(outage), gate.end, options))


@contextmanager
def of_mariadb(lab: Lab, outage: Outage) -> Iterator[Away]:
    url = sa.make_url(lab.request.getfixturevalue("mariadb").create_database())
    front = lab.directory / "mariadb"
    with (
        over_http(lab.service) as (placement, _),
        Gate(str(url.query["unix_socket"]), front) as gate,
    ):
        away = url.update_query_dict({"unix_socket": str(front)})
        _upgrade(lab, url)
        options = [*lab.placement_options(placement), *_database_options(away)]
        yield _fleet(lab, Away(lambda: gate.begin(outage), gate.end, options))
    gc.collect()  # raise the warnings that this case ignores before the next case


@contextmanager
def of_sqlite(lab: Lab, outage: Outage) -> Iterator[Away]:
    """HANGING: another process locks the file. WRONG: the file is not a database."""
    file = lab.directory / "state" / "wharfinger.sqlite"
    patch = pytest.MonkeyPatch()
    pragmas = ("busy_timeout=200", *sqlite._PRAGMAS[1:])
    patch.setattr(sqlite, "_PRAGMAS", pragmas)
    files = [file, *(file.with_name(f"{file.name}{end}") for end in ("-wal", "-shm"))]
    with over_http(lab.service) as (placement, _), closing(_Locker(file)) as locker:
        begin, end = (locker.lock, locker.unlock)
        if outage is Outage.WRONG:
            kept = lab.directory / "kept"
            kept.mkdir()

            def begin() -> None:
                for one in files:
                    if one.exists():
                        one.rename(kept / one.name)
                file.write_bytes(b"no database" * 1000)

            def end() -> None:
                for one in files:
                    one.unlink(missing_ok=True)
                    if (kept / one.name).exists():
                        (kept / one.name).rename(one)

        yield _fleet(lab, Away(begin, end, lab.placement_options(placement)))
    patch.undo()


class _Locker:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._connection: sqlite3.Connection | None = None

    def lock(self) -> None:
        self._connection = sqlite3.connect(
            self._file, isolation_level=None, timeout=60, check_same_thread=False
        )
        self._connection.execute("BEGIN EXCLUSIVE")

    def unlock(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    close = unlock


@contextmanager
def of_ironic(lab: Lab, outage: Outage) -> Iterator[Away]:
    nodes = [
        {**msgspec.to_builtins(node(uuid=one)), "updated_at": "2026-01-01T00:00:00+00:00"}
        for one in NODES
    ]

    def serve(path: str, query: dict[str, str]) -> tuple[int, Any]:
        if "project" in query:
            return 200, {"nodes": []}
        if query.get("sort_dir") == "desc" and path == "/v1/nodes":
            return 200, {"nodes": [{"uuid": NODES[-1]}]}
        first = NODES.index(query["marker"]) + 1 if "marker" in query else 0
        return 200, {"nodes": nodes[first:]}

    with (
        over_http(lab.service) as (placement, _),
        StubService(serve) as service,
        Gate(_port(service.url)) as gate,
    ):
        options = [
            *lab.placement_options(placement),
            "[ironic]\nremoval_delay = 0",
            f"auth_type = none\nendpoint = {gate.url}\ntimeout = {TIME}",
        ]
        yield Away(lambda: gate.begin(outage), gate.end, options, drivers=("ironic",))


@contextmanager
def of_cyborg(lab: Lab, outage: Outage) -> Iterator[Away]:
    answers = {
        "/v2": {
            "versions": [
                {"id": "v2.0", "status": "CURRENT", "links": [{"rel": "self", "href": "/v2"}]}
            ]
        },
        "/v2/deployables": {"deployables": msgspec.to_builtins([deployable(0)])},
        "/v2/accelerator_requests": {"arqs": []},
        "/v2/devices": {"devices": [{"hostname": CARD_HOST, "id": 1}]},
    }
    with (
        over_http(lab.service) as (placement, _),
        StubService(lambda path, _query: (200, answers[path])) as service,
        Gate(_port(service.url)) as gate,
    ):
        options = [
            *lab.placement_options(placement),
            "[cyborg]\nremoval_delay = 0",
            f"publish = own\nauth_type = none\nendpoint = {gate.url}/v2",
            f"timeout = {TIME}",
        ]
        yield Away(lambda: gate.begin(outage), gate.end, options, drivers=("cyborg",))


@contextmanager
def of_libvirt(lab: Lab, outage: Outage) -> Iterator[Away]:
    with over_http(lab.service) as (placement, _), Libvirtd() as libvirtd:
        path = libvirtd.uri.partition("socket=")[2]
        with Gate(path, lab.directory / "libvirt") as gate:
            uri = libvirtd.uri.replace(path, str(lab.directory / "libvirt"))
            options = [
                *lab.placement_options(placement),
                "[libvirt]\nremoval_delay = 0",
                f"connection_uri = {uri}\nhypervisor_hostname = gpu-host-1",
                f"timeout = {2 * TIME}\nenabled_mdev_types = nvidia-35",
            ]
            yield Away(lambda: gate.begin(outage), gate.end, options, drivers=("libvirt",))


def _fleet(lab: Lab, away: Away) -> Away:
    away.fleet = lab.fleet
    away.options.insert(
        0, "removal_delay = 0"
    )  # an option of the instance, whose section is the last one
    return away


def _upgrade(lab: Lab, url: sa.URL) -> None:
    with Place(url.render_as_string(hide_password=False), lab.directory / "state") as place:
        place.upgrade()


def _database_options(url: sa.URL) -> list[str]:
    shown = url.render_as_string(hide_password=False)
    return [f"[database]\nconnection = {shown}\ntimeout = {TIME}"]


DEPENDENCIES: dict[str, tuple[Callable[..., AbstractContextManager[Away]], tuple[Outage, ...]]] = {
    "placement": (of_placement, OF_HTTP),
    "keystone": (of_keystone, OF_KEYSTONE),
    "postgresql": (of_postgresql, OF_SOCKETS),
    "mariadb": (of_mariadb, OF_SOCKETS),
    "sqlite": (of_sqlite, (Outage.HANGING, Outage.WRONG)),
    "ironic": (of_ironic, OF_HTTP),
    "cyborg": (of_cyborg, OF_HTTP),
    "libvirt": (of_libvirt, OF_SOCKETS),
}
#: PyMySQL does not close a Unix socket after a failed connection.
UNCLOSED = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
CASES = [
    pytest.param(
        *(name, outage),
        id=f"{name}-{outage.value}",
        marks=UNCLOSED if name == "mariadb" else (),
    )
    for name, (_, outages) in DEPENDENCIES.items()
    for outage in outages
]


@pytest.fixture
def lab(
    placement_service: EmbeddedPlacement, request: pytest.FixtureRequest, tmp_path: Path
) -> Lab:
    return Lab(tmp_path, placement_service, Fleet("metal-1", "metal-2"), request)


@dataclass
class Started:
    """An agent that has published its backend. ``before`` is what it has published."""

    running: Watched
    away: Away
    subject: str
    before: dict[str, Any]


@contextmanager
def started(
    placement: PlacementFixture, lab: Lab, dependency: str, outage: Outage
) -> Iterator[Started]:
    of_dependency, _ = DEPENDENCIES[dependency]
    is_fleet = dependency not in ("ironic", "cyborg", "libvirt")
    subject = "metal" if is_fleet else dependency
    fleets = {"metal": lab.fleet} if is_fleet else {}
    with (
        of_dependency(lab, outage) as away,
        Watched(placement, lab.directory, **fleets) as running,
    ):
        if dependency == "cyborg":
            placement.client.create_provider(uuid("host"), CARD_HOST, None)  # nova's
        running.run_with(*away.options, drivers=away.drivers)
        wait_for_full_cycle(running, subject)
        before = everything()
        assert before
        assert running.lines_of(subject) == []
        yield Started(running, away, subject, before)


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("dependency", "outage"), [case for case in CASES if Outage.EMPTY not in case.values]
)
def test_outage_logs_two_lines_and_removes_nothing_and_changes_are_published_after_it(
    placement: PlacementFixture, lab: Lab, dependency: str, outage: Outage
) -> None:
    with started(placement, lab, dependency, outage) as it:
        running, away, subject, before = it.running, it.away, it.subject, it.before
        away.begin()
        if away.fleet is not None:
            away.fleet.change("metal-1", "cleaning")
        wait_for(running.log, f"{subject}: still unsolved: ", 2)
        assert without_reserved(everything()) == without_reserved(before)
        away.end()
        running.log.wait_for(f"{subject}: solved: ")
        wait_for_full_cycle(running, subject)

        first, last = running.lines_of(subject)
        assert last == first.replace(f"{subject}: ", f"{subject}: solved: ", 1)
        after = everything()
        if away.fleet is not None:
            assert after["metal-1"]["inventories"] == {"CUSTOM_GOLD": (1, 1)}
            after["metal-1"] = before["metal-1"]
        assert after == before


@pytest.mark.drawn(1)
@pytest.mark.parametrize("dependency", ["placement", "ironic", "cyborg"])
def test_empty_listings_of_a_dependency_remove_nothing(
    placement: PlacementFixture, lab: Lab, dependency: str
) -> None:
    """``removal_delay`` is 0, so that a removal would not wait."""
    with started(placement, lab, dependency, Outage.EMPTY) as it:
        it.away.begin()
        for _ in range(3):
            wait_for_full_cycle(it.running, it.subject)
        assert everything() == it.before
        it.away.end()
        wait_for_full_cycle(it.running, it.subject)

        assert everything() == it.before


def without_reserved(contents: dict[str, Any]) -> dict[str, Any]:
    """Leave out reserved amounts: a write whose answer is lost may have changed them."""
    return {
        name: {**one, "inventories": {kind: it[0] for kind, it in one["inventories"].items()}}
        for name, one in contents.items()
    }


def wait_for(log: Log, part: str, number: int) -> None:
    """Wait until the log has this number of lines that contain ``part``."""
    with log._told:
        assert log._told.wait_for(lambda: len(log.records(part)) >= number, 60), log.lines()


def wait_for_full_cycle(running: Running, subject: str) -> None:
    """Wait for the end of a full cycle that begins after this call."""
    part = f"{subject}: full cycle: "
    wait_for(running.log, part, len(running.log.records(part)) + 2)
