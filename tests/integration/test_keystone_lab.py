"""With a real Keystone: who sees which of Ironic's nodes, and what Placement takes from whom."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from keystoneauth1.adapter import Adapter

from tests.lab.guarded_placement import GuardedPlacement
from tests.lab.keystone import SERVICE_PROJECT, Keystone, User
from tests.lab.program import Program
from wharfinger.conf import load
from wharfinger.exceptions import PermissionRefused, PlacementUnavailable
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.session import make_adapter
from wharfinger_harnesses.ironic import Ironic

TENANT = "tenant"
#: The nodes by name, with the projects that own them.
NODES = {"nobodys": None, "services": SERVICE_PROJECT, "tenants": TENANT}
ALL = set(NODES)

#: Who asks, and the nodes that each is shown, whether service users are elevated or not.
SHOWN: Mapping[str, set[str]] = {
    "system reader": ALL,
    "system admin": ALL,
    "service user of another project": set(),
    "admin of a project without nodes": set(),
    "admin of a project with nodes": {"tenants"},
    "reader of a project with nodes": {"tenants"},
}

COMMANDS = [("sync",), ("provider", "list")]
CREDENTIALS = "Check the credentials in [placement]."


@pytest.fixture(scope="module")
def keystone() -> Iterator[Keystone]:
    with Keystone() as keystone:
        yield keystone


@pytest.fixture(scope="module")
def service_user(keystone: Keystone) -> User:
    """One as deployments make them: for wharfinger, with the service role alone."""
    return keystone.create_user("wharfinger", SERVICE_PROJECT, "service")


# Who sees which of Ironic's nodes.


@dataclass(frozen=True)
class Fleet:
    """An Ironic with the nodes of ``NODES``, and what it shows to whom."""

    ironic: Ironic
    keystone: Keystone
    is_elevating: bool

    def shows(self, user: User) -> set[str]:
        """The names in the plain list, which always is an answer."""
        answer = self._ask("/v1/nodes?fields=name", user)
        assert answer[0] == 200
        return {node["name"] for node in answer[1]["nodes"]}

    def answers(self, user: User, project: str) -> tuple[int, int]:
        """The status, and how many nodes, when one node of that project is asked for."""
        status, body = self._ask(f"/v1/nodes?project={project}&limit=1&fields=uuid", user)
        return status, len(body.get("nodes", ()))

    def _ask(self, path: str, user: User) -> tuple[int, dict[str, list[dict[str, str]]]]:
        headers = {"X-Auth-Token": self.keystone.token(user)}
        answer = self.ironic.ask("GET", path, None, **headers)
        return answer.status_code, answer.json()


@pytest.fixture(scope="module")
def ironics_user(keystone: Keystone) -> User:
    return keystone.create_user("ironic", SERVICE_PROJECT, "service")


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "elevated"])
def fleet(
    request: pytest.FixtureRequest, keystone: Keystone, ironics_user: User
) -> Iterator[Fleet]:
    options = {
        "DEFAULT": {
            "auth_strategy": "keystone",
            "rbac_service_role_elevated_access": request.param,
        },
        "keystone_authtoken": keystone.authtoken_options(ironics_user),
    }
    with Ironic(options) as ironic:
        ironic.headers["X-Auth-Token"] = keystone.token(keystone.system_admin)
        for name, project in NODES.items():
            ironic.create_node(name, owner=project and keystone.project_id(project))
        yield Fleet(ironic, keystone, request.param)


@pytest.fixture(scope="module")
def viewers(keystone: Keystone) -> dict[str, User]:
    """Those of ``SHOWN``."""
    return {
        "system reader": keystone.create_user("auditor", None, system_roles=["reader"]),
        "system admin": keystone.system_admin,
        "service user of another project": keystone.create_user("stranger", "other", "service"),
        "admin of a project without nodes": keystone.admin,
        "admin of a project with nodes": keystone.create_user("head", TENANT, "admin"),
        "reader of a project with nodes": keystone.create_user("hand", TENANT, "reader"),
    }


def test_a_service_user_is_shown_its_own_projects_nodes_unless_it_is_elevated(
    fleet: Fleet, service_user: User
) -> None:
    assert fleet.shows(service_user) == (ALL if fleet.is_elevating else {"services"})


@pytest.mark.parametrize("who", SHOWN)
def test_elevation_is_of_no_use_to_others(fleet: Fleet, viewers: dict[str, User], who: str) -> None:
    assert fleet.shows(viewers[who]) == SHOWN[who]


def test_a_service_user_may_ask_for_others_nodes_only_if_it_is_elevated(
    fleet: Fleet, service_user: User
) -> None:
    expected = (200, 0) if fleet.is_elevating else (403, 0)
    assert fleet.answers(service_user, project=uuid4().hex) == expected


@pytest.mark.parametrize("who", SHOWN)
def test_only_who_is_shown_all_nodes_may_ask_for_those_of_a_project_that_is_not_theirs(
    fleet: Fleet, viewers: dict[str, User], who: str
) -> None:
    expected = (200, 0) if SHOWN[who] == ALL else (403, 0)
    assert fleet.answers(viewers[who], project=uuid4().hex) == expected


@pytest.mark.parametrize(
    ("who", "count"),
    [("reader of a project with nodes", 1), ("service user of another project", 0)],
)
def test_anybody_may_ask_for_those_of_their_own_project(
    fleet: Fleet, viewers: dict[str, User], who: str, count: int
) -> None:
    project_id = viewers[who].project_id
    assert project_id is not None
    assert fleet.answers(viewers[who], project_id) == (200, count)


# What Placement takes from whom.


@pytest.fixture(scope="module")
def placement(keystone: Keystone) -> Iterator[GuardedPlacement]:
    with GuardedPlacement(keystone) as placement:
        yield placement


@pytest.fixture
def credentials(
    keystone: Keystone, placement: GuardedPlacement, service_user: User
) -> dict[str, str]:
    """The options of a user whose tokens Placement takes; it is in that Keystone's catalog."""
    return keystone.auth_options(service_user)


def section(options: Mapping[str, str]) -> str:
    lines = [f"{key} = {value}" for key, value in options.items()]
    return "\n".join(["[placement]", "embedded = false", *lines, ""])


def program(directory: Path, options: Mapping[str, str]) -> Program:
    made = Program(directory)
    made.config.write_text(f"{made.config.read_text()}\n{section(options)}")
    return made


def adapter(directory: Path, options: Mapping[str, str]) -> Adapter:
    path = directory / "wharfinger.conf"
    path.write_text(section(options))
    return make_adapter(load([str(path)]))


def client(directory: Path, options: Mapping[str, str]) -> PlacementClient:
    return PlacementClient(adapter(directory, options))


def static(placement: GuardedPlacement, token: str) -> dict[str, str]:
    """The options of who has but that token."""
    return {"auth_type": "admin_token", "endpoint": placement.url, "token": token}


def refusal(client: PlacementClient) -> PermissionRefused:
    """Why the client may not list the providers."""
    with pytest.raises(PermissionRefused) as caught:
        client.list_providers()
    return caught.value


def test_a_user_with_the_service_role_publishes_and_lists(
    credentials: dict[str, str], tmp_path: Path
) -> None:
    ours = program(tmp_path, credentials)
    assert ours.run("sync").code == 0
    listed = ours.run("provider", "list", "-f", "json")
    assert (listed.code, listed.err) == (0, "")
    assert "gpu-host-1" in [provider["Name"] for provider in json.loads(listed.out)]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"password": "guessed"}, "401: not allowed: Keystone: "),
        ({"region_name": "elsewhere"}, "placement service in elsewhere region not found"),
    ],
    ids=["password", "region"],
)
def test_the_program_says_what_is_wrong_with_the_credentials(
    credentials: dict[str, str],
    tmp_path: Path,
    wrong: dict[str, str],
    told: str,
    command: tuple[str, ...],
) -> None:
    done = program(tmp_path, {**credentials, **wrong}).run(*command)
    assert (done.code, done.out) == (1, "")
    assert told in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_program_says_what_role_is_missing(
    keystone: Keystone, placement: GuardedPlacement, tmp_path: Path, command: tuple[str, ...]
) -> None:
    member = keystone.create_user(f"member-{uuid4().hex}", SERVICE_PROJECT, "member")
    done = program(tmp_path, keystone.auth_options(member)).run(*command)
    assert (done.code, done.out) == (1, "")
    assert "403: not allowed" in done.err
    assert "this takes the admin or the service role" in done.err
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    "wrong", [{"password": "guessed"}, {"project_name": "unknown"}], ids=["password", "project"]
)
def test_what_keystone_does_not_take_is_refused(
    credentials: dict[str, str], tmp_path: Path, wrong: dict[str, str]
) -> None:
    refused = refusal(client(tmp_path, {**credentials, **wrong}))
    assert (refused.status, refused.remedy) == (401, CREDENTIALS)


def test_a_token_that_has_ended_is_refused(
    keystone: Keystone, placement: GuardedPlacement, service_user: User, tmp_path: Path
) -> None:
    token = keystone.token(service_user)
    ours = client(tmp_path, static(placement, token))
    ours.list_providers()
    keystone.revoke(token)
    refused = refusal(ours)
    assert (refused.status, refused.remedy) == (401, CREDENTIALS)


def test_a_token_that_has_ended_gives_no_other(
    keystone: Keystone, credentials: dict[str, str], service_user: User, tmp_path: Path
) -> None:
    token = keystone.token(service_user)
    keystone.revoke(token)
    options = {"auth_type": "v3token", "token": token}
    for key in ("auth_url", "project_name", "project_domain_name"):
        options[key] = credentials[key]
    assert refusal(client(tmp_path, options)).remedy == CREDENTIALS


def test_a_token_that_ends_meanwhile_is_replaced(
    keystone: Keystone, credentials: dict[str, str], tmp_path: Path
) -> None:
    below = adapter(tmp_path, credentials)
    ours = PlacementClient(below)
    before = ours.list_providers()
    token = below.get_token()
    assert token is not None
    keystone.revoke(token)
    assert ours.list_providers() == before
    assert below.get_token() != token


def test_an_administrator_of_the_system_is_told_that_placement_wants_a_project(
    keystone: Keystone, placement: GuardedPlacement, tmp_path: Path
) -> None:
    refused = refusal(client(tmp_path, keystone.auth_options(keystone.system_admin)))
    assert refused.status == 403
    assert "project" in refused.remedy


def test_a_placement_that_cannot_ask_keystone_is_not_available_now(tmp_path: Path) -> None:
    with Keystone() as keystone, GuardedPlacement(keystone) as placement:
        ours = client(tmp_path, static(placement, keystone.token(keystone.admin)))
        ours.list_providers()
        keystone.stop()
        with pytest.raises(PlacementUnavailable) as caught:
            ours.list_providers()
    assert caught.value.status == 503
