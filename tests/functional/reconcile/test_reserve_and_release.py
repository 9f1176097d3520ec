"""Reservations of operators and jobs: several at once, interrupted, and beside other programs."""

import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import islice, permutations, product
from subprocess import Popen
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import pytest

from tests.lab.cycles import HOST, Publishing, allocate, contents, everything
from tests.lab.drawing import Draw
from tests.lab.drivers import flat
from tests.lab.moments import Moments
from tests.lab.placement import PlacementFixture, Requests
from tests.lab.reserving import (
    CleaningDriver,
    Crash,
    ReservingDriver,
    Steps,
    drives,
    figures,
    holds_at_random,
    is_full,
    lose_records,
    makes,
    node,
    overlaid,
    rows,
    start_holding,
    summary,
    writes,
)
from wharfinger.allocations.allocation_writer import Consumers
from wharfinger.driver import Allocations
from wharfinger.exceptions import (
    ConcurrentSave,
    ConcurrentUpdate,
    NotFound,
    ObjectExists,
    ObjectNotFound,
    PlacementUnavailable,
    ReservationRefused,
)
from wharfinger.objects import ProviderRecordList, RecordBatch, ReservationList
from wharfinger.placement.model import ProviderSummary
from wharfinger.providers import ProviderTree
from wharfinger.reconcile import record_store
from wharfinger.reconcile.reserve_and_release import Reservations

pytestmark = pytest.mark.usefixtures("no_waiting")

#: Our root cn, our children gpu and bare (without inventory), and another owner's root card.
OWN = {
    "cn": {"VCPU": (8, 1)},
    "gpu": {"VGPU": (4, 1), "FPGA": (2, 0)},
    "bare": {},
    "card": {"FPGA": (3, 2)},
}
FULL = {
    "cn": {"VCPU": (8, 8)},
    "gpu": {"VGPU": (4, 4), "FPGA": (2, 2)},
    "bare": {},
    "card": {"FPGA": (3, 3)},
}
#: Attempts of each thread and process, and the seed that draws the cycles beside them.
ATTEMPTS, SEED = 20, 1606
#: A number that no step has.
NEVER = -1
TRAIT = "CUSTOM_OF_ANOTHER_PROGRAM"
CONSUMER = str(uuid5(NAMESPACE_OID, "consumer"))


@pytest.fixture
def driver(publishing: Publishing, placement: PlacementFixture) -> ReservingDriver:
    """A driver that has published the inventories of OWN."""
    driver = CleaningDriver()
    drives(publishing, driver)
    makes(placement, "card", **OWN["card"])
    driver.nodes["cn"] = node(OWN["cn"], gpu=OWN["gpu"], bare=OWN["bare"])
    driver.nodes["card"] = overlaid
    assert not publishing.cycle.sync().problems
    assert {name: figures(placement, name) for name in OWN} == OWN
    return driver


@pytest.fixture
def holds(driver: ReservingDriver, publishing: Publishing) -> Reservations:
    return Reservations(publishing.client, publishing.context)


def test_reserve_fills_at_once_and_release_frees_at_once(
    holds: Reservations, publishing: Publishing, placement: PlacementFixture
) -> None:
    for name, own in OWN.items():
        before = contents(placement)
        provider = summary(placement, name)

        held = holds.reserve(provider, holder="ann", reason="disk swap")

        assert figures(placement, name) == FULL[name]
        assert (held.provider_uuid, held.holder, held.reason) == (provider.uuid, "ann", "disk swap")
        assert held.own_reserved == {kind: reserved for kind, (_, reserved) in own.items()}
        during = contents(placement)
        during[name]["inventories"] = before[name]["inventories"]
        assert during == before
        assert holds.release(provider, "ann") == ()
        assert contents(placement) == before
        assert not rows(publishing.context)


def test_reserve_of_allocated_provider_keeps_its_allocations(
    holds: Reservations, placement: PlacementFixture
) -> None:
    allocate(placement, CONSUMER, cn={"VCPU": 3}, gpu={"VGPU": 2})
    before = everything()["gpu"]["allocations"]
    gpu = summary(placement, "gpu")

    holds.reserve(gpu, holder="ann", reason="why")
    assert is_full(placement, "gpu")
    holds.release(gpu, "ann")

    assert figures(placement, "gpu") == OWN["gpu"]
    assert everything()["gpu"]["allocations"] == before


def test_provider_is_free_after_the_last_of_several_holders_in_any_order(
    holds: Reservations, placement: PlacementFixture
) -> None:
    orders = list(permutations(["ann", "bob", "job"]))
    for name, order in [("gpu", one) for one in orders[::3]] + [
        ("card", one) for one in orders[4:5]
    ]:
        provider = summary(placement, name)
        for holder in ("ann", "bob", "job"):
            holds.reserve(provider, holder=holder, reason=f"for {holder}")

        for gone, holder in enumerate(order):
            assert figures(placement, name) == FULL[name]
            left = holds.release(provider, holder)
            assert len(left) == 2 - gone
            assert all(any(one in why for why in left) for one in order[gone + 1 :])

        assert figures(placement, name) == OWN[name]


@pytest.mark.parametrize("driver_is_last", [True, False])
def test_provider_that_driver_and_operator_reserve_is_free_after_both_ended(
    driver_is_last: bool,
    driver: ReservingDriver,
    holds: Reservations,
    publishing: Publishing,
    placement: PlacementFixture,
) -> None:
    gpu = summary(placement, "gpu")
    holds.reserve(gpu, holder="ann", reason="why")
    driver.says("cn", "gpu", "cleaning")
    publishing.cycle.sync()

    if driver_is_last:
        assert holds.release(gpu, "ann") == ("cleaning",)
        publishing.cycle.sync()
        assert figures(placement, "gpu") == FULL["gpu"]
        driver.says("cn", "gpu")
        publishing.cycle.sync()
    else:
        driver.says("cn", "gpu")
        publishing.cycle.sync()
        assert figures(placement, "gpu") == FULL["gpu"]
        assert holds.release(gpu, "ann") == ()

    assert figures(placement, "gpu") == OWN["gpu"]


def test_holder_reserves_a_provider_once_and_releases_only_its_own_reservation(
    holds: Reservations, publishing: Publishing, placement: PlacementFixture
) -> None:
    gpu = summary(placement, "gpu")
    holds.reserve(gpu, holder="ann", reason="why")
    with pytest.raises(ObjectExists):
        holds.reserve(gpu, holder="ann", reason="once more")
    with pytest.raises(ObjectNotFound, match="gpu by bob"):
        holds.release(gpu, "bob")

    assert [one.reason for one in rows(publishing.context).values()] == ["why"]
    assert is_full(placement, "gpu")


@pytest.mark.parametrize("owner", [None, "CUSTOM_OWNER_ACME"])
def test_reserve_of_a_provider_without_our_instance_trait_is_refused(
    owner: str | None, holds: Reservations, publishing: Publishing, placement: PlacementFixture
) -> None:
    theirs = makes(placement, "theirs", FPGA=(2, 0))
    if owner is not None:
        generation = placement.client.get_traits(theirs).resource_provider_generation
        placement.client.create_trait(owner)
        placement.client.set_traits(theirs, generation, [owner])
    before = contents(placement)

    with pytest.raises(ReservationRefused, match=owner or "an unknown owner"):
        holds.reserve(summary(placement, "theirs"), holder="ann", reason="why")

    assert contents(placement) == before
    assert not rows(publishing.context)


def test_reserve_of_a_provider_that_another_owner_took_is_refused(
    holds: Reservations, placement: PlacementFixture
) -> None:
    gpu, client = summary(placement, "gpu"), placement.client
    client.set_traits(gpu.uuid, gpu.generation, ["OWNER_CYBORG"])
    with pytest.raises(ReservationRefused, match="OWNER_CYBORG"):
        holds.reserve(gpu, holder="ann", reason="why")


def test_reserve_is_refused_if_another_owner_took_the_provider_before_the_second_attempt(
    holds: Reservations,
    publishing: Publishing,
    placement: PlacementFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu, client = summary(placement, "gpu"), placement.client
    write, save = RecordBatch._write, RecordBatch.save

    def undone(batch: RecordBatch, *tables: Any) -> bool:
        """Write the rows, but have the transaction undone as after a deadlock."""
        write(batch, *tables)
        raise ConcurrentSave(kind="provider", keys=[gpu.uuid])

    def slow(batch: RecordBatch) -> None:
        try:
            save(batch)
        finally:
            monkeypatch.setattr(RecordBatch, "_write", write)
            monkeypatch.setattr(RecordBatch, "save", save)
            lose_records(publishing)
            generation = client.get_traits(gpu.uuid).resource_provider_generation
            client.set_traits(gpu.uuid, generation, ["OWNER_CYBORG"])

    monkeypatch.setattr(RecordBatch, "_write", undone)
    monkeypatch.setattr(RecordBatch, "save", slow)
    with pytest.raises(ReservationRefused, match="OWNER_CYBORG"):
        holds.reserve(gpu, holder="ann", reason="why")

    assert figures(placement, "gpu") == OWN["gpu"]
    assert not rows(publishing.context)


# The provider's own reserved amount.


def test_release_restores_the_reserved_amounts_that_the_owner_wrote_meanwhile(
    holds: Reservations, publishing: Publishing, placement: PlacementFixture
) -> None:
    card = summary(placement, "card")
    holds.reserve(card, holder="ann", reason="why")
    writes(placement, "card", FPGA=(5, 4), VGPU=(2, 0))
    publishing.cycle.drift()
    assert figures(placement, "card") == {"FPGA": (5, 5), "VGPU": (2, 2)}

    holds.release(card, "ann")

    assert figures(placement, "card") == {"FPGA": (5, 4), "VGPU": (2, 0)}


def test_second_reservation_fills_an_inventory_that_the_owner_wrote_since_the_first(
    holds: Reservations, publishing: Publishing, placement: PlacementFixture
) -> None:
    card = summary(placement, "card")
    holds.reserve(card, holder="ann", reason="why")
    publishing.cycle.drift()
    writes(placement, "card", FPGA=(5, 4))
    held = holds.reserve(card, holder="bob", reason="why")
    assert figures(placement, "card") == {"FPGA": (5, 5)}
    assert held.own_reserved == {"FPGA": 4}

    holds.release(card, "bob")
    assert figures(placement, "card") == {"FPGA": (5, 5)}
    holds.release(card, "ann")

    assert figures(placement, "card") == {"FPGA": (5, 4)}


@pytest.mark.parametrize(("name", "cycles"), [("card", 0), ("gpu", 1)])
def test_release_after_loss_of_records_restores_the_figures(
    name: str, cycles: int, holds: Reservations, publishing: Publishing, placement: PlacementFixture
) -> None:
    provider = summary(placement, name)
    holds.reserve(provider, holder="ann", reason="why")
    lose_records(publishing)
    for _ in range(cycles):
        outcome = publishing.cycle.sync()
        assert not outcome.foreign
        assert figures(placement, name) == FULL[name]

    Reservations(publishing.client, publishing.context).release(provider, "ann")

    assert figures(placement, name) == OWN[name]


# Foreign reservations: inventories that another program has fully reserved.


def test_foreign_reservation_stays_during_and_after_ours(
    holds: Reservations, publishing: Publishing, placement: PlacementFixture
) -> None:
    theirs = {**OWN["gpu"], "FPGA": FULL["gpu"]["FPGA"]}
    writes(placement, "gpu", **theirs)
    provider = summary(placement, "gpu")

    held = holds.reserve(provider, holder="ann", reason="why")
    assert "FPGA" not in held.own_reserved
    assert figures(placement, "gpu") == FULL["gpu"]
    [during] = publishing.cycle.drift().foreign
    holds.release(provider, "ann")
    assert figures(placement, "gpu") == theirs
    [after] = publishing.cycle.sync().foreign

    for foreign in (during, after):
        assert (foreign.name, set(foreign.classes)) == ("gpu", {"FPGA"})
    assert figures(placement, "gpu") == theirs


def test_release_foreign_that_is_cut_off_is_finished_by_the_next_cycle(
    holds: Reservations, publishing: Publishing, placement: PlacementFixture
) -> None:
    """The new reserved amounts are stored before the write to Placement fails."""
    writes(placement, "gpu", **{**OWN["gpu"], "FPGA": FULL["gpu"]["FPGA"]})
    publishing.cycle.sync()

    def cut(method: str, path: str) -> None:
        if method == "PUT":
            raise PlacementUnavailable(request=path, status=0, code="", detail="cut off")

    then, placement.adapter.before = placement.adapter.before, cut
    with pytest.raises(PlacementUnavailable):
        holds.release_foreign(summary(placement, "gpu"))
    placement.adapter.before = then
    before = figures(placement, "gpu")

    outcome = publishing.restarted().sync()

    assert before["FPGA"] == FULL["gpu"]["FPGA"]
    assert (outcome.problems, outcome.foreign) == ((), ())
    assert figures(placement, "gpu") == OWN["gpu"]


def test_release_foreign_of_an_overlaid_provider_is_refused(
    holds: Reservations, publishing: Publishing, placement: PlacementFixture
) -> None:
    """Another program writes the inventory of an overlaid provider."""
    writes(placement, "card", **FULL["card"])
    [found] = publishing.cycle.sync().foreign
    assert (found.name, found.is_releasable) == ("card", False)

    with pytest.raises(ReservationRefused, match="no driver instance"):
        holds.release_foreign(summary(placement, "card"))

    assert figures(placement, "card") == FULL["card"]


def with_fpga(tree: ProviderTree, name: str, allocations: Allocations | None) -> None:
    """Edit an FPGA below a node that another owner publishes."""
    if not tree.exists("fpga"):
        tree.new_child("fpga", name)
    tree.update_inventory("fpga", {"FPGA": {"total": 2}})


def test_release_ignores_the_record_of_another_driver_instance(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    """The other instance publishes the root. Its record of the FPGA has no foreign reservation."""
    publishing.driver.nodes["cn"] = flat(VCPU=8)
    publishing.cycle.sync()
    holds = Reservations(publishing.client, publishing.context)
    with Publishing(placement, publishing.state_path, owner="OWNER_CYBORG", name="other") as other:
        other.driver.nodes["cn"] = with_fpga
        assert not other.cycle.sync().problems
        fpga = summary(placement, "fpga")
        holds.reserve(fpga, holder="ann", reason="why")
        for cycle in (publishing.cycle, other.cycle):
            cycle.sync()
        assert fpga.uuid in publishing.store.records
        holds.release(fpga, "ann")
        for cycle in (publishing.cycle, other.cycle):
            cycle.sync()
        writes(placement, "fpga", FPGA=(2, 2))

        holds.reserve(fpga, holder="bob", reason="why")
        holds.release(fpga, "bob")

        assert figures(placement, "fpga") == {"FPGA": (2, 2)}
        [foreign] = other.cycle.sync().foreign
        assert foreign.name == "fpga"
        placement.requests.clear()
        publishing.cycle.drift()
        placement.requests.clear()
        publishing.cycle.drift()
        assert len(placement.requests) == 1


# Two hosts have a record of the same provider.


def store_record(
    publishing: Publishing, host: str, provider: ProviderSummary, reserved: int
) -> None:
    """Store a record of the provider for another host, with another reserved amount of its own."""
    [record] = ProviderRecordList.get_by_filters(
        publishing.context, host=HOST, provider_uuid=provider.uuid
    )
    theirs = record_store.to_object(
        provider.uuid, replace(record_store.to_record(record), own_reserved={"FPGA": reserved})
    )
    ProviderRecordList.replace(
        publishing.context,
        host,
        publishing.publisher.instance,
        ProviderRecordList(objects=[theirs]),
        [],
    )


@pytest.mark.parametrize("theirs", [2, 1], ids=["they agree", "they differ"])
def test_release_with_differing_records_of_two_hosts_leaves_the_provider_full(
    theirs: int,
    driver: ReservingDriver,
    publishing: Publishing,
    placement: PlacementFixture,
) -> None:
    """Another service publishes the provider, so no row tells which host's record is right."""
    holds = Reservations(publishing.client, publishing.context)
    card = summary(placement, "card")
    driver.says("card", "card", "cleaning")
    publishing.cycle.sync()
    store_record(publishing, "old-host", card, theirs)

    held = holds.reserve(card, holder="ann", reason="why")
    driver.says("card", "card")
    for host in (HOST, "old-host"):  # the driver has no reason to reserve the card any more
        forget_reasons(publishing, host, card)
    left = holds.release(card, "ann")

    if theirs == OWN["card"]["FPGA"][1]:
        assert held.own_reserved == {"FPGA": theirs}
        assert (left, figures(placement, "card")) == ((), OWN["card"])
    else:
        assert held.own_reserved == {}
        assert figures(placement, "card") == FULL["card"]
        assert left == (
            "2 records of the provider disagree on the reserved amounts to restore for FPGA (the "
            "next cycle of its driver instance decides)",
        )
        publishing.cycle.sync()
        assert figures(placement, "card") == OWN["card"]


def forget_reasons(publishing: Publishing, host: str, provider: ProviderSummary) -> None:
    """Delete the driver's reasons to reserve a provider from the record of a host."""
    [record] = ProviderRecordList.get_by_filters(
        publishing.context, host=host, provider_uuid=provider.uuid
    )
    free = record_store.to_object(
        provider.uuid, replace(record_store.to_record(record), reservations=())
    )
    ProviderRecordList.replace(
        publishing.context,
        host,
        publishing.publisher.instance,
        ProviderRecordList(objects=[free]),
        [],
    )


# An unavailable Placement or provider.


def test_reservation_that_placement_did_not_receive_is_written_by_the_next_cycle(
    holds: Reservations, publishing: Publishing, placement: PlacementFixture
) -> None:
    def fail(method: str, path: str) -> None:
        if method == "PUT":
            raise PlacementUnavailable(request=path, status=503, code="", detail="away")

    placement.adapter.before = fail
    with pytest.raises(PlacementUnavailable):
        holds.reserve(summary(placement, "gpu"), holder="ann", reason="why")
    placement.adapter.before = lambda method, path: None
    assert figures(placement, "gpu") == OWN["gpu"]

    publishing.cycle.drift()

    assert figures(placement, "gpu") == FULL["gpu"]


def test_deleted_provider_can_be_released(
    holds: Reservations, publishing: Publishing, placement: PlacementFixture
) -> None:
    bare = summary(placement, "bare")
    holds.reserve(bare, holder="ann", reason="why")
    holds.reserve(bare, holder="bob", reason="why")
    placement.client.delete_provider(bare.uuid)
    with pytest.raises(NotFound):
        placement.client.get_inventories(bare.uuid)

    holds.release(bare, "ann")
    holds.release(bare, "bob")

    assert not rows(publishing.context)


# Crashes.

Act = Callable[[Publishing, PlacementFixture], object]


def reserve(publishing: Publishing, placement: PlacementFixture) -> object:
    return holds_of(publishing).reserve(summary(placement, "gpu"), holder="ann", reason="why")


def release(publishing: Publishing, placement: PlacementFixture) -> object:
    return holds_of(publishing).release(summary(placement, "gpu"), "ann")


def release_allocation(publishing: Publishing, placement: PlacementFixture) -> object:
    return Consumers(publishing.client).release(
        CONSUMER, Reservations(publishing.client, publishing.context)
    )


ACTS: dict[str, Act] = {
    "reserve": reserve,
    "release": release,
    "release allocation": release_allocation,
}


@pytest.fixture(params=ACTS)
def act(
    request: pytest.FixtureRequest,
    driver: ReservingDriver,
    publishing: Publishing,
    placement: PlacementFixture,
) -> Act:
    """Prepare and return the act to interrupt: reserve, release, or release allocations."""
    if request.param == "release":
        reserve(publishing, placement)
    if request.param == "release allocation":
        allocate(placement, CONSUMER, gpu={"VGPU": 2}, cn={"VCPU": 1})
    return ACTS[request.param]


def as_new_process(publishing: Publishing) -> Publishing:
    """Restart the driver instance, as in a new process; return it."""
    publishing.restarted()
    return publishing


def holds_of(publishing: Publishing) -> Reservations:
    return Reservations(publishing.client, publishing.context)


def is_sound(publishing: Publishing, placement: PlacementFixture) -> bool:
    """Return whether all reserved providers are full, and all other providers have OWN amounts."""
    held = {uuid for uuid, _holder in rows(publishing.context)}
    found = contents(placement)
    return all(
        found[name]["inventories"] == (FULL if found[name]["uuid"] in held else OWN)[name]
        for name in OWN
    )


def test_act_that_crashes_at_any_step_is_completed_by_the_next_cycle(
    act: Act, publishing: Publishing, placement: PlacementFixture, draw: Draw
) -> None:
    moments = Moments(publishing.state_path)
    start = moments.take()
    with Steps(placement) as steps:
        act(as_new_process(publishing), placement)
    assert len(steps.passed) >= 4
    for number, after in draw(product(range(len(steps.passed)), ("sync", "drift", "poll")), 2):
        step = steps.passed[number]
        moments.go_back(start)
        as_new_process(publishing)
        with Steps(placement, crash_at=number), pytest.raises(Crash):
            act(publishing, placement)
        publishing.restarted()
        outcome = getattr(publishing.cycle, after)()

        assert not outcome.problems, step
        assert not outcome.foreign, step
        assert is_sound(publishing, placement), step
        with suppress(ObjectExists, ObjectNotFound):
            act(publishing, placement)
        assert is_sound(publishing, placement), step


def test_act_that_crashes_at_any_step_is_completed_by_repeating_the_act(
    act: Act, publishing: Publishing, placement: PlacementFixture, draw: Draw
) -> None:
    moments = Moments(publishing.state_path)
    start = moments.take()
    with Steps(placement) as steps:
        act(as_new_process(publishing), placement)
    done = contents(placement)
    holders = rows(publishing.context).keys()
    for number, step in draw(enumerate(steps.passed), 2):
        moments.go_back(start)
        with Steps(placement, crash_at=number), pytest.raises(Crash):
            act(as_new_process(publishing), placement)

        with suppress(ObjectExists, ObjectNotFound):
            act(as_new_process(publishing), placement)

        assert contents(placement) == done, step
        assert rows(publishing.context).keys() == holders, step
        if act is release_allocation:
            assert not any(one["allocations"] for one in everything().values()), step


def test_act_that_crashes_at_any_step_keeps_the_new_trait_of_another_program(
    act: Act, publishing: Publishing, placement: PlacementFixture, draw: Draw
) -> None:
    traits = placement.client.get_traits(summary(placement, "gpu").uuid)
    placement.client.create_trait(TRAIT)
    placement.client.set_traits(
        summary(placement, "gpu").uuid,
        traits.resource_provider_generation,
        traits.traits | {TRAIT},
    )
    moments = Moments(publishing.state_path)
    start = moments.take()
    with Steps(placement) as steps:
        act(as_new_process(publishing), placement)
    cases = list(enumerate(steps.passed))
    intent = next(case for case in cases if case[1].startswith("after RecordBatch.save"))
    for number, step in draw(cases, 1, keep=[intent]):
        moments.go_back(start)
        with Steps(placement, crash_at=number), pytest.raises(Crash):
            act(as_new_process(publishing), placement)

        assert not as_new_process(publishing).cycle.sync().problems

        assert TRAIT in contents(placement)["gpu"]["traits"], step


# Beside other actors and cycles.

BESIDE: dict[str, Callable[[Publishing, PlacementFixture], object]] = {
    "sync": lambda publishing, placement: publishing.cycle.sync(),
    "reserve": lambda publishing, placement: Reservations(
        publishing.client, publishing.context
    ).reserve(summary(placement, "gpu"), holder="bob", reason="why"),
    "release": lambda publishing, placement: Reservations(
        publishing.client, publishing.context
    ).release(summary(placement, "gpu"), "bob"),
    "the same": lambda publishing, placement: Reservations(
        publishing.client, publishing.context
    ).release(summary(placement, "gpu"), "ann"),
}


@pytest.mark.drawn(2)
@pytest.mark.parametrize("beside", BESIDE)
def test_two_acts_interleaved_at_any_step_keep_reserved_providers_full(
    beside: str, act: Act, publishing: Publishing, placement: PlacementFixture, draw: Draw
) -> None:
    if beside == "release":
        BESIDE["reserve"](publishing, placement)
    moments = Moments(publishing.state_path)
    start = moments.take()

    def between() -> None:
        with suppress(ObjectExists, ObjectNotFound):
            BESIDE[beside](publishing, placement)

    def steps_with(act_at: int) -> list[str]:
        """Do the act, with the other act before the step of this number; return the steps."""
        moments.go_back(start)
        as_new_process(publishing)
        steps = Steps(placement, act_at=act_at, act=between)
        with steps, suppress(ObjectExists, ObjectNotFound):
            act(publishing, placement)
        return steps.passed

    count = len(steps_with(NEVER))
    assert count >= 5
    for number in draw(range(count), 2):
        step = steps_with(number)[number]
        held = {uuid for uuid, _holder in rows(publishing.context)}
        for name in ("cn", "gpu"):
            if summary(placement, name).uuid in held:
                assert is_full(placement, name), step
        outcome = publishing.cycle.sync()
        assert not outcome.problems, step
        assert is_sound(publishing, placement), step


@pytest.mark.drawn(2)
@pytest.mark.parametrize("beside", ["reserve", "release", "both"])
@pytest.mark.parametrize(
    ("begins", "cycle_type"),
    [(False, "sync"), (False, "drift"), (False, "poll"), (True, "sync"), (True, "poll")],
)
def test_reservation_between_two_steps_of_a_cycle_keeps_the_provider_full(
    *,
    begins: bool,
    cycle_type: str,
    beside: str,
    driver: ReservingDriver,
    publishing: Publishing,
    placement: PlacementFixture,
    draw: Draw,
) -> None:
    """The driver's reason to reserve the provider begins or ends in this cycle."""
    holds = Reservations(publishing.client, publishing.context)
    gpu = summary(placement, "gpu")
    before, after = ([], ["cleaning"]) if begins else (["cleaning"], [])
    if beside == "release" or (beside == "both" and not begins):
        holds.reserve(gpu, holder="bob", reason="why")
    driver.says("cn", "gpu", *before)
    publishing.cycle.sync()
    moments = Moments(publishing.state_path)
    start = moments.take()

    def between() -> None:
        if beside == "release" or (beside == "both" and not begins):
            holds.release(gpu, "bob")
        if beside != "release":
            holds.reserve(gpu, holder="ann", reason="why")
        if beside == "both" and begins:
            holds.release(gpu, "ann")

    def steps_with(act_at: int) -> list[str]:
        """Run the cycle, with the other act before the step of this number; return the steps."""
        moments.go_back(start)
        driver.says("cn", "gpu", *before)
        publishing.restarted()
        publishing.cycle.sync()
        driver.says("cn", "gpu", *after)
        with Steps(placement, act_at=act_at, act=between) as steps:
            outcome = getattr(publishing.cycle, cycle_type)()
        assert not outcome.problems
        return steps.passed

    count = len(steps_with(NEVER))
    assert count >= (1 if cycle_type == "drift" else 2)
    for number in draw(range(count), 2):
        step = steps_with(number)[number]
        if begins:
            if beside == "reserve":
                holds.release(gpu, "ann")  # before another cycle reads the reservation
            publishing.cycle.drift()
            assert is_full(placement, "gpu"), step
            driver.says("cn", "gpu")
        elif rows(publishing.context):
            assert is_full(placement, "gpu"), step
        outcome = publishing.cycle.sync()
        assert not outcome.foreign, step
        assert is_sound(publishing, placement), step


def test_reservation_whose_write_keeps_conflicting_fails_and_stays_stored(
    holds: Reservations, publishing: Publishing, placement: PlacementFixture
) -> None:
    def interfere(method: str, path: str) -> None:
        if method == "PUT":
            placement.adapter.before = lambda method, path: None
            writes(placement, "card", FPGA=(3, 0))
            placement.adapter.before = interfere

    placement.adapter.before = interfere
    with pytest.raises(ConcurrentUpdate):
        holds.reserve(summary(placement, "card"), holder="ann", reason="why")
    placement.adapter.before = lambda method, path: None

    assert len(ReservationList.get_by_filters(publishing.context)) == 1
    publishing.cycle.drift()
    assert figures(placement, "card") == FULL["card"]


def test_reservations_of_threads_processes_and_cycles_at_once_are_right_after_one_more_cycle(
    placement_url: tuple[str, Requests],
    driver: ReservingDriver,
    publishing: Publishing,
    placement: PlacementFixture,
) -> None:
    """The process is killed during its attempts."""
    names, seeds = ["gpu", "card"], [1606]
    providers = [summary(placement, name) for name in names]
    done = Counter[str]()

    def hold(seed: int) -> None:
        holds = Reservations(placement.new_client(), publishing.context)
        attempts = holds_at_random(holds, providers, [f"thread {seed}", "both"], seed)
        done.update(islice(attempts, ATTEMPTS))

    def read(process: Popen[str]) -> None:
        assert process.stdout is not None
        done.update(line.strip() for line in islice(process.stdout, ATTEMPTS))
        process.kill()

    processes = [
        start_holding(placement_url[0], publishing.state_path, seed, names) for seed in seeds
    ]
    with ThreadPoolExecutor() as pool:
        futures = [
            *(pool.submit(hold, seed) for seed in range(3)),
            *(pool.submit(read, process) for process in processes),
        ]
        choose = random.Random(SEED)
        while not all(future.done() for future in futures):
            driver.says(
                "cn", "gpu", *choose.sample(["cleaning", "maintenance"], choose.randint(0, 2))
            )
            getattr(publishing.cycle, choose.choice(["sync", "drift"]))()
        for future in futures:
            future.result()
    for process in processes:
        process.communicate()

    assert done.total() == 4 * ATTEMPTS
    assert done["done"] > ATTEMPTS
    driver.says("cn", "gpu")
    outcome = publishing.cycle.sync()
    assert not outcome.problems
    assert not outcome.foreign
    assert is_sound(publishing, placement)
    holds = Reservations(publishing.client, publishing.context)
    for (uuid, holder), _row in rows(publishing.context).items():
        holds.release(next(one for one in providers if one.uuid == uuid), holder)
    assert {name: figures(placement, name) for name in OWN} == OWN


def test_release_of_a_provider_that_another_owner_took_writes_nothing(
    driver: ReservingDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    holds = Reservations(publishing.client, publishing.context)
    gpu = summary(placement, "gpu")
    holds.reserve(gpu, holder="ann", reason="loud")
    traits = placement.client.get_traits(gpu.uuid)
    placement.client.set_traits(gpu.uuid, traits.resource_provider_generation, {"OWNER_CYBORG"})
    placement.requests.clear()

    left = holds.release(gpu, "ann")

    assert left == (
        "its reserved amounts in Placement do not change, since no driver instance publishes it",
    )
    assert placement.requests.writes == []
    assert figures(placement, "gpu") == FULL["gpu"]
    assert not rows(publishing.context)
