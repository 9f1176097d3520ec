"""The Cyborg driver where not all is well: providers that are gone, and reports all the while.

And what devices hold, which Cyborg's reports may take away again.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.lab.accelerators import Cards, Clock, figures, traits, without_marks
from tests.lab.cyborg_harness import MARKS, NOVA, Harness
from tests.lab.cycles import everything
from tests.lab.inprocess import run
from tests.lab.program import Program
from wharfinger.objects import DeviceJobList
from wharfinger.placement.embedded import EmbeddedPlacement
from wharfinger_harnesses.cyborg import Cyborg, deployable, device

HOST: Final = "fpga-host-1"
TRAIT: Final = "CUSTOM_FPGA_LAB"
HELD: Final = "CUSTOM_FPGA_FUNCTION_ID_LAB_"
DEVICES: Final = (
    device("0c", deployable(accelerators=2), deployable("r1")),
    device("1c", deployable(resource_class="PGPU"), kind="GPU"),
)


@pytest.fixture(scope="module")
def harness(placement_service: EmbeddedPlacement) -> Iterator[Harness]:
    with Harness(placement_service, HOST) as harness:
        yield harness


@pytest.fixture
def cards(harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cards]:
    """What Cyborg has, published."""
    Clock.stopped(monkeypatch)
    harness.begin(*DEVICES)
    with Cards(harness.placement, harness.url, tmp_path) as cards:
        cards.sync()
        yield cards


# Providers that are not there.


@contextmanager
def lacking_provider(harness: Harness, name: str) -> Iterator[None]:
    """Cyborg has not published a deployable, as far as it knows."""
    (uuid,) = (one["rp_uuid"] for one in harness.cyborg.deployables() if one["name"] == name)
    change = "UPDATE deployables SET rp_uuid = :uuid WHERE name = :name"
    harness.cyborg.execute(change, uuid=None, name=name)
    yield
    harness.cyborg.execute(change, uuid=uuid, name=name)


def test_a_deployable_without_a_provider_is_told_and_the_rest_goes_on(
    harness: Harness, cards: Cards
) -> None:
    name = harness.name("1c")
    with lacking_provider(harness, name):
        harness.cyborg.add_device("2c")
        harness.cyborg.discover()
        (problem,) = cards.problems()
        assert f"deployable {name} (" in problem
        assert "no resource provider" in problem
        # It is there in truth, and keeps what it has.
        assert traits(name) == {TRAIT} | MARKS
        assert traits(harness.name("2c")) == {TRAIT} | MARKS
        assert cards.problems() == [problem]
    cards.sync()


def test_a_provider_that_somebody_has_deleted_is_told_and_not_made_again(
    harness: Harness, cards: Cards
) -> None:
    name, uuid = harness.name("0c"), harness.uuid("0c")
    cards.client.delete_provider(uuid)
    before = everything()
    for cycle in (cards.cycle, cards.cycle, cards.restarted()):
        (problem,) = map(str, cycle.sync().problems)
        assert f"deployable {name} (" in problem
        assert uuid in problem
        assert HOST in problem
    assert everything() == before

    harness.cyborg.set_hardware(DEVICES[1])
    harness.cyborg.discover()
    cards.sync()
    harness.cyborg.set_hardware(*DEVICES)
    harness.cyborg.discover()
    assert len(cards.sync().steps) == 2
    assert traits(name) == {TRAIT} | MARKS


def test_a_root_that_is_gone_is_told_and_not_made_again(harness: Harness, cards: Cards) -> None:
    for name, one in everything().items():
        if name != HOST:
            cards.client.delete_provider(one["uuid"])
    cards.client.delete_provider(everything()[HOST]["uuid"])

    for _ in range(2):
        assert len(cards.problems()) >= len(harness.cyborg.deployables())
        assert everything() == {}


def test_the_program_tells_what_it_could_not_publish(harness: Harness, tmp_path: Path) -> None:
    harness.begin(*DEVICES)
    program = Program(tmp_path, harness.placement_url)
    state, name = tmp_path / "state", harness.name("1c")
    program.config.write_text(
        f"[DEFAULT]\nenabled_drivers = fpga\nhost = ctl\nstate_path = {state}\n"
        f"[fpga]\ndriver = cyborg\nauth_type = none\nendpoint = {harness.url}\n"
        f"[placement]\nembedded = false\nauth_type = admin_token\ntoken = admin\n"
        f"endpoint = {harness.placement_url}\nendpoint_override = {harness.placement_url}\n"
    )
    with lacking_provider(harness, name):
        done = run(program, "sync")
        assert done.code == 1
        assert f"fpga: driver fpga: publishing failed: deployable {name} (" in done.err
        assert "2 changes written" in done.out
    done = run(program, "sync")
    assert (done.code, done.err) == (0, "")
    assert "1 change written" in done.out
    assert run(program, "sync", "--dry-run").code == 0


# What devices hold.


def trait_of(function: str) -> str:
    return f"{HELD}{function}"


@pytest.mark.parametrize("pace", ["sync", "drift"])
def test_what_a_device_was_programmed_with_is_said_again(
    harness: Harness, cards: Cards, pace: str
) -> None:
    name = harness.name("1c")
    cards.was_programmed(harness.uuid("1c"), trait_of("3AFB"))
    cards.sync()
    assert traits(name) == {TRAIT, trait_of("3AFB")} | MARKS
    # The device reports another trait: what its position had is taken away by Cyborg.
    for its in ([trait_of("3AFB")], [TRAIT], ["CUSTOM_OTHER"]):
        harness.cyborg.change_device("1c", deployables=[deployable(traits=its)])
        harness.cyborg.discover()
        cycle = {"sync": cards.cycle.sync, "drift": cards.cycle.drift}[pace]
        # Cyborg has Placement forget the name, too, where nobody has that trait any more.
        if any("No such trait" in str(problem) for problem in cycle().problems):
            assert not cycle().problems
        assert traits(name) == {*its, trait_of("3AFB")} | MARKS
    assert not cards.sync().steps


def test_what_cyborg_has_put_there_since_stays(harness: Harness, cards: Cards) -> None:
    name, uuid = harness.name("0c"), harness.uuid("0c")
    cards.was_programmed(uuid, trait_of("3AFB"))
    cards.sync()
    request = harness.cyborg.bind(uuid, bitstream_id=harness.cyborg.create_image("4AFB"))
    harness.cyborg.wait_for_request(request, "Bound")
    assert trait_of("4AFB") in traits(name)

    for _ in range(2):
        cards.sync()
        assert traits(name) == {TRAIT, trait_of("4AFB")} | MARKS


def test_what_its_agent_finds_on_it_is_not_said_twice(harness: Harness, cards: Cards) -> None:
    harness.begin(device("3c", function="1111", reports_function=True))
    cards.sync()
    name, uuid = harness.name("3c"), harness.uuid("3c")
    assert traits(name) == {TRAIT, trait_of("1111")} | MARKS
    image = harness.cyborg.create_image("2222")
    assert harness.cyborg.program(harness.cyborg.deployable("3c")["uuid"], image).ok
    cards.was_programmed(uuid, trait_of("2222"), trait_of("1111"))
    change = {TRAIT, trait_of("2222")} | MARKS

    harness.cyborg.discover()
    cards.sync()
    assert traits(name) == change
    cards.restarted()
    cards.sync()
    assert traits(name) == change
    assert cards.driver.current_function(uuid) == "2222"


def test_what_a_device_held_is_forgotten_with_it(harness: Harness, cards: Cards) -> None:
    cards.was_programmed(harness.uuid("1c"), trait_of("3AFB"))
    cards.sync()
    harness.cyborg.remove_device("1c")
    harness.cyborg.discover()
    for _ in range(2):
        cards.sync()
    assert not DeviceJobList.get_by_filters(cards.context)

    harness.cyborg.set_hardware(*DEVICES)
    harness.cyborg.discover()
    cards.sync()
    assert traits(harness.name("1c")) == {TRAIT} | MARKS


# Reports all the while.


def test_reports_all_the_while_lose_nothing_of_ours_and_no_write_harms_theirs(
    placement_service: EmbeddedPlacement, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Clock.stopped(monkeypatch)
    chance = random.Random(8)
    buses = ["01", "02", "03", "04"]
    with Harness(placement_service, HOST, reports_every=0.02) as harness:
        cyborg = harness.cyborg
        cyborg.set_hardware(*map(device, buses))
        cyborg.wait_for_reports()
        with Cards(harness.placement, harness.url, tmp_path) as cards:
            cards.cycle.sync()
            cards.hold(harness.uuid(buses[0]))
            with harness.watching() as writes:
                for _ in range(20):
                    change_something(cyborg, chance, buses)
                    cyborg.wait_for_reports(chance.randint(0, 1))
                    chance.choice([cards.cycle.poll, cards.cycle.drift, cards.cycle.sync])()

            assert writes
            assert [write.harm for write in writes if write.harm] == []
            # What we write between what Cyborg reads and what it writes of that, it gives up, and
            # takes for done: only what it reports after this is certain to be there.
            cyborg.set_hardware(*(device(bus, deployable(accelerators=12)) for bus in buses))
            cyborg.wait_for_reports()
            cards.sync()
            after = everything()
            described = {one["name"]: one["rp_uuid"] for one in cyborg.deployables()}
            assert {name: one["uuid"] for name, one in after.items() if name != HOST} == described
            assert all(after[name]["traits"] >= MARKS for name in described)
            assert after[HOST]["traits"] == {NOVA, "COMPUTE_NODE"}
            assert [figures(harness.name(bus)) for bus in buses] == [
                {"FPGA": (12, 12)},
                *[{"FPGA": (12, 0)}] * 3,
            ]
            assert not cards.sync().steps


def change_something(cyborg: Cyborg, chance: random.Random, buses: list[str]) -> None:
    """Have one device be another, or come anew; the first only be resized."""
    bus = chance.choice(buses)
    size, trait = chance.randint(1, 9), f"CUSTOM_T{chance.randint(1, 3)}"
    match chance.choice(["resize", "trait", "replace"]):
        case "trait" if bus != buses[0]:
            cyborg.change_device(bus, deployables=[deployable(traits=[trait])])
        case "replace" if bus != buses[0]:
            cyborg.remove_device(bus)
            cyborg.wait_for_reports()
            cyborg.add_device(bus)
        case _:
            cyborg.resize(bus, size)


def test_the_same_changes_come_to_the_same_without_us(harness: Harness, cards: Cards) -> None:
    def go_through(step: int) -> None:
        chance = random.Random(step)
        names = ["CUSTOM_A", "CUSTOM_B", "CUSTOM_C", TRAIT]
        its = chance.sample(names, chance.randint(0, 4))
        size = chance.randint(1, 5)
        changed = [deployable(accelerators=size, traits=its), *DEVICES[0]["deployables"][1:]]
        harness.cyborg.change_device("0c", deployables=changed)
        harness.cyborg.discover()

    paces = (cards.sync, cards.drift, cards.poll)
    for step in range(9):
        go_through(step)
        paces[step % 3]()
        assert all(one["traits"] >= MARKS for name, one in everything().items() if name != HOST)
    with_us = without_marks(everything())

    harness.begin(*DEVICES)
    for step in range(9):
        go_through(step)
    root = {"uuid": with_us[HOST]["uuid"]}
    without_us = everything()
    without_us[HOST] |= root
    assert with_us == without_us
