"""What each operation of nova does to our devices below its root, and what we do then.

One test, or two, for each row of the table in docs/beside-nova.rst.
"""

from typing import TYPE_CHECKING

import pytest

from tests.lab.beside_nova import HOST, devices, use, users
from tests.lab.cycles import everything

if TYPE_CHECKING:
    from tests.lab.beside_nova import Wharfinger
    from tests.lab.nova_services import Nova

CARD_1, CARD_2 = f"{HOST}_card_1", f"{HOST}_card_2"
FREE, RESERVED = (4, 0), (4, 4)
CARD = {"resources1:CUSTOM_CARD_UNIT": "1"}


# Nothing happens.


def test_periodics_and_refresh_leave_devices_and_reservation(
    nova: "Nova", cards: "Wharfinger"
) -> None:
    cards.reserve(CARD_1)
    before = everything()

    nova.run_periodics()
    nova.refresh()

    assert everything() == before
    assert cards.sync() == "cards: no change\n"


# Service delete.


def test_service_delete_deletes_root_and_free_devices(nova: "Nova", cards: "Wharfinger") -> None:
    cards.reserve(CARD_1)

    nova.stop_compute(HOST)
    nova.delete_service(HOST)

    assert everything() == {}
    done = cards.run("sync")
    assert done.code == 1
    assert f"provider {HOST}" in done.err
    assert "is not in Placement" in done.err


@pytest.mark.xfail(strict=True, reason="item 8: the first cycle after the root is back")
def test_service_delete_and_restart_returns_devices_with_reservation(
    nova: "Nova", cards: "Wharfinger"
) -> None:
    cards.reserve(CARD_1)
    before = everything()
    nova.stop_compute(HOST)
    nova.delete_service(HOST)
    assert cards.run("sync").code == 1

    nova.start_compute(HOST)
    cards.sync()

    assert everything() == before


def test_service_delete_with_a_server_is_refused_by_nova(nova: "Nova", cards: "Wharfinger") -> None:
    nova.boot(extra_specs=CARD)
    before = everything()

    with pytest.raises(Exception, match="hosting instances"):
        nova.delete_service(HOST)

    assert everything() == before
    assert cards.sync() == "cards: no change\n"


def test_service_delete_keeps_device_in_use_and_root(nova: "Nova", cards: "Wharfinger") -> None:
    consumer = use(nova.url, CARD_2)
    before = everything()

    nova.stop_compute(HOST)
    nova.delete_service(HOST)

    assert devices() == {CARD_2: FREE}
    assert users(CARD_2) == {consumer: 1}
    cards.sync()
    assert everything() == before


# nova-manage.


def test_heal_allocations_leaves_allocations_of_others(nova: "Nova", gpus: "Wharfinger") -> None:
    use(nova.url, CARD_2)
    before = everything()

    code, _ = nova.manage_placement("heal_allocations")

    assert code == 4  # there was nothing to heal
    assert everything() == before
    assert gpus.sync() == "gpus: no change\n"


def test_audit_reports_allocations_of_others(nova: "Nova", gpus: "Wharfinger") -> None:
    consumer = use(nova.url, CARD_2)
    before = everything()

    code, out = nova.manage_placement("audit", verbose=True)

    assert code == 3  # there are allocations that it would delete
    assert consumer in out
    assert everything() == before


def test_audit_delete_leaves_allocations_of_custom_classes(
    nova: "Nova", cards: "Wharfinger"
) -> None:
    use(nova.url, CARD_2)
    before = everything()

    code, _ = nova.manage_placement("audit", delete=True)

    assert code == 0
    assert everything() == before


def test_audit_delete_deletes_allocations_of_others(nova: "Nova", gpus: "Wharfinger") -> None:
    use(nova.url, CARD_2)

    code, _ = nova.manage_placement("audit", delete=True)

    assert code == 4  # allocations were deleted
    assert users(CARD_2) == {}
    assert gpus.sync() == "gpus: no change\n"


@pytest.mark.xfail(strict=True, reason="items 5 and 6: claims below an overlay root, and lost ones")
def test_audit_delete_of_our_claim_reserves_the_device(nova: "Nova", gpus: "Wharfinger") -> None:
    consumer = gpus.claim("VGPU")
    [used] = [name for name in (CARD_1, CARD_2) if users(name)]

    nova.manage_placement("audit", delete=True)
    gpus.run("sync")

    assert devices()[used] == RESERVED
    gpus.do("instance", "repair", consumer)
    assert users(used) == {consumer: 1}
    assert devices()[used] == FREE


# Users.


def test_boot_takes_our_device_of_the_same_owner(nova: "Nova", cards: "Wharfinger") -> None:
    server = nova.boot(extra_specs=CARD)

    [used] = [name for name in (CARD_1, CARD_2) if users(name)]
    assert users(used) == {server: 1}
    assert cards.sync() == "cards: no change\n"


def test_boot_takes_no_reserved_device(nova: "Nova", cards: "Wharfinger") -> None:
    for device in (CARD_1, CARD_2):
        cards.reserve(device)

    nova.boot("ERROR", extra_specs=CARD)

    assert devices() == {CARD_1: RESERVED, CARD_2: RESERVED}
    assert not (users(CARD_1) or users(CARD_2))
