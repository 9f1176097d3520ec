"""``wharfinger status``, ``sync`` and ``provider reserve`` on a host where nova runs, too."""

import pytest

from tests.functional.cli.outcomes import failed, shown
from tests.lab import inprocess
from tests.lab.program import Program
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.placement.embedded import EmbeddedPlacement
from wharfinger.providers import Inventory

NODE = "gpu-host-1"


@pytest.fixture
def client(placement_service: EmbeddedPlacement) -> WritingClient:
    return WritingClient(placement_service.adapter)


def nova_writes(client: WritingClient) -> str:
    """Write the root with 10 VCPUs as nova-compute does; return its uuid."""
    found = client.list_providers(name=NODE)
    one = (
        found[0]
        if found
        else client.create_provider("00000000-0000-0000-0000-0000000000aa", NODE, None)
    )
    generation = client.set_inventories(one.uuid, one.generation, {"VCPU": Inventory(total=10)})
    client.set_traits(one.uuid, generation, {"OWNER_NOVA", "COMPUTE_NODE"})
    return one.uuid


def vcpus(client: WritingClient, uuid: str) -> int:
    return client.get_inventories(uuid).inventories["VCPU"].total


def test_status_without_a_fight_is_empty(program: Program, client: WritingClient) -> None:
    assert inprocess.run(program, "sync").code == 0
    nova_writes(client)
    assert inprocess.run(program, "sync").code == 0

    assert shown(program, "status") == []


def test_status_lists_a_fight_after_three_syncs_until_it_ends(
    program: Program, client: WritingClient
) -> None:
    """The program has published the root before nova-compute starts."""
    for number in range(4):
        done = inprocess.run(program, "sync")
        assert done.code == 0
        assert ("fight over this provider" in done.err) is (number == 3), number
        assert "`wharfinger status`" in done.err or number < 3
        if number < 3:
            uuid = nova_writes(client)

    rows = {one["What"]: one for one in shown(program, "status")}
    assert rows["inventory of VCPU"] == {
        "Provider": NODE,
        "UUID": uuid,
        "Driver": "gpus",
        "Host": NODE,
        "What": "inventory of VCPU",
        "Ours": "total 64, reserved 2, max_unit 64, allocation_ratio 4.0",
        "Theirs": "total 10, reserved 0, max_unit 2147483647, allocation_ratio 1.0",
        "Times Undone": 3,
        "Other Writer": f"nova-compute on {NODE}",
    }
    assert inprocess.run(program, "sync").out == "gpus: no change\n"
    assert shown(program, "status") == []


def test_sync_beside_nova_overlays_its_root_and_reserve_of_it_names_alternatives(
    program: Program, client: WritingClient
) -> None:
    uuid = nova_writes(client)

    done = inprocess.run(program, "sync")

    assert (done.code, done.err) == (0, "")
    assert vcpus(client, uuid) == 10
    assert client.list_providers(name=f"{NODE}_pci_0000_84_00_0")[0].parent_provider_uuid == uuid
    refused = inprocess.run(program, "provider", "reserve", NODE, "--reason", "burns")
    failed(refused, f"openstack compute service set --disable {NODE} nova-compute")
    child = f"{NODE}_pci_0000_84_00_0"
    assert inprocess.run(program, "provider", "reserve", child, "--reason", "burns").code == 0
