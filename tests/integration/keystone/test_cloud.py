"""Bare metal with real services that require tokens: which nodes each user may publish.

The catalog has ports of the test in place of the services' ports. So a test can see requests and
tokens, and cut Keystone off.
"""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import fixtures
import pytest

from tests.lab import inprocess
from tests.lab.background import InBackground
from tests.lab.between import Between
from tests.lab.cycles import make_state
from tests.lab.faults import FAULTS
from tests.lab.guarded_placement import GuardedPlacement
from tests.lab.keystone import SERVICE_PROJECT, Keystone, User
from tests.lab.program import Done, Program
from wharfinger import conf
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.exceptions import BackendError, PermissionRefused, PlacementUnavailable
from wharfinger.objects import Context, connect
from wharfinger.placement.session import make_adapter
from wharfinger.providers.plan import Step
from wharfinger.providers.removal import RemovalPolicy
from wharfinger.reconcile import driver_instance_loader
from wharfinger.reconcile.cycle import Reconciler
from wharfinger.reconcile.cycle_result import CycleResult
from wharfinger_harnesses.ironic import Ironic

TENANT = "tenant"
GOLD = "CUSTOM_BAREMETAL_GOLD"
#: The project that owns each node, by node name.
NODES = {"nobodys": None, "services": SERVICE_PROJECT, "tenants": TENANT, "broken": TENANT}
ALL = frozenset(NODES)
TENANTS = frozenset({"tenants", "broken"})
LOUD = "maintenance: its fan is loud"
TOKENS = "POST /v3/auth/tokens"
ELEVATED = "rbac_service_role_elevated_access"
#: Seconds to wait for an event, which usually takes some tenths of a second.
TIMEOUT = 30.0

#: The contents of a provider: (total, reserved) by resource class, and traits.
Contents = tuple[dict[str, tuple[int, int]], frozenset[str]]
Options = Mapping[str, str]


class Watched(Between):
    """A proxy before a service, which records the tokens of the requests."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.tokens: list[str] = []

    def _forward(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if token := environ.get("HTTP_X_AUTH_TOKEN"):
            self.tokens.append(token)
        return super()._forward(environ, start_response)

    def go_away(self) -> None:
        """Refuse connections until ``expect`` is called."""
        self.expect(0, FAULTS["refused"])


@dataclass(frozen=True)
class Cloud:
    """Keystone, Ironic with ``NODES``, and Placement, each behind a proxy."""

    keystone: Keystone
    ironic: Ironic
    nodes: Mapping[str, str]
    at_keystone: Watched
    at_ironic: Watched
    at_placement: Watched
    placement: WritingClient
    users: Mapping[str, User]

    def credentials(self, who: str) -> dict[str, str]:
        return self.keystone.auth_options(self.users[who])

    def published(self) -> dict[str, Contents]:
        """Return the contents of Placement by node name."""
        return {self._name(one.name): self._contents(one.uuid) for one in self._providers()}

    def names(self) -> set[str]:
        return {self._name(one.uuid) for one in self._providers()}

    def is_reserved(self, name: str) -> bool:
        figures, _ = self._contents(self.nodes[name])
        return figures == {GOLD: (1, 1)}

    @contextmanager
    def cleaning(self, name: str) -> Iterator[str]:
        """Clean the node during the block; after the block it is available."""
        node = self.nodes[name]
        self.ironic.update_node(node, extra={"lab": {"clean": "hold"}})
        for target, arrives in (("manage", "manageable"), ("provide", "cleaning")):
            self.ironic.provision(node, target)
            self.ironic.wait_for(node, arrives)
        try:
            yield node
        finally:
            if self.ironic.node(node)["provision_state"] == "cleaning":
                self.ironic.go(node)
            self.ironic.wait_for(node, "available")
            self.ironic.update_node(node, extra={})

    @contextmanager
    def maintenance(self, name: str, reason: str) -> Iterator[str]:
        node = self.nodes[name]
        self.ironic.set_maintenance(node, reason)
        try:
            yield node
        finally:
            self.ironic.end_maintenance(node)

    def empty(self) -> None:
        """Delete all providers from Placement."""
        for provider in self._providers():
            self.placement.delete_provider(provider.uuid)

    def listen(self) -> None:
        """Forget earlier requests, and let all proxies answer."""
        for watched in (self.at_keystone, self.at_ironic, self.at_placement):
            watched.expect()

    @contextmanager
    def without_elevation(self) -> Iterator[None]:
        """Let Ironic show service users only the nodes of their own project during the block."""
        path = self.ironic.directory / "ironic.conf"
        text = path.read_text()
        token = {"X-Auth-Token": self.keystone.token(self.users["service"])}

        def configure(value: str, shown: set[str]) -> None:
            path.write_text(text.replace(f"{ELEVATED} = true", f"{ELEVATED} = {value}"))
            self.ironic.process.send_signal(signal.SIGUSR1)
            end = time.monotonic() + TIMEOUT
            while {
                node["name"]
                for node in self.ironic.ask("GET", "/v1/nodes", None, **token).json()["nodes"]
            } != shown:
                assert time.monotonic() < end
                time.sleep(0.02)

        configure("false", {"services"})
        try:
            yield
        finally:
            configure("true", {*NODES})

    def offer_ironic(self, *, enabled: bool) -> None:
        """Enable Ironic in the catalog, or disable it."""
        change_endpoints(self.keystone, self.at_ironic.url, enabled=enabled)

    def _providers(self) -> list[Any]:
        return list(self.placement.list_providers())

    def _contents(self, uuid: str) -> Contents:
        inventories = self.placement.get_inventories(uuid).inventories
        figures = {name: (its.total, its.reserved) for name, its in inventories.items()}
        return figures, self.placement.get_traits(uuid).traits

    def _name(self, uuid: str) -> str:
        return {it: name for name, it in self.nodes.items()}.get(uuid, uuid)


def change_endpoints(keystone: Keystone, there: str, **change: Any) -> None:
    """Change the catalog's endpoints that have this URL."""
    identity = keystone.adapter(keystone.admin, "identity")
    for endpoint in identity.get("/endpoints").json()["endpoints"]:
        if endpoint["url"] == there:
            identity.patch(f"/endpoints/{endpoint['id']}", json={"endpoint": change})


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with Keystone() as keystone, Watched(keystone.url.removesuffix("/v3")) as at_keystone:
        url, keystone.url = keystone.url, f"{at_keystone.url}/v3"
        change_endpoints(keystone, url, url=keystone.url)
        ironics = keystone.create_user("ironic", SERVICE_PROJECT, "service")
        options = {
            "DEFAULT": {"auth_strategy": "keystone", ELEVATED: "true"},
            "keystone_authtoken": keystone.authtoken_options(ironics),
        }
        with (
            InBackground(lambda: Ironic(options)) as starting,
            GuardedPlacement(keystone) as placement,
            Watched(placement.url) as at_placement,
        ):
            change_endpoints(keystone, placement.url, url=at_placement.url)
            direct = keystone.adapter(keystone.admin, "placement")
            direct.endpoint_override = placement.url
            users = {
                "service": keystone.create_user("wharfinger", SERVICE_PROJECT, "service"),
                "auditor": keystone.create_user("auditor", None, system_roles=["reader"]),
                "hand": keystone.create_user("hand", TENANT, "reader"),
                "member": keystone.create_user("member", SERVICE_PROJECT, "member"),
                "stranger": keystone.create_user("stranger", "other", "service"),
                "admin": keystone.admin,
                "system": keystone.system_admin,
            }
            ironic = starting.ready()
            ironic.headers["X-Auth-Token"] = keystone.token(keystone.system_admin)
            with Watched(ironic.url) as at_ironic:
                keystone.register("baremetal", "ironic", at_ironic.url)
                yield Cloud(
                    keystone,
                    ironic,
                    fleet(ironic, keystone),
                    at_keystone,
                    at_ironic,
                    at_placement,
                    WritingClient(direct, connections=1),
                    users,
                )


def fleet(ironic: Ironic, keystone: Keystone) -> dict[str, str]:
    """Create the nodes of ``NODES``; return their uuids by name. One node is in maintenance."""
    nodes = {
        name: ironic.create_node(name, owner=project and keystone.project_id(project))
        for name, project in NODES.items()
    }
    for node in nodes.values():
        ironic.set_traits(node, "CUSTOM_FAST")
    ironic.make_available(*nodes.values())
    ironic.set_maintenance(nodes["broken"], "its fan is loud")
    return nodes


@pytest.fixture(autouse=True)
def tidy(cloud: Cloud) -> Iterator[None]:
    """Let all proxies answer before each test; empty Placement after it."""
    cloud.listen()
    yield
    cloud.listen()
    cloud.empty()


class Here:
    """The program with a driver instance ``metal``, in a directory for its state."""

    def __init__(self, cloud: Cloud, directory: Path) -> None:
        self.cloud = cloud
        self.program = Program(directory)
        self.state = directory / "state"
        make_state(self.state)
        self.configure()

    def configure(
        self,
        metal: Options | None = None,
        placement: Options | None = None,
        **sections: Options,
    ) -> None:
        """Write the configuration; by default, a service user is used for both services."""
        service = self.cloud.credentials("service")
        written = {
            "DEFAULT": {"enabled_drivers": "metal", "host": "pier", "state_path": str(self.state)},
            "metal": {
                "driver": "ironic",
                "removal_delay": "0",
                **(service if metal is None else metal),
            },
            "placement": {
                "embedded": "false",
                **(service if placement is None else placement),
            },
            "agent": {"poll_interval": "0.25", "drift_interval": "0.5"},
            **sections,
        }
        lines = [
            line
            for section, options in written.items()
            for line in (f"[{section}]", *(f"{key} = {it}" for key, it in options.items()))
        ]
        self.program.config.write_text("\n".join([*lines, ""]))

    def run(self, *arguments: str) -> Done:
        """Run the program in this process."""
        return inprocess.run(self.program, *arguments)

    def reasons(self) -> dict[str, str]:
        """Return the reasons of reservations by node name, as the program prints them."""
        listed = self.run("reservation", "list", "-f", "json")
        names = {it: name for name, it in self.cloud.nodes.items()}
        return {names[row["Provider"]]: row["Reason"] for row in listed.json()}


@pytest.fixture
def here(cloud: Cloud, tmp_path: Path) -> Here:
    return Here(cloud, tmp_path)


@contextmanager
def running(here: Here) -> Iterator[Reconciler]:
    """Yield the reconciler of the instance, made and begun as the program does."""
    loaded = conf.load([str(here.program.config)])
    with (
        opened(loaded) as context,
        driver_instance_loader.running(
            driver_instance_loader.load(loaded, "metal"),
            WritingClient(make_adapter(loaded)),
            context,
            policy=RemovalPolicy(delay=0),
        ) as cycle,
    ):
        yield cycle


@contextmanager
def opened(loaded: conf.Options) -> Iterator[Context]:
    context = connect(loaded)
    try:
        yield context
    finally:
        context.close()


def sound(outcome: CycleResult) -> Sequence[Step]:
    """Assert that a cycle has no problem and no pending removal; return its steps."""
    assert not outcome.problems
    assert not outcome.pending
    return outcome.steps


def contents(reserved: int) -> Contents:
    """Return the expected contents of a node's provider."""
    traits = frozenset({"OWNER_NOVA", "CUSTOM_WHARFINGER_METAL", "CUSTOM_FAST"})
    return {GOLD: (1, reserved)}, traits


def told(done: Done) -> str:
    """Assert that a sync has failed; return its only line of output."""
    assert (done.code, done.out) == (1, "")
    [line] = done.err.splitlines()
    return line


# Users that publish.


@dataclass(frozen=True)
class Publisher:
    """A user of Ironic, and the nodes that this user may list.

    ``owner`` is the project to whose nodes the configuration restricts the listing.
    """

    who: str
    owner: str | None = None
    nodes: frozenset[str] = ALL

    def options(self, cloud: Cloud) -> dict[str, str]:
        options = cloud.credentials(self.who)
        if self.owner is not None:
            options["node_owner"] = cloud.keystone.project_id(self.owner)
        return options

    def __str__(self) -> str:
        return f"{self.who} of {self.owner or 'all'}"


PUBLISHERS = [
    Publisher("service"),
    Publisher("auditor"),
    Publisher("hand", TENANT, TENANTS),
]
REFUSED = [
    Publisher("admin"),
    Publisher("hand"),
    Publisher("stranger", TENANT),
    Publisher("hand", SERVICE_PROJECT),
]


@pytest.mark.parametrize("publisher", PUBLISHERS, ids=str)
def test_user_that_may_list_the_nodes_publishes_them(
    publisher: Publisher, cloud: Cloud, here: Here
) -> None:
    here.configure(publisher.options(cloud))
    done = here.run("sync")
    assert (done.code, done.err) == (0, "")
    assert cloud.published() == {name: contents(name == "broken") for name in publisher.nodes}
    assert here.reasons() == {"broken": LOUD}
    assert here.run("sync").out == "metal: no change\n"


def assert_poll_sends_one_request(cloud: Cloud, cycle: Reconciler) -> None:
    """Assert that a poll without changes sends one request to Ironic and requests no token."""
    cloud.listen()
    assert not sound(cycle.poll())
    [request] = cloud.at_ironic.seen
    assert request.startswith("GET /v1/nodes/detail?")
    assert cloud.at_placement.seen == []
    assert TOKENS not in cloud.at_keystone.seen


def test_user_that_may_not_list_the_nodes_fails_and_changes_nothing(
    cloud: Cloud, here: Here
) -> None:
    assert here.run("sync").code == 0
    before = cloud.published()
    cloud.listen()
    for publisher in REFUSED:
        here.configure(publisher.options(cloud))
        line = told(here.run("sync"))
        assert "may not list all nodes" in line, publisher
        assert "reader role on the system" in line
        assert f"{ELEVATED} = true" in line
        assert "node_owner" in line
        if publisher.owner is not None:
            assert f"of project {cloud.keystone.project_id(publisher.owner)}" in line
    # Without our check, this user would get only some of the nodes, and no error.
    hand = {"X-Auth-Token": cloud.keystone.token(cloud.users["hand"])}
    partly = cloud.ironic.ask("GET", "/v1/nodes?fields=name", None, **hand)
    assert {node["name"] for node in partly.json()["nodes"]} == TENANTS
    here.configure({**cloud.credentials("hand"), "node_owner": TENANT})
    assert "id of the user's project" in told(here.run("sync"))
    here.configure()
    with cloud.without_elevation():
        line = told(here.run("sync"))
    assert "may not list all nodes" in line
    assert f"{ELEVATED} = true" in line
    assert all(request.startswith("GET ") for request in cloud.at_placement.seen)
    assert cloud.published() == before
    assert here.run("sync").out == "metal: no change\n"


# Tokens and services that expire or go down meanwhile.


def test_expired_tokens_are_replaced(cloud: Cloud, here: Here) -> None:
    node = cloud.nodes["nobodys"]
    with running(here) as cycle:
        sound(cycle.sync())
        for reserve in (True, False):
            ended = [cloud.at_ironic.tokens[-1], cloud.at_placement.tokens[-1]]
            for token in ended:
                cloud.keystone.revoke(token)
            if reserve:
                cloud.ironic.set_maintenance(node, "it moves")
            else:
                cloud.ironic.end_maintenance(node)
            assert sound(cycle.poll())
            assert cloud.is_reserved("nobodys") is reserve
            assert not {cloud.at_ironic.tokens[-1], cloud.at_placement.tokens[-1]} & {*ended}
        cloud.listen()
        sound(cycle.sync())
        assert TOKENS not in cloud.at_keystone.seen
        assert_poll_sends_one_request(cloud, cycle)


@pytest.mark.parametrize("has_ended", [False, True], ids=["token", "token that has ended"])
def test_outage_of_keystone_writes_nothing_and_then_ends(
    has_ended: bool, cloud: Cloud, here: Here
) -> None:
    with running(here) as cycle:
        sound(cycle.sync())
        before = cloud.published()
        if has_ended:
            cloud.keystone.revoke(cloud.at_ironic.tokens[-1])
        with cloud.maintenance("nobodys", "it moves"):
            cloud.at_keystone.go_away()
            for run in (cycle.poll, cycle.sync):
                with pytest.raises(BackendError) as caught:
                    run()
                assert len(str(caught.value).splitlines()) == 1
            cloud.listen()
            assert cloud.published() == before
            assert sound(cycle.poll())
            assert cloud.is_reserved("nobodys")


# Wrong credentials.

#: By name: wrong options of a section, and parts of the error.
MISTAKES: list[tuple[str, Options, Sequence[str]]] = [
    ("metal", {"password": "guessed"}, ["401", "Check the credentials in [metal]."]),
    ("placement", {"password": "guessed"}, ["401", "Check the credentials in [placement]."]),
    ("metal", {"region_name": "elsewhere"}, ["baremetal service in elsewhere region not found"]),
    ("placement", {"service_name": "iron"}, ["placement service named iron not found"]),
    ("metal", {"valid_interfaces": "inside"}, ["[metal] valid_interfaces", "inside"]),
]


def test_wrong_credentials_are_reported_in_one_line(cloud: Cloud, here: Here) -> None:
    for section, options, parts in MISTAKES:
        wrong = {**cloud.credentials("service"), **options}
        here.configure(**{section: wrong})
        line = told(here.run("sync"))
        assert all(part in line for part in parts), line
        assert "Must provide" not in line
        assert cloud.names() == set()
    here.configure()
    cloud.at_keystone.go_away()
    line = told(here.run("sync"))
    assert f"Unable to establish connection to {cloud.keystone.url}" in line
    cloud.listen()
    assert here.run("sync").code == 0
    assert cloud.names() == ALL


def test_credentials_may_be_shared(cloud: Cloud, here: Here) -> None:
    def share(**more: str) -> None:
        """Configure one section of credentials for both services."""
        credentials = {**cloud.credentials("service"), **more}
        section = {"auth_section": "keystone"}
        here.configure(metal=section, placement=section, keystone=credentials)

    share(password="guessed")
    line = told(here.run("sync"))
    assert "401" in line
    assert "[keystone]" in line
    share(usrname="wharfinger")
    validated = here.run("config", "validate", "-f", "json")
    assert validated.code == 1
    [row] = validated.json()
    assert "[keystone]" in row["Result"]
    assert "usrname" in row["Result"]
    assert "usrname" in told(here.run("sync"))
    assert cloud.names() == set()
    share()
    validated = here.run("config", "validate", "-f", "json")
    assert validated.code == 0
    assert [row["Result"] for row in validated.json()] == ["valid"]
    assert here.run("sync").code == 0
    assert cloud.names() == ALL


# Roles that Placement requires.


def client(directory: Path, options: Options) -> WritingClient:
    lines = [f"{key} = {value}" for key, value in options.items()]
    path = directory / "client.conf"
    path.write_text("\n".join(["[placement]", "embedded = false", *lines, ""]))
    return WritingClient(make_adapter(conf.load([str(path)])))


def refusal(client: WritingClient) -> PermissionRefused:
    """Return the error with which Placement refuses the client's list of providers."""
    with pytest.raises(PermissionRefused) as caught:
        client.list_providers()
    return caught.value


def test_user_without_the_role_fails_with_the_roles_that_placement_requires(
    cloud: Cloud, here: Here, tmp_path: Path
) -> None:
    here.configure(placement=cloud.credentials("member"))
    for command in (("sync",), ("provider", "list")):
        line = told(here.run(*command))
        assert "403: not allowed" in line
        assert "it needs the admin or the service role" in line
    refused = refusal(client(tmp_path, cloud.credentials("system")))
    assert refused.status == 403
    assert "project" in refused.remedy


def test_expired_token_is_refused(cloud: Cloud, tmp_path: Path) -> None:
    token = cloud.keystone.token(cloud.users["service"])
    static = {"auth_type": "admin_token", "endpoint": cloud.at_placement.url, "token": token}
    ours = client(tmp_path, static)
    ours.list_providers()
    cloud.keystone.revoke(token)
    refused = refusal(ours)
    assert (refused.status, refused.remedy) == (401, "Check the credentials in [placement].")

    credentials = cloud.credentials("service")
    names = ("auth_url", "project_name", "project_domain_name")
    of_a_token = {name: credentials[name] for name in names}
    options = {"auth_type": "v3token", "token": token, **of_a_token}
    assert refusal(client(tmp_path, options)).remedy == "Check the credentials in [placement]."


def test_placement_without_keystone_is_unavailable(cloud: Cloud, tmp_path: Path) -> None:
    token = cloud.keystone.token(cloud.users["service"])
    static = {"auth_type": "admin_token", "endpoint": cloud.at_placement.url, "token": token}
    ours = client(tmp_path, static)
    ours.list_providers()
    cloud.at_keystone.go_away()
    with pytest.raises(PlacementUnavailable) as caught:
        ours.list_providers()
    assert caught.value.status == 503


# Processes of the installed program.


class AgentProcess(fixtures.Fixture):
    """An agent in its own process."""

    def __init__(self, program: Program, *options: str) -> None:
        super().__init__()
        self._program = program
        self._options = options
        self.lines: list[str] = []

    def _setUp(self) -> None:
        wharfinger = str(Path(sys.executable).with_name("wharfinger"))
        self.process = subprocess.Popen(
            [wharfinger, "--config-file", str(self._program.config), *self._options, "agent"],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._told = SimpleQueue[str | None]()
        reader = threading.Thread(target=self._read)
        reader.start()
        self.addCleanup(self._end, reader)

    def wait_for(self, part: str) -> None:
        end = time.monotonic() + TIMEOUT
        with suppress(Empty):
            while (line := self._told.get(timeout=max(0, end - time.monotonic()))) is not None:
                self.lines.append(line)
                if part in line:
                    return
        raise AssertionError(f"it has not said {part!r} but {self.lines[-20:]}")

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        while (line := self._told.get(timeout=TIMEOUT)) is not None:
            self.lines.append(line)
        return self.process.wait(TIMEOUT)

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as told:
            for line in told:
                self._told.put(line.rstrip("\n"))
        self._told.put(None)

    def _end(self, reader: threading.Thread) -> None:
        self.process.kill()
        self.process.wait()
        reader.join()


def secrets(cloud: Cloud) -> set[str]:
    """Return all passwords, and the tokens of all requests."""
    passwords = {user.password for user in cloud.users.values()}
    return passwords | {*cloud.at_ironic.tokens, *cloud.at_placement.tokens}


def assert_no_secrets(cloud: Cloud, text: str) -> None:
    found = [secret for secret in secrets(cloud) if secret in text]
    assert not found, [line for line in text.splitlines() if found[0] in line][:3]


def test_output_about_wrong_credentials_has_no_secret(cloud: Cloud, here: Here) -> None:
    """The wrong password resembles the right one."""
    credentials = cloud.credentials("service")
    here.configure({**credentials, "password": f"{credentials['password']}!"})
    done = here.program.run("-vv", "--debug", "sync")
    assert done.code == 1
    assert_no_secrets(cloud, done.out + done.err)


def test_agent_waits_for_services_and_writes_reservations_during_outages_of_keystone(
    cloud: Cloud, here: Here
) -> None:
    agent = AgentProcess(here.program, "-vv")
    node = cloud.nodes["services"]
    cloud.offer_ironic(enabled=False)
    try:
        with agent:
            agent.wait_for("baremetal service not found")
            cloud.offer_ironic(enabled=True)
            agent.wait_for("12 changes written")
            assert cloud.names() == ALL
            with cloud.cleaning("services"):
                agent.wait_for(f"reserved: {node}")
                assert cloud.published()["services"] == contents(reserved=1)

                for token in (cloud.at_ironic.tokens[-1], cloud.at_placement.tokens[-1]):
                    cloud.keystone.revoke(token)
                cloud.ironic.go(node)
                agent.wait_for(f"released: {node}")
                assert cloud.published()["services"] == contents(reserved=0)
                cloud.ironic.wait_for(node, "available")

            cloud.at_keystone.go_away()
            agent.wait_for("Service Unavailable (HTTP 503)")
            cloud.listen()
            agent.wait_for("solved: ")
            with cloud.maintenance("services", "it moves"):
                agent.wait_for(f"reserved: {node}")
            agent.wait_for(f"released: {node}")
            assert agent.stop() == 0
    finally:
        cloud.offer_ironic(enabled=True)
    assert_no_secrets(cloud, "\n".join(agent.lines))
