"""Lost allocations: those that another program has deleted while the instance was claimed."""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from tests.lab.allocating import Desk, faults, flavor, held
from tests.lab.claimants import Rehearsal, there_are
from tests.lab.cycles import Publishing, allocate
from tests.lab.database_writes import Transactions
from tests.lab.drawing import Draw
from tests.lab.histories import on
from tests.lab.reserving import (
    CleaningDriver,
    figures,
    is_candidate,
    is_full,
    node,
    rows,
    summary,
)
from tests.lab.samples import uuid
from wharfinger.exceptions import (
    AllocationLost,
    AllocationRefused,
    ObjectNotFound,
    PermissionRefused,
    PlacementError,
)
from wharfinger.objects import Instance, ReservationList
from wharfinger.reconcile.cycle_result import CycleResult
from wharfinger.reconcile.reserve_and_release import Reservations

ONE, OTHER = uuid("an instance"), uuid("another consumer")
CARD = flavor("card", **{"resources:VGPU": "1"})
SMALL = flavor("small")


@pytest.fixture
def cards(desk: Desk, publishing: Publishing) -> Desk:
    """A desk whose node has four VCPUs and two cards; an instance uses one of the cards."""
    cards = {"card-0": {"VGPU": (4, 1)}, "card-1": {"VGPU": (4, 1)}}
    publishing.driver.nodes = {"cn-0": node({"VCPU": (4, 0)}, **cards)}
    assert not publishing.cycle.sync().problems
    desk.claim(CARD, uuid=ONE)
    assert not publishing.cycle.sync().problems
    return desk


def card_of(consumer: str) -> str:
    """Return the name of the card that is allocated to a consumer."""
    [card] = held()[consumer].keys() - {"cn-0"}
    return card


def lost(publishing: Publishing, desk: Desk) -> tuple[str, CycleResult]:
    """Delete the instance's allocation and run a cycle; return the card and the cycle's result."""
    card = card_of(ONE)
    desk.client.delete_allocations(ONE)
    return card, publishing.cycle.sync()


def is_lost(publishing: Publishing) -> bool:
    """Return whether a stored reservation marks the instance's allocation as lost."""
    return bool(Reservations(publishing.client, publishing.context).lost(ONE))


# Full cycles, which find lost allocations.


def test_sync_of_a_deleted_allocation_reserves_its_providers_and_reports_it_once(
    cards: Desk, publishing: Publishing
) -> None:
    card, found = lost(publishing, cards)

    [problem] = found.problems
    assert isinstance(problem, AllocationLost)
    for told in (ONE, "on node cn-0", f"{card} (", f"`wharfinger instance repair {ONE}`"):
        assert told in str(problem)
    assert figures(publishing.placement, card) == {"VGPU": (4, 4)}
    assert is_full(publishing.placement, "cn-0")
    [spared] = {"card-0", "card-1"} - {card}
    assert figures(publishing.placement, spared) == {"VGPU": (4, 1)}
    assert is_lost(publishing)
    again = publishing.cycle.sync()
    assert (again.problems, again.steps) == ((), ())
    publishing.restarted()
    assert publishing.cycle.sync().problems == ()
    assert is_full(publishing.placement, card)


def test_sync_of_a_deleted_allocation_of_reserved_providers_has_no_conflict(
    cards: Desk, publishing: Publishing
) -> None:
    reservations = Reservations(publishing.client, publishing.context)
    for name in ("cn-0", card_of(ONE)):
        provider = summary(publishing.placement, name)
        reservations.reserve(provider, holder="operator", reason="inspection")
    assert not publishing.cycle.sync().problems

    _card, found = lost(publishing, cards)

    assert [type(one) for one in found.problems] == [AllocationLost]
    assert (found.steps, found.conflicts) == ((), 0)
    assert is_lost(publishing)


def test_dry_run_of_a_deleted_allocation_plans_the_reservation_and_stores_nothing(
    cards: Desk, publishing: Publishing
) -> None:
    card = card_of(ONE)
    cards.client.delete_allocations(ONE)

    plan = publishing.cycle.plan()

    assert [type(one) for one in plan.problems] == [AllocationLost]
    assert {step.name for step in plan.steps} == {"cn-0", card}
    assert rows(publishing.context) == {}


def test_unchanged_sync_makes_one_request_per_claimed_instance_and_writes_nothing(
    cards: Desk, publishing: Publishing
) -> None:
    cards.claim(SMALL, uuid=OTHER)
    publishing.cycle.sync()
    publishing.placement.requests.clear()

    with Transactions() as transactions:
        assert publishing.cycle.sync().problems == ()
        assert (len(transactions.reads), transactions.writes) == (1, [])

    questions = [one for one in publishing.placement.requests.seen if "/allocations/" in one]
    assert sorted(questions) == sorted(f"GET /allocations/{one}" for one in (ONE, OTHER))
    assert len(publishing.placement.requests) == len(questions) + 1
    publishing.cycle.drift()
    assert len(publishing.placement.requests) == len(questions) + 2


def there(publishing: Publishing, instance: str) -> Instance:
    return Instance.get_by_uuid(publishing.context, instance)


def test_sync_without_an_answer_about_an_allocation_reserves_nothing(
    cards: Desk, publishing: Publishing
) -> None:
    def refuse(method: str, path: str) -> None:
        if path == f"/allocations/{ONE}":
            raise PlacementError(request=f"{method} {path}", status=500, detail="broken")

    publishing.placement.adapter.before = refuse

    found = publishing.cycle.sync()

    assert [str(one) for one in found.problems] == [
        f"Placement: GET /allocations/{ONE}: 500: broken"
    ]
    assert rows(publishing.context) == {}
    assert not is_full(publishing.placement, card_of(ONE))


def test_sync_after_the_driver_has_failed_for_the_node_reserves_its_providers(
    cards: Desk, publishing: Publishing
) -> None:
    card = card_of(ONE)
    cards.client.delete_allocations(ONE)

    def fails(*_arguments: Any) -> None:
        raise OSError("no answer")

    publishing.driver.nodes["cn-0"] = fails

    found = publishing.cycle.sync()

    assert AllocationLost in {type(one) for one in found.problems}
    assert is_full(publishing.placement, card)


def test_sync_of_an_instance_of_an_earlier_version_records_its_allocations_and_finds_their_loss(
    cards: Desk, publishing: Publishing
) -> None:
    row = there(publishing, ONE)
    row.claimed_allocations = None
    row.save()

    assert publishing.cycle.sync().problems == ()

    has = {
        provider.name: amounts
        for provider in publishing.client.list_providers()
        if (amounts := (there(publishing, ONE).claimed_allocations or {}).get(provider.uuid))
    }
    assert has == held()[ONE]
    card, found = lost(publishing, cards)
    assert [type(one) for one in found.problems] == [AllocationLost]
    assert is_full(publishing.placement, card)


def test_sync_of_an_instance_without_known_allocations_reserves_nothing(
    cards: Desk, publishing: Publishing
) -> None:
    row = there(publishing, ONE)
    row.claimed_allocations = None
    row.save()
    cards.client.delete_allocations(ONE)

    assert publishing.cycle.sync().problems == ()
    assert rows(publishing.context) == {}


def test_sync_after_a_confirmed_move_reserves_the_destination_of_the_lost_allocation(
    desk: Desk, publishing: Publishing
) -> None:
    desk.claim(SMALL, uuid=ONE, suits=on("cn-0"))
    desk.moves.start(ONE)
    assert publishing.cycle.sync().problems == ()
    desk.moves.confirm(ONE)
    desk.client.delete_allocations(ONE)

    [problem] = publishing.cycle.sync().problems

    assert isinstance(problem, AllocationLost)
    assert is_full(publishing.placement, "cn-1")
    assert not is_full(publishing.placement, "cn-0")


def test_sync_during_a_move_regards_no_allocation_as_lost(
    desk: Desk, publishing: Publishing
) -> None:
    desk.claim(SMALL, uuid=ONE)
    desk.moves.start(ONE)
    desk.client.delete_allocations(ONE)

    assert publishing.cycle.sync().problems == ()
    assert rows(publishing.context) == {}


@pytest.mark.parametrize("act", ["claim", "repair"])
def test_claim_and_repair_without_allocation_during_a_move_are_refused(
    desk: Desk, act: str
) -> None:
    desk.claim(SMALL, uuid=ONE)
    migration = desk.moves.start(ONE)
    desk.client.delete_allocations(ONE)

    with pytest.raises(AllocationRefused, match=rf"{migration.uuid} \(finished\)"):
        desk.claim(SMALL, uuid=ONE) if act == "claim" else desk.claims.repair(ONE)

    assert ONE not in held()


def test_sync_after_another_program_has_restored_the_allocation_ends_the_reservation(
    cards: Desk, publishing: Publishing
) -> None:
    before = held()[ONE]
    card, _found = lost(publishing, cards)
    for name in before:
        provider = summary(publishing.placement, name)
        inventories = publishing.client.get_inventories(provider.uuid)
        publishing.client.set_inventories(
            provider.uuid,
            inventories.resource_provider_generation,
            {
                kind: type(one)(total=one.total, reserved=0)
                for kind, one in inventories.inventories.items()
            },
        )
    allocate(publishing.placement, ONE, "1.39", **before)

    assert publishing.cycle.sync().problems == ()

    assert rows(publishing.context) == {}
    assert not is_full(publishing.placement, card)


# Other acts at the same time.


@pytest.mark.parametrize("act", ["release", "repair"])
def test_act_during_the_sync_that_finds_the_loss_leaves_no_endless_reservation(
    act: str, cards: Desk, publishing: Publishing
) -> None:
    before = held()[ONE]
    cards.client.delete_allocations(ONE)
    rehearsed = Rehearsal(
        publishing.placement,
        publishing.state_path,
        lambda: publishing.restarted().sync(),
        reads=True,
    )
    others: Callable[[str], object] = getattr(cards.claims, act)
    assert len(rehearsed.steps) > 8

    for number, moment in rehearsed.steps:
        rehearsed.interrupted(number, lambda: others(ONE))
        last = publishing.restarted()
        last.sync()
        if act == "repair" and is_lost(publishing):
            cards.claims.repair(ONE)
        assert last.sync().problems == (), moment
        assert rows(publishing.context) == {}, moment
        assert held() == ({} if act == "release" else {ONE: before})
        assert not any(is_full(publishing.placement, one) for one in ("cn-0", "card-0", "card-1"))
        assert faults(publishing.context) == []


def test_sync_during_a_release_does_not_regard_the_allocation_as_lost(
    cards: Desk, publishing: Publishing
) -> None:
    rehearsed = Rehearsal(
        publishing.placement, publishing.state_path, lambda: cards.claims.release(ONE)
    )
    for number, moment in rehearsed.steps:
        found: list[CycleResult] = []
        rehearsed.interrupted(number, lambda: found.append(publishing.restarted().sync()))  # noqa: B023
        assert [one.problems for one in found] == [()], moment
        assert publishing.restarted().sync().problems == ()
        assert rows(publishing.context) == {}, moment


@pytest.mark.parametrize("work", ["release", "claim", "move"])
def test_sync_during_an_act_of_another_process_regards_no_allocation_as_lost(
    work: str, desk: Desk, publishing: Publishing
) -> None:
    desk.claim(SMALL, uuid=ONE)
    publishing.cycle.sync()

    def act() -> None:
        if work == "move":
            desk.moves.start(ONE)
        else:
            row = there(publishing, ONE)
            row.task_state = {"release": "releasing", "claim": "claiming"}[work]
            row.save()
        desk.client.delete_allocations(ONE)

    struck = publishing.placement.adapter.once_before(
        lambda _method, path: path == f"/allocations/{ONE}", act
    )

    assert publishing.cycle.sync().problems == ()

    assert struck
    assert rows(publishing.context) == {}


# Repairs.


def test_repair_allocates_the_same_again_and_ends_the_reservation(
    cards: Desk, publishing: Publishing
) -> None:
    before = held()[ONE]
    card, _found = lost(publishing, cards)

    repaired = cards.claims.repair(ONE)

    assert held() == {ONE: before}
    assert repaired.instance.claimed_allocations == repaired.allocations
    assert rows(publishing.context) == {}
    assert figures(publishing.placement, card) == {"VGPU": (4, 1)}
    assert figures(publishing.placement, "cn-0") == {"VCPU": (4, 0)}
    after = publishing.cycle.sync()
    assert after.problems == ()
    assert cards.claims.repair(ONE).allocations == repaired.allocations
    assert faults(publishing.context) == []


def test_repair_before_any_cycle_allocates_the_same_again(
    cards: Desk, publishing: Publishing
) -> None:
    before = held()
    cards.client.delete_allocations(ONE)

    cards.claims.repair(ONE)

    assert held() == before
    assert publishing.cycle.sync().problems == ()


def test_repair_keeps_the_reservation_of_an_operator(cards: Desk, publishing: Publishing) -> None:
    before = held()[ONE]
    card, _found = lost(publishing, cards)
    provider = summary(publishing.placement, card)
    reservations = Reservations(publishing.client, publishing.context)
    reservations.reserve(provider, holder="operator", reason="burns")

    cards.claims.repair(ONE)

    assert held() == {ONE: before}
    assert is_full(publishing.placement, card)
    assert rows(publishing.context).keys() == {(provider.uuid, "operator")}
    reservations.release(provider, "operator")
    assert figures(publishing.placement, card) == {"VGPU": (4, 1)}


def test_repair_that_dies_at_any_step_is_finished_by_another_repair(
    cards: Desk, publishing: Publishing, draw: Draw
) -> None:
    before = held()[ONE]
    card, _found = lost(publishing, cards)
    rehearsed = Rehearsal(
        publishing.placement, publishing.state_path, lambda: cards.claims.repair(ONE)
    )
    assert len(rehearsed.steps) > 6
    kinds = {
        summary(publishing.placement, name).uuid: kind
        for name, kind in (("cn-0", "VCPU"), (card, "VGPU"))
    }
    for (number, moment), with_sync in draw(list(product(rehearsed.steps, (False, True))), 2):
        rehearsed.die(number)
        if with_sync:
            publishing.restarted().sync()
        if held().get(ONE) != before:
            for provider, kind in kinds.items():
                assert not is_candidate(publishing.client, provider, kind), (moment, kind)
        cards.claims.repair(ONE)
        assert held() == {ONE: before}, moment
        assert rows(publishing.context) == {}, moment
        assert figures(publishing.placement, card) == {"VGPU": (4, 1)}, moment
        assert figures(publishing.placement, "cn-0") == {"VCPU": (4, 0)}, moment
        assert publishing.restarted().sync().problems == (), moment
        assert faults(publishing.context) == [], moment


def test_repair_of_resources_that_another_consumer_got_is_refused_and_changes_nothing(
    cards: Desk, publishing: Publishing
) -> None:
    card = card_of(ONE)
    cards.client.delete_allocations(ONE)
    allocate(publishing.placement, OTHER, "1.39", **{card: {"VGPU": 3}})
    publishing.cycle.sync()

    with pytest.raises(AllocationRefused, match="instance repair --release") as refused:
        cards.claims.repair(ONE)

    assert "cannot be restored" in str(refused.value)
    assert held() == {OTHER: {card: {"VGPU": 3}}}
    assert is_lost(publishing)
    assert is_full(publishing.placement, card)
    assert is_full(publishing.placement, "cn-0")
    assert there(publishing, ONE).task_state is None
    assert cards.claims.release_lost(ONE) == ()
    assert there_are(publishing.context) == []
    assert figures(publishing.placement, card) == {"VGPU": (4, 1)}


def test_repair_without_the_service_role_is_refused_and_changes_nothing(
    cards: Desk, publishing: Publishing
) -> None:
    card, _found = lost(publishing, cards)
    publishing.placement.without_service_role()

    with pytest.raises(PermissionRefused, match="it needs the service role"):
        cards.claims.repair(ONE)

    assert held() == {}
    assert is_lost(publishing)
    assert is_full(publishing.placement, card)
    assert there(publishing, ONE).task_state is None


def test_repair_of_a_released_or_unknown_instance_is_refused(
    cards: Desk, publishing: Publishing
) -> None:
    with pytest.raises(ObjectNotFound):
        cards.claims.repair(OTHER)
    row = there(publishing, ONE)
    row.claimed_allocations = None
    row.save()
    cards.client.delete_allocations(ONE)
    with pytest.raises(AllocationRefused, match=f"instance claim --uuid {ONE} --flavor card"):
        cards.claims.repair(ONE)
    row.task_state = "releasing"
    row.save()
    with pytest.raises(AllocationRefused, match="being released"):
        cards.claims.repair(ONE)


# Releases.


def test_release_of_an_instance_with_a_lost_allocation_frees_the_device_and_can_be_repeated(
    cards: Desk, publishing: Publishing
) -> None:
    with pytest.raises(AllocationRefused, match="has its allocation"):
        cards.claims.release_lost(ONE)
    card, _found = lost(publishing, cards)
    rehearsed = Rehearsal(
        publishing.placement, publishing.state_path, lambda: cards.claims.release_lost(ONE)
    )
    for number, _moment in rehearsed.steps:
        rehearsed.die(number)
        if there_are(publishing.context):
            cards.claims.release_lost(ONE)
        assert there_are(publishing.context) == []
        assert rows(publishing.context) == {}
        assert figures(publishing.placement, card) == {"VGPU": (4, 1)}
        assert publishing.restarted().sync().problems == ()


def test_release_of_an_instance_with_a_lost_allocation_keeps_the_node_reserved_until_clean(
    metal: Desk, publishing: Publishing
) -> None:
    driver = publishing.driver
    assert isinstance(driver, CleaningDriver)
    node_of_it = metal.claim(SMALL, uuid=ONE).instance.node
    assert node_of_it is not None
    publishing.cycle.sync()
    metal.client.delete_allocations(ONE)
    assert [type(one) for one in publishing.cycle.sync().problems] == [AllocationLost]

    [reservation] = metal.claims.release_lost(ONE)

    assert reservation.holder == f"release of {ONE}"
    assert [one.holder for one in ReservationList.get_by_filters(publishing.context)] == [
        f"release of {ONE}"
    ]
    publishing.cycle.sync()
    assert is_full(publishing.placement, node_of_it)
    driver.clean.add(reservation.provider_uuid)
    publishing.cycle.sync()
    publishing.cycle.sync()
    assert rows(publishing.context) == {}
    assert not is_full(publishing.placement, node_of_it)
