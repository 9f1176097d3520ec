"""The Ironic that the other tests use: that its nodes do as they are told."""

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
import requests

from tests.lab.keystone import SERVICE_PROJECT, Keystone
from tests.lab.postgresql import PostgreSQL
from wharfinger_harnesses.daemons import LabError, PythonDaemon
from wharfinger_harnesses.ironic import Ironic

TRAITS = ["CUSTOM_GOLD", "HW_CPU_X86_VMX"]
FLEET = 5000


class WithoutConfiguration(PythonDaemon):
    """The program in an empty directory, with no options for Python."""

    def _setUp(self) -> None:
        super()._setUp()
        self.start(sys.executable, str(Ironic.service_program), str(self.directory))


@pytest.fixture(scope="module")
def ironic() -> Iterator[Ironic]:
    with Ironic() as ironic:
        yield ironic


@pytest.fixture
def alone() -> Iterator[Ironic]:
    with Ironic() as ironic:
        yield ironic


def enrolled(ironic: Ironic, **told: str) -> str:
    """A manageable node that does as it is told."""
    uuid = ironic.create_node(f"node-{uuid4()}", extra={"lab": told})
    ironic.provision(uuid, "manage")
    ironic.wait_for(uuid, "manageable")
    return uuid


def test_a_node_becomes_available_with_its_power_known(ironic: Ironic) -> None:
    uuid = ironic.create_node(None)

    ironic.make_available(uuid)

    node = ironic.node(uuid)
    assert node["power_state"] == "power off"
    assert node["reservation"] is None


def test_a_node_holds_until_it_has_a_go(ironic: Ironic) -> None:
    uuid = enrolled(ironic, clean="hold", deploy="hold", delete="hold")
    ironic.provision(uuid, "provide")
    assert ironic.wait_for(uuid, "cleaning")["reservation"] == ironic.host
    ironic.go(uuid)
    ironic.wait_for(uuid, "available")

    instance = str(uuid4())
    ironic.deploy(uuid, instance)
    ironic.wait_for(uuid, "deploying")
    ironic.go(uuid)
    assert ironic.wait_for(uuid, "active")["instance_uuid"] == instance

    ironic.provision(uuid, "deleted")
    ironic.wait_for(uuid, "deleting")
    ironic.go(uuid)
    assert ironic.wait_for(uuid, "cleaning")["instance_uuid"] is None
    ironic.go(uuid)
    ironic.wait_for(uuid, "available")


def test_a_node_waits_unlocked_until_it_has_a_go(ironic: Ironic) -> None:
    uuid = enrolled(ironic, clean="wait", deploy="wait")
    ironic.provision(uuid, "provide")
    waiting = ironic.wait_for(uuid, "clean wait")
    ironic.set_maintenance(uuid, "a look at its fans")
    ironic.end_maintenance(uuid)
    assert ironic.node(uuid)["updated_at"] > waiting["updated_at"]
    ironic.go(uuid)
    ironic.wait_for(uuid, "available")

    ironic.deploy(uuid, str(uuid4()))
    ironic.wait_for(uuid, "wait call-back")
    ironic.go(uuid)
    ironic.wait_for(uuid, "active")


def test_what_is_told_to_fail_fails(ironic: Ironic) -> None:
    uuid = enrolled(ironic, clean="fail")
    ironic.provision(uuid, "provide")
    failed = ironic.wait_for(uuid, "clean failed")
    assert (failed["maintenance"], failed["fault"]) == (True, "clean failure")
    assert "the lab has clean fail" in failed["last_error"]

    other = enrolled(ironic, deploy="fail", delete="fail")
    ironic.provision(other, "provide")
    ironic.wait_for(other, "available")
    ironic.deploy(other, str(uuid4()))
    ironic.wait_for(other, "deploy failed")
    ironic.provision(other, "deleted")
    ironic.wait_for(other, "error")


def test_who_waits_in_vain_hears_why(ironic: Ironic) -> None:
    uuid = enrolled(ironic, clean="fail")
    ironic.provision(uuid, "provide")

    with pytest.raises(LabError, match=r"not available but clean failed(.|\n)*has clean fail"):
        ironic.wait_for(uuid, "available")


def test_what_ironic_refuses_is_told(ironic: Ironic) -> None:
    with pytest.raises(LabError, match=r"POST /v1/nodes: 400: .*interface"):
        ironic.create_node(None, deploy_interface="nosuch")


def test_a_node_can_be_another_projects(ironic: Ironic) -> None:
    uuid = ironic.create_node(None, owner="harbour")

    assert ironic.node(uuid)["owner"] == "harbour"


def test_inserted_nodes_are_as_real(alone: Ironic) -> None:
    first = alone.create_node("first")
    alone.set_traits(first, *TRAITS)
    alone.make_available(first)
    moment = datetime(2024, 2, 29, 12, tzinfo=UTC)

    uuids = alone.insert_nodes(
        FLEET,
        resource_class=lambda index: f"class-{index % 2}",
        updated_at=lambda index: None if index else moment.replace(tzinfo=None),
    )

    path = "/v1/nodes?fields=uuid,resource_class,traits,provision_state&limit=1000"
    listed: dict[str, Any] = {}
    while path:
        page = alone.ask("GET", path).json()
        listed |= {node["uuid"]: node for node in page["nodes"]}
        path = page.get("next", "").removeprefix(alone.url)
    del listed[first]
    assert list(listed) == uuids
    assert {node["provision_state"] for node in listed.values()} == {"available"}
    assert all(sorted(node["traits"]) == TRAITS for node in listed.values())
    assert [listed[uuid]["resource_class"] for uuid in uuids[:2]] == ["class-0", "class-1"]
    assert datetime.fromisoformat(alone.node(uuids[0])["updated_at"]) == moment
    assert alone.node(uuids[1])["updated_at"] is None
    alone.set_maintenance(uuids[1], "real enough")


def test_its_database_can_be_changed_behind_its_back(ironic: Ironic) -> None:
    uuid = ironic.create_node(None)

    ironic.execute("UPDATE nodes SET conductor_group = :it WHERE uuid = :uuid", it="a", uuid=uuid)

    assert ironic.node(uuid)["conductor_group"] == "a"


def test_it_comes_back_where_it_was(alone: Ironic) -> None:
    uuid = enrolled(alone, clean="hold")
    alone.provision(uuid, "provide")
    alone.wait_for(uuid, "cleaning")

    alone.stop()
    with pytest.raises(requests.ConnectionError):
        alone.node(uuid)
    alone.start_again()

    assert "cleaning" in alone.wait_for(uuid, "clean failed")["last_error"]


def test_it_takes_options() -> None:
    with Ironic({"api": {"max_limit": 2}}) as ironic:
        for _ in range(3):
            ironic.create_node(None)

        assert len(ironic.ask("GET", "/v1/nodes").json()["nodes"]) == 2


def test_it_needs_no_configuration_and_leaves_the_terminal_alone() -> None:
    with WithoutConfiguration() as program:
        port = int((program.directory / "port").read_text())
        answer = requests.get(f"http://127.0.0.1:{port}/v1/drivers", timeout=60)

        assert {driver["name"] for driver in answer.json()["drivers"]} == {"fake-hardware", "lab"}
        assert (program.directory / "log").read_text() == ""
        assert (program.directory / "ironic.log").read_text()


def test_it_keeps_its_nodes_in_postgresql_as_well() -> None:
    with (
        PostgreSQL() as server,
        Ironic({"database": {"connection": server.create_database()}}) as ironic,
    ):
        first = ironic.create_node("first")
        ironic.set_traits(first, *TRAITS)
        ironic.make_available(first)
        uuids = ironic.insert_nodes(3, updated_at=None)

        listed = ironic.ask("GET", "/v1/nodes?fields=uuid,traits").json()["nodes"]

    assert [node["uuid"] for node in listed] == [first, *uuids]
    assert all(sorted(node["traits"]) == TRAITS for node in listed)


def test_it_asks_keystone_who_asks() -> None:
    with Keystone() as keystone:
        user = keystone.create_user("ironic", SERVICE_PROJECT, "service")
        options = {
            "DEFAULT": {"auth_strategy": "keystone"},
            "keystone_authtoken": keystone.authtoken_options(user),
        }
        with Ironic(options) as ironic:
            assert ironic.ask("GET", "/v1/nodes").status_code == 401

            ironic.headers["X-Auth-Token"] = keystone.token(keystone.system_admin)
            uuid = ironic.create_node(None, owner="harbour")
            ironic.make_available(uuid)
            assert ironic.node(uuid)["owner"] == "harbour"
