"""``wharfinger instance`` and ``migration recover``: claims, moves and releases."""

from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa

from tests.functional.cli.outcomes import failed, shown
from tests.lab import inprocess
from tests.lab.allocating import faults, held
from tests.lab.objects import KeptInFile
from tests.lab.placement import Requests, adapter_to
from tests.lab.program import Done, Program
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.objects import Instance, InstanceList, Migration, MigrationList
from wharfinger.placement.embedded import EmbeddedPlacement
from wharfinger.scheduling import provider_details

HOST = "gpu-host-1"
GPU = f"{HOST}_pci_0000_84_00_0"
#: The allocations of an instance with the flavor small, and with the flavor large.
SMALL = {HOST: {"VCPU": 2, "MEMORY_MB": 1024}, GPU: {"VGPU": 1}}
LARGE = {HOST: {"VCPU": 2, "MEMORY_MB": 1024}, GPU: {"VGPU": 5}}


@pytest.fixture
def program(program: Program) -> Program:
    """The program after a sync of the sample host, with the flavors small and large."""
    assert inprocess.run(program, "sync").code == 0
    for name, amount in (("small", 1), ("large", 5)):
        options = ("--vcpus", "2", "--ram", "1024", "--property", f"resources:VGPU={amount}")
        assert inprocess.run(program, "flavor", "create", name, *options).code == 0
    return program


def run(program: Program, *arguments: str) -> Done:
    return inprocess.run(program, "instance", *arguments)


def claimed(program: Program, flavor: str = "small", *more: str) -> str:
    """Claim resources for a new instance; return the instance's uuid."""
    uuid: str = shown(program, "instance", "claim", "--flavor", flavor, *more)["uuid"]
    return uuid


def interrupted_move(kept: KeptInFile, uuid: str, status: str) -> Migration:
    """Give the instance's only move this status and an old time, as after a process's death."""
    [migration] = MigrationList.get_by_filters(kept.context, instance_uuid=uuid)
    with kept.engine.begin() as connection:
        connection.execute(
            sa.text(
                "UPDATE migrations SET status = :status, updated_at = '2001-01-01 00:00:00.000000'"
                " WHERE uuid = :uuid"
            ),
            {"status": status, "uuid": migration.uuid},
        )
    return migration


def test_claim_is_shown_with_its_allocations(program: Program, kept: KeptInFile) -> None:
    data = shown(program, "instance", "claim", "--flavor", "small")

    uuid = data["uuid"]
    assert held() == {uuid: SMALL}
    assert {name: data[name] for name in ("flavor", "host", "node", "status", "migrations")} == {
        "flavor": "small",
        "host": HOST,
        "node": HOST,
        "status": "claimed",
        "migrations": [],
    }
    assert [
        (one["consumer"], one["provider"], one["resources"]) for one in data["allocations"]
    ] == [
        ("instance", HOST, {"MEMORY_MB": 1024, "VCPU": 2}),
        ("instance", GPU, {"VGPU": 1}),
    ]
    assert not faults(kept.context)

    migrated = run(program, "migrate", uuid)
    failed(migrated, f"1 free candidate is elsewhere: on node {HOST} of host ")
    assert held() == {uuid: SMALL}

    assert run(program, "resize", uuid, "--flavor", "large").code == 0
    text = run(program, "show", uuid).out
    for line in (
        f"{HOST}: MEMORY_MB=1024 VCPU=2",
        f"{GPU}: VGPU=5",
        f"{GPU}: VGPU=1 (migration)",
    ):
        assert line in text


def test_claim_repeated_with_the_same_uuid_has_one_effect(
    program: Program, kept: KeptInFile
) -> None:
    uuid = str(uuid4())
    for _ in range(2):
        assert claimed(program, "large", "--uuid", uuid) == uuid
    assert held() == {uuid: LARGE}

    failed(
        run(program, "claim", "--flavor", "small", "--uuid", uuid),
        "an instance with this uuid, but another flavor, already exists",
    )
    failed(
        run(program, "claim", "--flavor", "large"),
        "no candidate is free. Run `wharfinger candidate explain --flavor large` to see",
    )
    assert len(InstanceList.get_by_filters(kept.context).objects) == 1


def test_missing_flavor_node_or_instance_is_named(program: Program) -> None:
    for arguments, told in (
        (("claim", "--flavor", "none"), "there is no Flavor none"),
        (("claim", "--flavor", "small", "--node", "none"), "there is no ComputeNode none"),
        (("resize", str(uuid4()), "--flavor", "small"), "there is no Instance"),
    ):
        failed(run(program, *arguments), told)
    for verb in ("show", "release", "confirm", "revert", "migrate"):
        failed(run(program, verb, str(uuid4())), "there is no Instance")
    assert not held()


def test_confirm_repeated_has_one_effect(program: Program, kept: KeptInFile) -> None:
    uuid = claimed(program)
    begun = run(program, "resize", uuid, "--flavor", "large", "-f", "json")
    assert begun.code == 0
    [migration] = MigrationList.get_by_filters(kept.context)
    assert begun.err == (
        f"Migration {migration.uuid} still holds the former resources on node {HOST}. To "
        f"release them, run `wharfinger instance confirm {uuid}`; to return to them, `wharfinger "
        f"instance revert {uuid}`.\n"
    )
    assert held() == {uuid: LARGE, migration.uuid: SMALL}
    assert (begun.json()["status"], begun.json()["flavor"]) == ("resize finished", "small")

    for _ in range(2):
        done = run(program, "confirm", uuid)
        assert (done.code, done.err) == (0, "")
        assert done.out == (
            f"instance {uuid}: migration {migration.uuid} is confirmed: flavor large, on node "
            f"{HOST} of host {HOST}\n"
        )
    assert held() == {uuid: LARGE}
    assert run(program, "revert", uuid).code == 1
    assert held() == {uuid: LARGE}


def test_revert_repeated_has_one_effect(program: Program) -> None:
    uuid = claimed(program)
    assert run(program, "resize", uuid, "--flavor", "large").code == 0

    for _ in range(2):
        done = run(program, "revert", uuid)
        assert (done.code, done.err) == (0, "")
        assert " is reverted: flavor small, on node " in done.out
    assert held() == {uuid: SMALL}
    assert run(program, "confirm", uuid).code == 1


def test_release_deletes_instance_and_allocations(program: Program, kept: KeptInFile) -> None:
    first, second = claimed(program), claimed(program)
    assert run(program, "resize", first, "--flavor", "large").code == 0

    for uuid in (first, second):
        done = run(program, "release", uuid)
        assert (done.code, done.out, done.err) == (0, f"instance {uuid}: released\n", "")

    assert not held()
    assert not InstanceList.get_by_filters(kept.context).objects
    assert not faults(kept.context)


def test_instance_list_shows_status(program: Program, kept: KeptInFile, requests: Requests) -> None:
    one, moving, unfinished = (claimed(program) for _ in range(3))
    assert run(program, "resize", moving, "--flavor", "large").code == 0
    cut_short = Instance.get_by_uuid(kept.context, unfinished)
    cut_short.task_state = "releasing"
    cut_short.save()
    requests.clear()

    done = run(program, "list", "-f", "json")

    assert (done.code, done.err) == (0, "")
    assert [(row["UUID"], row["Node"], row["Status"]) for row in done.json()] == [
        (one, HOST, "claimed"),
        (moving, HOST, "resize finished"),
        (unfinished, HOST, "releasing"),
    ]
    assert not requests.seen
    assert {row["UUID"] for row in run(program, "list", "--node", HOST, "-f", "json").json()} == {
        one,
        moving,
        unfinished,
    }


# Recovery.


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("status", "becomes", "has"),
    [
        ("confirming", "confirmed", LARGE),
        ("reverting", "reverted", SMALL),
        ("pre-migrating", "failed", SMALL),
        ("accepted", "failed", SMALL),
    ],
)
def test_recover_ends_an_interrupted_move(
    program: Program, kept: KeptInFile, status: str, becomes: str, has: dict[str, Any]
) -> None:
    uuid = claimed(program)
    assert run(program, "resize", uuid, "--flavor", "large").code == 0
    migration = interrupted_move(kept, uuid, status)

    done = inprocess.run(program, "migration", "recover")

    assert (done.code, done.err) == (0, "")
    assert done.out == f"migration {migration.uuid} of instance {uuid}: {becomes}\n"
    assert held() == {uuid: has}
    assert not faults(kept.context)
    assert inprocess.run(program, "migration", "recover").out == ""


def test_recover_keeps_waiting_and_running_moves(program: Program, kept: KeptInFile) -> None:
    waits, works = claimed(program), claimed(program)
    assert run(program, "resize", waits, "--flavor", "large").code == 0
    interrupted_move(kept, waits, "finished")
    begun = Migration(
        kept.context,
        instance_uuid=works,
        migration_type="resize",
        source_compute=HOST,
        source_node=HOST,
        dest_compute=None,
        dest_node=None,
        old_flavor=Instance.get_by_uuid(kept.context, works).flavor,
        new_flavor=Instance.get_by_uuid(kept.context, works).flavor,
    )
    begun.create()
    before = held()

    done = inprocess.run(program, "migration", "recover")

    assert (done.code, done.out, done.err) == (0, "", "")
    assert held() == before
    refused = run(program, "revert", works)
    assert refused.code == 1
    assert "Wait until the migration has status finished." in refused.err


def test_recover_continues_after_a_move_that_fails(
    program: Program, kept: KeptInFile, placement_url: tuple[str, Requests]
) -> None:
    options = ("--vcpus", "2", "--ram", "1024", "--property", "resources:VGPU=2")
    assert inprocess.run(program, "flavor", "create", "two", *options).code == 0
    first, second = claimed(program), claimed(program, "two")
    for uuid, flavor in ((first, "two"), (second, "small")):
        assert run(program, "resize", uuid, "--flavor", flavor).code == 0
        interrupted_move(kept, uuid, "reverting")
    # The first move cannot be reverted: its former allocation no longer fits the inventory.
    client = WritingClient(adapter_to(placement_url[0]))
    device = provider_details.find(client, GPU)
    live = client.get_inventories(device.uuid)
    sized = {"VGPU": replace(live.inventories["VGPU"], min_unit=2)}
    client.set_inventories(device.uuid, live.resource_provider_generation, sized)

    done = inprocess.run(program, "migration", "recover")

    assert done.code == 1
    assert (
        f"instance {first}: the move cannot be reverted, since Placement refuses the former "
        in done.err
    )
    assert held()[second][GPU] == {"VGPU": 2}
    assert f"of instance {second}: reverted\n" in done.out
    assert run(program, "confirm", first).code == 0
    assert not faults(kept.context)


# Allocations that another program has deleted.


@pytest.fixture
def service_role(placement_service: EmbeddedPlacement, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the program's user the service role, too."""
    application = placement_service.application

    def with_role(environ: dict[str, Any], start_response: Any) -> Any:
        return application({"HTTP_X_ROLES": "admin,service"} | environ, start_response)

    monkeypatch.setattr(placement_service, "application", with_role)


@pytest.fixture
def lost(program: Program, placement_url: tuple[str, Requests]) -> str:
    """The uuid of an instance whose allocation was deleted, which a cycle has found."""
    uuid = claimed(program)
    assert inprocess.run(program, "sync").code == 0
    WritingClient(adapter_to(placement_url[0])).delete_allocations(uuid)
    found = inprocess.run(program, "sync")
    assert found.code == 1
    assert f"`wharfinger instance repair {uuid}`" in found.err
    assert inprocess.run(program, "sync").code == 0
    return uuid


def test_repair_of_a_lost_allocation_allocates_the_same_again(
    program: Program, kept: KeptInFile, service_role: None, lost: str
) -> None:
    [listed] = shown(program, "instance", "list")
    assert listed["Status"] == "allocation lost"
    assert shown(program, "instance", "show", lost)["status"] == "allocation lost"
    reserved = shown(program, "reservation", "list")
    assert {one["Provider"]: one["Reason"] for one in reserved} == dict.fromkeys(
        SMALL, f"allocation of instance {lost} is gone"
    )

    done = run(program, "repair", lost)

    assert done.code == 0, done.err
    assert done.out.startswith(f"instance {lost}: it has ")
    assert f"VGPU=1 of {GPU} (" in done.out
    assert held() == {lost: SMALL}
    assert shown(program, "reservation", "list") == []
    [listed] = shown(program, "instance", "list")
    assert listed["Status"] == "claimed"
    assert inprocess.run(program, "sync").code == 0
    assert not faults(kept.context)


def test_repair_with_release_of_a_lost_allocation_deletes_the_instance(
    program: Program, kept: KeptInFile, lost: str
) -> None:
    done = run(program, "repair", "--release", lost)

    assert (done.code, done.out) == (0, f"instance {lost}: released\n")
    assert shown(program, "instance", "list") == []
    assert shown(program, "reservation", "list") == []
    assert not faults(kept.context)


def test_repair_with_release_of_an_instance_that_has_its_allocation_is_refused(
    program: Program, kept: KeptInFile
) -> None:
    uuid = claimed(program)
    failed(run(program, "repair", "--release", uuid), f"`wharfinger instance release {uuid}`")
    assert held() == {uuid: SMALL}
