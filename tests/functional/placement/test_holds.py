"""What operators and jobs hold: several at once, whoever comes between, whatever breaks off."""

import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice, permutations
from subprocess import Popen
from uuid import NAMESPACE_OID, uuid5

import pytest

from tests.lab.cycles import Publishing, allocate, contents, everything
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
from wharfinger.driver import Allocations
from wharfinger.exceptions import (
    ConcurrentUpdate,
    NotFound,
    ObjectExists,
    ObjectNotFound,
    PlacementUnavailable,
    ReservationRefused,
)
from wharfinger.objects import ReservationList
from wharfinger.placement.holds import Holds
from wharfinger.providers import ProviderTree

pytestmark = pytest.mark.usefixtures("no_waiting")

#: A root with one class, a child with two, one with none, and a root that another publishes.
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
#: Of each thread and process; and what chooses between the cycles beside them.
ATTEMPTS, SEED = 40, 1606
CONSUMER = str(uuid5(NAMESPACE_OID, "consumer"))


@pytest.fixture
def driver(publishing: Publishing, placement: PlacementFixture) -> ReservingDriver:
    """One that has published all of OWN."""
    driver = CleaningDriver()
    drives(publishing, driver)
    makes(placement, "card", **OWN["card"])
    driver.nodes["cn"] = node(OWN["cn"], gpu=OWN["gpu"], bare=OWN["bare"])
    driver.nodes["card"] = overlaid
    assert not publishing.cycle.sync().problems
    assert {name: figures(placement, name) for name in OWN} == OWN
    return driver


@pytest.fixture
def holds(driver: ReservingDriver, publishing: Publishing) -> Holds:
    return Holds(publishing.client, publishing.context)


@pytest.mark.parametrize("name", OWN)
def test_what_is_reserved_is_full_at_once_and_free_at_once_when_it_is_released(
    name: str, holds: Holds, publishing: Publishing, placement: PlacementFixture
) -> None:
    provider = summary(placement, name)

    held = holds.reserve(provider, holder="ann", reason="disk swap")

    assert figures(placement, name) == FULL[name]
    assert (held.provider_uuid, held.holder, held.reason) == (provider.uuid, "ann", "disk swap")
    assert held.own_reserved == {kind: reserved for kind, (_, reserved) in OWN[name].items()}
    assert holds.release(provider, "ann") == ()
    assert figures(placement, name) == OWN[name]
    assert not rows(publishing.context)


def test_what_is_not_reserved_stays_as_it_is(holds: Holds, placement: PlacementFixture) -> None:
    before = contents(placement)
    gpu = summary(placement, "gpu")
    holds.reserve(gpu, holder="ann", reason="why")
    after = contents(placement)
    del before["gpu"]["inventories"], after["gpu"]["inventories"]
    assert after == before


def test_what_is_allocated_may_be_reserved_and_stays_allocated(
    holds: Holds, placement: PlacementFixture
) -> None:
    allocate(placement, CONSUMER, cn={"VCPU": 3}, gpu={"VGPU": 2})
    before = everything()["gpu"]["allocations"]
    gpu = summary(placement, "gpu")

    holds.reserve(gpu, holder="ann", reason="why")
    assert is_full(placement, "gpu")
    holds.release(gpu, "ann")

    assert figures(placement, "gpu") == OWN["gpu"]
    assert everything()["gpu"]["allocations"] == before


@pytest.mark.parametrize("order", permutations(["ann", "bob", "job"]), ids="-".join)
@pytest.mark.parametrize("name", ["gpu", "card"])
def test_it_is_free_when_the_last_of_several_is_gone_in_any_order(
    order: tuple[str, ...], name: str, holds: Holds, placement: PlacementFixture
) -> None:
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
def test_a_driver_s_reason_and_an_operator_s_both_have_to_end(
    driver_is_last: bool,
    driver: ReservingDriver,
    holds: Holds,
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


def test_one_that_is_reserved_by_its_driver_already_stays_so_when_that_ends(
    driver: ReservingDriver, holds: Holds, publishing: Publishing, placement: PlacementFixture
) -> None:
    driver.says("cn", "gpu", "cleaning")
    publishing.cycle.sync()
    gpu = summary(placement, "gpu")
    held = holds.reserve(gpu, holder="ann", reason="why")
    assert held.own_reserved == {"VGPU": 1, "FPGA": 0}

    driver.says("cn", "gpu")
    publishing.cycle.sync()
    assert figures(placement, "gpu") == FULL["gpu"]
    holds.release(gpu, "ann")

    assert figures(placement, "gpu") == OWN["gpu"]


def test_a_holder_has_a_provider_once(
    holds: Holds, publishing: Publishing, placement: PlacementFixture
) -> None:
    gpu = summary(placement, "gpu")
    holds.reserve(gpu, holder="ann", reason="why")
    with pytest.raises(ObjectExists):
        holds.reserve(gpu, holder="ann", reason="once more")

    assert [one.reason for one in rows(publishing.context).values()] == ["why"]
    assert is_full(placement, "gpu")


def test_who_has_nothing_of_it_releases_nothing(holds: Holds, placement: PlacementFixture) -> None:
    gpu = summary(placement, "gpu")
    holds.reserve(gpu, holder="ann", reason="why")
    with pytest.raises(ObjectNotFound, match="gpu by bob"):
        holds.release(gpu, "bob")
    assert is_full(placement, "gpu")


@pytest.mark.parametrize("owner", [None, "CUSTOM_OWNER_ACME"])
def test_what_nobody_publishes_here_is_refused_and_left_alone(
    owner: str | None, holds: Holds, publishing: Publishing, placement: PlacementFixture
) -> None:
    theirs = makes(placement, "theirs", FPGA=(2, 0))
    if owner is not None:
        generation = placement.client.get_traits(theirs).resource_provider_generation
        placement.client.create_trait(owner)
        placement.client.set_traits(theirs, generation, [owner])
    before = contents(placement)

    with pytest.raises(ReservationRefused, match=owner or "nobody known"):
        holds.reserve(summary(placement, "theirs"), holder="ann", reason="why")

    assert contents(placement) == before
    assert not rows(publishing.context)


def test_what_another_owner_took_from_us_is_refused(
    holds: Holds, placement: PlacementFixture
) -> None:
    gpu, client = summary(placement, "gpu"), placement.client
    client.set_traits(gpu.uuid, gpu.generation, ["OWNER_CYBORG"])
    with pytest.raises(ReservationRefused, match="OWNER_CYBORG"):
        holds.reserve(gpu, holder="ann", reason="why")


# Its own figure.


@pytest.mark.parametrize("cycles", [0, 1])
def test_what_its_owner_writes_meanwhile_is_what_comes_back(
    cycles: int, holds: Holds, publishing: Publishing, placement: PlacementFixture
) -> None:
    card = summary(placement, "card")
    holds.reserve(card, holder="ann", reason="why")
    writes(placement, "card", FPGA=(5, 4), VGPU=(2, 0))
    for _ in range(cycles):
        publishing.cycle.drift()
        assert figures(placement, "card") == {"FPGA": (5, 5), "VGPU": (2, 2)}

    holds.release(card, "ann")

    assert figures(placement, "card") == {"FPGA": (5, 4), "VGPU": (2, 0)}


@pytest.mark.parametrize("cycles", [0, 1])
def test_who_comes_later_reserves_anew_what_its_owner_has_written(
    cycles: int, holds: Holds, publishing: Publishing, placement: PlacementFixture
) -> None:
    card = summary(placement, "card")
    holds.reserve(card, holder="ann", reason="why")
    for _ in range(cycles):
        publishing.cycle.drift()
    writes(placement, "card", FPGA=(5, 4))
    held = holds.reserve(card, holder="bob", reason="why")
    assert figures(placement, "card") == {"FPGA": (5, 5)}
    assert held.own_reserved == {"FPGA": 4}

    holds.release(card, "bob")
    assert figures(placement, "card") == {"FPGA": (5, 5)}
    holds.release(card, "ann")

    assert figures(placement, "card") == {"FPGA": (5, 4)}


def test_a_total_that_shrank_below_the_figure_is_reserved_whole(
    holds: Holds, placement: PlacementFixture
) -> None:
    card = summary(placement, "card")
    holds.reserve(card, holder="ann", reason="why")
    writes(placement, "card", FPGA=(1, 1))
    holds.release(card, "ann")
    assert figures(placement, "card") == {"FPGA": (1, 1)}


@pytest.mark.parametrize("name", ["gpu", "card"])
@pytest.mark.parametrize("cycles", [0, 1])
def test_what_is_remembered_is_lost_and_the_reservation_knows_the_figures(
    name: str, cycles: int, holds: Holds, publishing: Publishing, placement: PlacementFixture
) -> None:
    provider = summary(placement, name)
    holds.reserve(provider, holder="ann", reason="why")
    lose_records(publishing)
    for _ in range(cycles):
        outcome = publishing.cycle.sync()
        assert not outcome.foreign
        assert figures(placement, name) == FULL[name]

    Holds(publishing.client, publishing.context).release(provider, "ann")

    assert figures(placement, name) == OWN[name]


# Somebody else's reservation.


@pytest.mark.parametrize("name", ["gpu", "card"])
@pytest.mark.parametrize("cycles", [0, 1])
def test_a_foreign_reservation_is_there_before_during_and_after_ours(
    name: str, cycles: int, holds: Holds, publishing: Publishing, placement: PlacementFixture
) -> None:
    theirs = {**OWN[name], "FPGA": FULL[name]["FPGA"]}
    writes(placement, name, **theirs)
    provider = summary(placement, name)

    held = holds.reserve(provider, holder="ann", reason="why")
    assert "FPGA" not in held.own_reserved
    assert figures(placement, name) == FULL[name]
    for _ in range(cycles):
        [foreign] = publishing.cycle.drift().foreign
        assert (foreign.name, set(foreign.classes)) == (name, {"FPGA"})
    holds.release(provider, "ann")
    assert figures(placement, name) == theirs
    [foreign] = publishing.cycle.sync().foreign

    assert (foreign.name, set(foreign.classes)) == (name, {"FPGA"})
    assert figures(placement, name) == theirs


def with_fpga(tree: ProviderTree, name: str, allocations: Allocations | None) -> None:
    """A device below a node of which it says nothing: that is somebody else's."""
    if not tree.exists("fpga"):
        tree.new_child("fpga", name)
    tree.update_inventory("fpga", {"FPGA": {"total": 2}})


def test_what_another_instance_saw_of_a_provider_restores_nothing(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    """It publishes the root; the child, which others have reserved by the end, is not its own."""
    publishing.driver.nodes["cn"] = flat(VCPU=8)
    publishing.cycle.sync()
    holds = Holds(publishing.client, publishing.context)
    with Publishing(placement, publishing.state_path, owner="OWNER_CYBORG", name="other") as other:
        other.driver.nodes["cn"] = with_fpga
        assert not other.cycle.sync().problems
        fpga = summary(placement, "fpga")
        holds.reserve(fpga, holder="ann", reason="why")
        for cycle in (publishing.cycle, other.cycle):
            cycle.sync()
        assert fpga.uuid in publishing.memory.records
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


# Placement or the provider is away.


def test_what_placement_did_not_take_is_stored_and_written_by_the_next_cycle(
    holds: Holds, publishing: Publishing, placement: PlacementFixture
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


def test_a_provider_that_is_gone_can_be_released(
    holds: Holds, publishing: Publishing, placement: PlacementFixture
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

Act = Callable[[Holds, PlacementFixture], object]


def reserve(holds: Holds, placement: PlacementFixture) -> object:
    return holds.reserve(summary(placement, "gpu"), holder="ann", reason="why")


def release(holds: Holds, placement: PlacementFixture) -> object:
    return holds.release(summary(placement, "gpu"), "ann")


def give_back(holds: Holds, placement: PlacementFixture) -> object:
    return holds.give_back(CONSUMER)


ACTS: dict[str, Act] = {"reserve": reserve, "release": release, "give back": give_back}


@pytest.fixture(params=ACTS)
def act(request: pytest.FixtureRequest, holds: Holds, placement: PlacementFixture) -> Act:
    """What is done, and what has to be there for it."""
    if request.param == "release":
        reserve(holds, placement)
    if request.param == "give back":
        allocate(placement, CONSUMER, gpu={"VGPU": 2}, cn={"VCPU": 1})
    return ACTS[request.param]


def again(publishing: Publishing) -> Holds:
    """Those of a process that starts now."""
    publishing.restarted()
    return Holds(publishing.client, publishing.context)


def is_sound(publishing: Publishing, placement: PlacementFixture) -> bool:
    """Whether each provider is full if somebody holds it, and its own again if nobody does."""
    held = {uuid for uuid, _holder in rows(publishing.context)}
    found = contents(placement)
    return all(
        found[name]["inventories"] == (FULL if found[name]["uuid"] in held else OWN)[name]
        for name in OWN
    )


@pytest.mark.parametrize("after", ["sync", "drift", "poll"])
def test_a_crash_at_any_step_is_made_good_by_the_next_cycle(
    after: str, act: Act, publishing: Publishing, placement: PlacementFixture
) -> None:
    moments = Moments(publishing.state_path)
    start = moments.take()
    with Steps(placement) as steps:
        act(again(publishing), placement)
    assert len(steps.passed) >= 4
    for number, step in enumerate(steps.passed):
        moments.go_back(start)
        holds = again(publishing)
        with Steps(placement, crash_at=number), pytest.raises(Crash):
            act(holds, placement)
        publishing.restarted()
        outcome = getattr(publishing.cycle, after)()

        assert not outcome.problems, step
        assert not outcome.foreign, step
        assert is_sound(publishing, placement), step
        with suppress(ObjectExists, ObjectNotFound):
            act(Holds(publishing.client, publishing.context), placement)
        assert is_sound(publishing, placement), step


def test_what_a_crash_broke_off_is_completed_by_doing_it_again(
    act: Act, publishing: Publishing, placement: PlacementFixture
) -> None:
    moments = Moments(publishing.state_path)
    start = moments.take()
    with Steps(placement) as steps:
        act(again(publishing), placement)
    done = contents(placement)
    holders = rows(publishing.context).keys()
    for number, step in enumerate(steps.passed):
        moments.go_back(start)
        with Steps(placement, crash_at=number), pytest.raises(Crash):
            act(again(publishing), placement)

        with suppress(ObjectExists, ObjectNotFound):
            act(again(publishing), placement)

        assert contents(placement) == done, step
        assert rows(publishing.context).keys() == holders, step
        if act is give_back:
            assert not any(one["allocations"] for one in everything().values()), step


# Beside each other and beside cycles.

BESIDE: dict[str, Callable[[Publishing, PlacementFixture], object]] = {
    "sync": lambda publishing, placement: publishing.cycle.sync(),
    "reserve": lambda publishing, placement: Holds(publishing.client, publishing.context).reserve(
        summary(placement, "gpu"), holder="bob", reason="why"
    ),
    "release": lambda publishing, placement: Holds(publishing.client, publishing.context).release(
        summary(placement, "gpu"), "bob"
    ),
    "the same": lambda publishing, placement: Holds(publishing.client, publishing.context).release(
        summary(placement, "gpu"), "ann"
    ),
}


@pytest.mark.parametrize("beside", BESIDE)
def test_whoever_comes_between_any_two_steps_what_is_held_is_full(
    beside: str, act: Act, publishing: Publishing, placement: PlacementFixture
) -> None:
    if beside == "release":
        BESIDE["reserve"](publishing, placement)
    moments = Moments(publishing.state_path)
    start = moments.take()

    def between() -> None:
        with suppress(ObjectExists, ObjectNotFound):
            BESIDE[beside](publishing, placement)

    number = 0
    while True:
        moments.go_back(start)
        holds = again(publishing)
        steps = Steps(placement, act_at=number, act=between)
        with steps, suppress(ObjectExists, ObjectNotFound):
            act(holds, placement)
        if len(steps.passed) <= number:
            break
        step = steps.passed[number]
        held = {uuid for uuid, _holder in rows(publishing.context)}
        for name in ("cn", "gpu"):
            if summary(placement, name).uuid in held:
                assert is_full(placement, name), step
        outcome = publishing.cycle.sync()
        assert not outcome.problems, step
        assert is_sound(publishing, placement), step
        number += 1
    assert number >= 5


@pytest.mark.parametrize("pace", ["sync", "drift", "poll"])
@pytest.mark.parametrize("beside", ["reserve", "release", "both"])
def test_who_comes_between_any_two_steps_of_a_cycle_that_frees_it_holds_it(
    pace: str,
    beside: str,
    driver: ReservingDriver,
    publishing: Publishing,
    placement: PlacementFixture,
) -> None:
    """The driver's reason ends in this cycle."""
    holds = Holds(publishing.client, publishing.context)
    gpu = summary(placement, "gpu")
    if beside != "reserve":
        holds.reserve(gpu, holder="bob", reason="why")
    driver.says("cn", "gpu", "cleaning")
    publishing.cycle.sync()
    moments = Moments(publishing.state_path)
    start = moments.take()

    def between() -> None:
        if beside != "reserve":
            holds.release(gpu, "bob")
        if beside != "release":
            holds.reserve(gpu, holder="ann", reason="why")

    number = 0
    while True:
        moments.go_back(start)
        driver.says("cn", "gpu", "cleaning")
        publishing.restarted()
        publishing.cycle.sync()
        driver.says("cn", "gpu")
        with Steps(placement, act_at=number, act=between) as steps:
            outcome = getattr(publishing.cycle, pace)()
        if len(steps.passed) <= number:
            break
        step = steps.passed[number]
        assert not outcome.problems, step
        if rows(publishing.context):
            assert is_full(placement, "gpu"), step
        outcome = publishing.cycle.sync()
        assert not outcome.foreign, step
        assert is_sound(publishing, placement), step
        number += 1
    assert number >= (1 if pace == "drift" else 2)


@pytest.mark.parametrize("pace", ["sync", "poll"])
@pytest.mark.parametrize("beside", ["reserve", "release", "both"])
def test_who_comes_between_any_two_steps_of_a_cycle_whose_driver_begins_loses_nothing(
    pace: str,
    beside: str,
    driver: ReservingDriver,
    publishing: Publishing,
    placement: PlacementFixture,
) -> None:
    """The driver has a reason from this cycle on, and none any more later."""
    holds = Holds(publishing.client, publishing.context)
    gpu = summary(placement, "gpu")
    if beside == "release":
        holds.reserve(gpu, holder="ann", reason="why")
    moments = Moments(publishing.state_path)
    start = moments.take()

    def between() -> None:
        if beside != "release":
            holds.reserve(gpu, holder="ann", reason="why")
        if beside != "reserve":
            holds.release(gpu, "ann")

    number = 0
    while True:
        moments.go_back(start)
        driver.says("cn", "gpu")
        publishing.restarted()
        publishing.cycle.sync()
        driver.says("cn", "gpu", "cleaning")
        with Steps(placement, act_at=number, act=between) as steps:
            outcome = getattr(publishing.cycle, pace)()
        if len(steps.passed) <= number:
            break
        step = steps.passed[number]
        assert not outcome.problems, step
        if beside == "reserve":
            holds.release(gpu, "ann")  # before another cycle has seen it
        publishing.cycle.drift()
        assert is_full(placement, "gpu"), step
        driver.says("cn", "gpu")
        outcome = publishing.cycle.sync()
        assert not outcome.foreign, step
        assert figures(placement, "gpu") == OWN["gpu"], step
        number += 1
    assert number >= 2


def test_a_write_that_others_keep_refusing_is_told_and_stays_stored(
    holds: Holds, publishing: Publishing, placement: PlacementFixture
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


def test_threads_processes_and_cycles_all_at_once_end_right_after_one_more_cycle(
    placement_url: tuple[str, Requests],
    driver: ReservingDriver,
    publishing: Publishing,
    placement: PlacementFixture,
) -> None:
    """One of the processes is killed, whatever it is at."""
    names, seeds = ["gpu", "card"], [1606, 1607]
    providers = [summary(placement, name) for name in names]
    done = Counter[str]()

    def hold(seed: int) -> None:
        holds = Holds(placement.new_client(), publishing.context)
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
            cycle = choose.choice([publishing.cycle.sync, publishing.cycle.drift])
            cycle()
        for future in futures:
            future.result()
    for process in processes:
        process.communicate()

    assert done.total() == 5 * ATTEMPTS
    assert done["done"] > ATTEMPTS
    driver.says("cn", "gpu")
    outcome = publishing.cycle.sync()
    assert not outcome.problems
    assert not outcome.foreign
    assert is_sound(publishing, placement)
    holds = Holds(publishing.client, publishing.context)
    for (uuid, holder), _row in rows(publishing.context).items():
        holds.release(next(one for one in providers if one.uuid == uuid), holder)
    assert {name: figures(placement, name) for name in OWN} == OWN


def test_what_has_come_to_be_another_owners_is_not_written_when_it_is_released(
    driver: ReservingDriver, publishing: Publishing, placement: PlacementFixture
) -> None:
    holds = Holds(publishing.client, publishing.context)
    gpu = summary(placement, "gpu")
    holds.reserve(gpu, holder="ann", reason="loud")
    traits = placement.client.get_traits(gpu.uuid)
    placement.client.set_traits(gpu.uuid, traits.resource_provider_generation, {"OWNER_CYBORG"})
    placement.requests.clear()

    holds.release(gpu, "ann")

    assert placement.requests.writes == []
    assert figures(placement, "gpu") == FULL["gpu"]
    assert not rows(publishing.context)
