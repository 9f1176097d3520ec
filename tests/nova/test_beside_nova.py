"""Effects of nova's operations on our devices below its root, and what the program then does.

Each row of the table in docs/reference/beside-nova.rst has one or two tests.
"""

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.lab.beside_nova import (
    HOST,
    Wharfinger,
    create_device_of_cyborg,
    delete_provider,
    devices,
    use,
    users,
)
from tests.lab.cycles import everything

if TYPE_CHECKING:
    from tests.lab.nova_services import Nova

CARD_1, CARD_2 = f"{HOST}_card_1", f"{HOST}_card_2"
FREE, RESERVED = (4, 0), (4, 4)
SAMPLE = Path(__file__).parents[2] / "etc/wharfinger/sample"
NEW_UUID = "0c1c5a4e-0a3b-4f6c-9a0e-6f7c3c1c2d11"
CARD = {"resources1:CUSTOM_CARD_UNIT": "1"}


# Operations without an effect.


def test_periodics_and_refresh_leave_devices_and_reservation(
    nova: "Nova", cards: Wharfinger
) -> None:
    cards.reserve(CARD_1)
    before = everything()

    nova.run_periodics()
    nova.refresh()

    assert everything() == before
    assert cards.sync() == "cards: no change\n"


# Service delete.


def test_service_delete_deletes_root_and_free_devices(nova: "Nova", cards: Wharfinger) -> None:
    cards.reserve(CARD_1)

    nova.stop_compute(HOST)
    nova.delete_service(HOST)

    assert everything() == {}
    done = cards.run("sync")
    assert done.code == 1
    assert f"provider {HOST}" in done.err
    assert "is not in Placement" in done.err


def test_service_delete_and_restart_returns_devices_with_reservation(
    nova: "Nova", cards: Wharfinger
) -> None:
    cards.reserve(CARD_1)
    before = everything()
    nova.stop_compute(HOST)
    nova.delete_service(HOST)
    assert cards.run("sync").code == 1

    nova.start_compute(HOST)
    cards.sync()

    assert everything() == before


def test_service_delete_with_a_server_is_refused_by_nova(nova: "Nova", cards: Wharfinger) -> None:
    nova.boot(CARD)
    before = everything()

    with pytest.raises(Exception, match="hosting instances"):
        nova.delete_service(HOST)

    assert everything() == before
    assert cards.sync() == "cards: no change\n"


def test_service_delete_keeps_device_in_use_and_root(nova: "Nova", cards: Wharfinger) -> None:
    consumer = use(nova.url, CARD_2)
    before = everything()

    nova.stop_compute(HOST)
    nova.delete_service(HOST)

    assert devices() == {CARD_2: FREE}
    assert users(CARD_2) == {consumer: 1}
    assert (
        f"cannot be deleted, because of allocations from {CARD_2} below the root"
        in cards.run("sync").err
    )
    assert everything() == before


def test_service_delete_is_reported_with_root_and_time(nova: "Nova", cards: Wharfinger) -> None:
    nova.stop_compute(HOST)
    nova.delete_service(HOST)
    cards.run("sync")

    assert "since" in cards.run("sync").err


# Reinstallation: service delete, and nova-compute starts with a new uuid.


def test_reinstallation_returns_devices_below_the_new_root(nova: "Nova", cards: Wharfinger) -> None:
    nova.stop_compute(HOST)
    nova.delete_service(HOST)
    nova.start_compute(HOST, NEW_UUID)

    cards.sync()

    assert everything()[HOST]["uuid"] == NEW_UUID
    assert devices() == {CARD_1: FREE, CARD_2: FREE}
    assert cards.sync() == "cards: no change\n"


def test_reinstallation_keeps_the_reservation_of_a_device(nova: "Nova", cards: Wharfinger) -> None:
    cards.reserve(CARD_1)
    nova.stop_compute(HOST)
    nova.delete_service(HOST)
    nova.start_compute(HOST, NEW_UUID)

    cards.sync()

    assert devices() == {CARD_1: RESERVED, CARD_2: FREE}
    cards.do("provider", "release", CARD_1)
    assert devices() == {CARD_1: FREE, CARD_2: FREE}


def test_reinstallation_beside_a_device_in_use_keeps_the_old_root(
    nova: "Nova", cards: Wharfinger
) -> None:
    consumer = use(nova.url, CARD_2)
    old = everything()[HOST]["uuid"]
    nova.stop_compute(HOST)
    nova.delete_service(HOST)

    nova.start_compute(HOST, NEW_UUID)
    nova.refresh()

    assert everything()[HOST]["uuid"] == old
    assert users(CARD_2) == {consumer: 1}


def test_detach_of_a_device_in_use_lets_nova_create_its_new_root(
    nova: "Nova", cards: Wharfinger
) -> None:
    cards.reserve(CARD_1)
    consumer = use(nova.url, CARD_2)
    old = everything()[HOST]["uuid"]
    nova.stop_compute(HOST)
    nova.delete_service(HOST)
    nova.start_compute(HOST, NEW_UUID)
    reported = cards.run("sync")
    assert (
        f"root provider {HOST} ({old}) cannot be deleted, because of allocations from {CARD_2} "
        in reported.err
    )

    for command in re.findall(r"`wharfinger (provider detach \S+)`", reported.err):
        cards.do(*command.split())
    delete_provider(nova.url, old)
    nova.refresh()
    cards.sync()

    assert everything()[HOST]["uuid"] == NEW_UUID
    assert everything()[CARD_2]["parent"] == HOST
    assert users(CARD_2) == {consumer: 1}
    assert devices() == {CARD_1: RESERVED, CARD_2: FREE}


def test_libvirt_driver_reports_an_old_root_that_prevents_novas_new_root(
    nova: "Nova", tmp_path: Path
) -> None:
    """All devices are in use, so nova deletes nothing, and Placement does not change."""
    compute_id = tmp_path / "compute_id"
    gpus = [f"{HOST}_pci_0000_{bus}_00_0" for bus in ("84", "c4")]
    host = shutil.copy(SAMPLE / "host.xml", tmp_path)
    options = {
        "connection_uri": f"test://{host}",
        "hypervisor_hostname": HOST,
        "enabled_mdev_types": "nvidia-231",
        "nova_compute_id_file": str(compute_id),
    }
    with Wharfinger(nova.url, "libvirt", **options) as program:
        compute_id.write_text(old := everything()[HOST]["uuid"])
        program.sync()
        consumers = [use(nova.url, gpu) for gpu in gpus]
        nova.stop_compute(HOST)
        nova.delete_service(HOST)
        nova.start_compute(HOST, NEW_UUID)
        compute_id.write_text(NEW_UUID)
        reported = program.run("sync")
        assert f"root provider {HOST} ({old}) is not that of this host's nova-compute" in (
            reported.err
        )

        for gpu in gpus:
            program.do("provider", "detach", gpu)
        delete_provider(nova.url, old)
        nova.refresh()
        program.sync()

    assert everything()[HOST]["uuid"] == NEW_UUID
    assert [everything()[gpu]["parent"] for gpu in gpus] == [HOST, HOST]
    assert [users(gpu) for gpu in gpus] == [{consumer: 1} for consumer in consumers]


# Renames of the host.


def test_host_rename_by_service_delete_moves_the_devices(nova: "Nova", cards: Wharfinger) -> None:
    nova.stop_compute(HOST)
    nova.delete_service(HOST)
    nova.start_compute("renamed")

    cards.configure(host="renamed")
    cards.sync()

    assert devices() == {"renamed_card_1": FREE, "renamed_card_2": FREE}
    assert cards.sync() == "cards: no change\n"


def test_hypervisor_rename_keeps_the_old_root_and_its_devices(
    nova: "Nova", cards: Wharfinger
) -> None:
    nova.has_node(HOST, "renamed")
    nova.run_periodics()

    assert {HOST, "renamed"} <= everything().keys()
    assert devices() == {CARD_1: FREE, CARD_2: FREE}
    assert cards.sync() == "cards: no change\n"


def test_hypervisor_rename_ends_with_the_deletion_of_the_old_devices_and_root(
    nova: "Nova", cards: Wharfinger
) -> None:
    nova.has_node(HOST, "renamed")
    nova.run_periodics()
    cards.configure(host="renamed")

    for name in (CARD_1, CARD_2, HOST):
        delete_provider(nova.url, everything()[name]["uuid"])
    cards.sync()

    assert devices() == {"renamed_card_1": FREE, "renamed_card_2": FREE}
    nova.refresh()
    assert HOST not in everything()
    assert cards.sync() == "cards: no change\n"


# Deletion of the compute node, as when nova's driver reports that the node is gone.


def test_compute_node_deletion_deletes_root_and_free_devices(
    nova: "Nova", cards: Wharfinger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nova.virt.fake.FakeDriver.is_node_deleted", lambda *_: True)
    nova.has_node(HOST, "other")

    nova.run_periodics()

    assert everything().keys() == {"other"}
    assert cards.run("sync").code == 1


def test_compute_node_deletion_keeps_device_in_use_and_root(
    nova: "Nova", cards: Wharfinger, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = use(nova.url, CARD_2)
    monkeypatch.setattr("nova.virt.fake.FakeDriver.is_node_deleted", lambda *_: True)
    nova.has_node(HOST, "other")

    nova.run_periodics()

    assert everything().keys() == {HOST, CARD_2, "other"}
    assert users(CARD_2) == {consumer: 1}


# Evacuation.


def test_evacuation_takes_a_device_of_the_target_and_frees_the_other(
    nova: "Nova", cards: Wharfinger
) -> None:
    nova.start_compute("host2")
    with Wharfinger(nova.url, host="host2") as cards_2:
        cards_2.sync()
        server = nova.boot(CARD, host=HOST)
        nova.stop_compute(HOST)

        nova.evacuate(server, HOST, "host2")

        # The source keeps both allocations until its nova-compute is back.
        assert {name[: len(HOST)] for name in devices() if users(name)} == {HOST, "host2"}
        for program in (cards, cards_2):
            assert program.sync() == "cards: no change\n"
        nova.start_compute(HOST)
        assert [users(name) for name in devices() if users(name)] == [{server: 1}]
        assert not (users(CARD_1) or users(CARD_2))
        for program in (cards, cards_2):
            assert program.sync() == "cards: no change\n"


# Reservations of providers that nova writes.


def test_reservation_of_root_is_refused_with_the_alternatives(
    nova: "Nova", cards: Wharfinger
) -> None:
    done = cards.run("provider", "reserve", "--reason", "x", HOST)

    assert done.code == 1
    assert "openstack compute service set --disable" in done.err


# nova-manage.


def test_heal_allocations_leaves_allocations_of_others(nova: "Nova", gpus: Wharfinger) -> None:
    use(nova.url, CARD_2)
    before = everything()

    code, _ = nova.manage_placement("heal_allocations")

    assert code == 4  # exit code: nothing was healed
    assert everything() == before
    assert gpus.sync() == "gpus: no change\n"


def test_audit_reports_allocations_of_others(nova: "Nova", gpus: Wharfinger) -> None:
    consumer = use(nova.url, CARD_2)
    before = everything()

    code, out = nova.manage_placement("audit", verbose=True)

    assert code == 3  # exit code: there are allocations to delete
    assert consumer in out
    assert everything() == before


def test_audit_delete_leaves_allocations_of_custom_classes(nova: "Nova", cards: Wharfinger) -> None:
    use(nova.url, CARD_2)
    before = everything()

    code, _ = nova.manage_placement("audit", delete=True)

    assert code == 0
    assert everything() == before


def test_audit_delete_deletes_allocations_of_others(nova: "Nova", gpus: Wharfinger) -> None:
    use(nova.url, CARD_2)

    code, _ = nova.manage_placement("audit", delete=True)

    assert code == 4  # exit code: allocations were deleted
    assert users(CARD_2) == {}
    assert gpus.sync() == "gpus: no change\n"


def test_audit_delete_of_our_claim_reserves_the_device(nova: "Nova", gpus: Wharfinger) -> None:
    consumer = gpus.claim("VGPU")
    [used] = [name for name in (CARD_1, CARD_2) if users(name)]

    nova.manage_placement("audit", delete=True)
    done = gpus.run("sync")

    assert consumer in done.err
    assert f"instance repair {consumer}" in done.err
    assert devices()[used] == RESERVED
    gpus.do("instance", "repair", consumer)
    assert users(used) == {consumer: 1}
    assert devices()[used] == FREE


# Instances that users boot.


def test_boot_takes_our_device_of_the_same_owner(nova: "Nova", cards: Wharfinger) -> None:
    server = nova.boot(CARD)

    [used] = [name for name in (CARD_1, CARD_2) if users(name)]
    assert users(used) == {server: 1}
    assert cards.sync() == "cards: no change\n"


def test_boot_takes_no_reserved_device(nova: "Nova", cards: Wharfinger) -> None:
    for device in (CARD_1, CARD_2):
        cards.reserve(device)

    nova.boot(CARD, "ERROR")

    assert devices() == {CARD_1: RESERVED, CARD_2: RESERVED}
    assert not (users(CARD_1) or users(CARD_2))


def test_boot_takes_a_device_of_another_owner(nova: "Nova") -> None:
    create_device_of_cyborg(nova.url, CARD_1)

    server = nova.boot({"resources1:VGPU": "1"})

    assert users(CARD_1) == {server: 1}


def test_boot_that_requires_the_trait_of_nova_takes_no_device_of_another_owner(
    nova: "Nova",
) -> None:
    create_device_of_cyborg(nova.url, CARD_1)

    nova.boot({"resources1:VGPU": "1", "trait1:OWNER_NOVA": "required"}, "ERROR")

    assert users(CARD_1) == {}


def test_boot_that_requires_the_trait_of_nova_takes_a_device_of_nova(
    nova: "Nova", gpus: Wharfinger
) -> None:
    server = nova.boot({"resources1:VGPU": "1", "trait1:OWNER_NOVA": "required"})

    assert [users(name) for name in devices() if users(name)] == [{server: 1}]


def test_flavor_for_nova_has_the_extra_specs_that_keep_owners_apart(gpus: Wharfinger) -> None:
    gpus.do("flavor", "create", "gpu", "--property", "resources1:VGPU=1")

    shown = gpus.do("flavor", "show", "gpu", "--for", "nova")

    assert "resources1:VGPU" in shown
    assert "trait1:OWNER_NOVA" in shown
