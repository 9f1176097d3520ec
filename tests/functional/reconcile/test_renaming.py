"""Renamed providers and nodes: names are restored, and no card is offered twice."""

import json
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from oslo_config import cfg

from tests.functional.scheduling.hosts import publish
from tests.lab.clocks import Clock
from tests.lab.cycles import HOST, Publishing, allocate, contents, everything
from tests.lab.database_writes import Transactions
from tests.lab.drivers import flat, with_children
from tests.lab.placement import PlacementFixture
from tests.lab.samples import uuid
from wharfinger.driver import Allocations, ComputeDriver
from wharfinger.exceptions import MassRemoval, NodeTaken, ProviderRenamed
from wharfinger.providers import ProviderTree, PublishingMode
from wharfinger.tracker import service_record

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "wharfinger_cards.py"
DELAY = 60
CARD = "CUSTOM_CARD_UNIT"
CONSUMER = "6f9de2f4-9d0c-4d0f-a4a6-0c2c5b1f7d31"


def rename(placement: PlacementFixture, old: str, new: str) -> None:
    before = contents(placement)
    parent = before[old]["parent"]
    placement.client.update_provider(before[old]["uuid"], new, parent and before[parent]["uuid"])


def assert_unchanged(
    publishing: Publishing,
    placement: PlacementFixture,
    transactions: Transactions,
    cycle: str,
    *,
    requests: int = 1,
) -> None:
    """Assert that a cycle sends this number of requests to Placement, and writes nothing."""
    placement.requests.clear()
    transactions.clear()
    outcome = getattr(publishing.cycle, cycle)()
    assert not outcome.steps
    assert len(placement.requests) == requests
    assert not transactions.writes


# Providers.


@pytest.mark.parametrize("cycle", ["sync", "drift"])
@pytest.mark.parametrize("name", ["cn", "gpu"])
@pytest.mark.parametrize("others", [[], ["other"]], ids=["host", "fleet"])
def test_cycle_of_provider_renamed_in_placement_restores_its_name(
    publishing: Publishing, placement: PlacementFixture, cycle: str, name: str, others: list[str]
) -> None:
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})
    publishing.driver.nodes |= dict.fromkeys(others, flat(VCPU=2))
    for _ in range(2):
        publishing.cycle.sync()
    before = contents(placement)
    rename(placement, name, "renamed")

    outcome = getattr(publishing.cycle, cycle)()

    assert not outcome.problems
    assert [step.verb for step in outcome.steps] == ["update"]
    assert contents(placement) == before
    publishing.cycle.sync()  # this cycle records that the name has not changed again
    with Transactions() as transactions:
        assert_unchanged(publishing, placement, transactions, cycle)


def overlaid(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
    """Edit a node that another program publishes, and a device of ours below it."""
    tree.set_publishing_mode(node, PublishingMode.OVERLAY)
    device = f"{node}-device"
    if not tree.exists(device):
        tree.new_child(device, node)
    tree.update_inventory(device, {"FPGA": {"total": 2}})


@pytest.mark.parametrize("nodes", [["cn"], ["cn", "other"]], ids=["host", "fleet"])
def test_cycles_of_overlaid_root_renamed_in_placement_report_it_and_keep_children(
    publishing: Publishing, placement: PlacementFixture, nodes: list[str]
) -> None:
    for node in nodes:
        placement.client.create_provider(uuid(node), node, None)
        publishing.driver.nodes[node] = overlaid
    for _ in range(2):
        assert not publishing.cycle.sync().problems
    before = contents(placement)
    rename(placement, "cn", "renamed")

    for cycle in ("drift", "sync", "sync"):
        outcome = getattr(publishing.cycle, cycle)()

        (problem,) = outcome.problems
        assert isinstance(problem, ProviderRenamed)
        assert f"openstack resource provider set --name cn {uuid('cn')}" in str(problem)
        assert not outcome.steps
        assert not outcome.pending
        now = contents(placement)
        assert now.pop("renamed") == before["cn"]
        assert now["cn-device"] == before["cn-device"] | {"parent": "renamed"}
    with Transactions() as transactions:
        # The second request looks for a new root with the name of the node.
        assert_unchanged(publishing, placement, transactions, "sync", requests=2)
    assert isinstance(publishing.restarted().sync().problems[0], ProviderRenamed)
    rename(placement, "renamed", "cn")
    assert not publishing.cycle.sync().problems
    assert contents(placement) == before


# Nodes.


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cards(placement: PlacementFixture, tmp_path: Path, clock: Clock) -> Iterator[Publishing]:
    """The documentation's driver of cards, which has published four cards below nova's root."""
    file = tmp_path / "cards.json"
    file.write_text(json.dumps({str(slot): {"units": 1} for slot in range(4)}))
    conf = cfg.ConfigOpts()
    conf([])
    driver = cards_driver(conf)
    conf.set_override("file", str(file), "cards")
    placement.client.create_provider(uuid(HOST), HOST, None)
    with Publishing(
        placement, tmp_path / "state", name="cards", removal_delay=DELAY, read_uptime=clock
    ) as fixture:
        driver._file = file  # type: ignore[attr-defined]
        fixture.driver = driver  # type: ignore[assignment]
        fixture.restarted()
        assert not fixture.cycle.sync().problems
        yield fixture


def cards_driver(conf: cfg.ConfigOpts) -> ComputeDriver:
    spec = spec_from_file_location("wharfinger_cards", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    driver: ComputeDriver = module.CardsDriver(conf, HOST, "cards")
    return driver


def name_node(cards: Publishing, name: str) -> None:
    """Rename the node of the driver, but not its host."""
    cards.driver.get_available_nodes = lambda refresh=False: [name]  # type: ignore[method-assign]
    cards.driver._read()  # type: ignore[attr-defined]


def offered() -> int:
    """Return the number of cards in Placement that are not reserved."""
    figures = [one["inventories"].get(CARD, (0, 0)) for one in everything().values()]
    return sum(total - reserved for total, reserved in figures)


def offered_after_each_request(placement: PlacementFixture) -> list[int]:
    """Return a list that gets the number of offered cards after each request to Placement."""
    seen: list[int] = []
    placement.adapter.after = lambda _method, _path: seen.append(offered())
    return seen


def names() -> list[str]:
    return sorted(name for name in everything() if "_card_" in name)


def test_cycles_of_renamed_node_never_offer_its_cards_twice(
    cards: Publishing, placement: PlacementFixture, clock: Clock
) -> None:
    old = [f"{HOST}_card_{slot}" for slot in range(4)]
    new = [f"new_card_{slot}" for slot in range(4)]
    assert (names(), offered()) == (old, 4)
    rename(placement, HOST, "new")
    name_node(cards, "new")
    seen = offered_after_each_request(placement)

    assert not cards.cycle.sync().problems
    assert names() == sorted(old + new)
    assert offered() == 4
    found = everything()
    assert all(found[name]["inventories"] == {CARD: (1, 1)} for name in old)
    with Transactions() as transactions:
        cards.cycle.sync()
        assert_unchanged(cards, placement, transactions, "sync")
        assert_unchanged(cards, placement, transactions, "drift")
    assert names() == sorted(old + new), "the delay has not passed"
    clock.later(DELAY)
    outcome = cards.cycle.sync()

    assert not outcome.problems
    assert (names(), offered()) == (new, 4)
    assert max(seen) == 4


def test_node_renamed_and_renamed_back_offers_its_cards_as_before(
    cards: Publishing, placement: PlacementFixture, clock: Clock
) -> None:
    before = contents(placement)
    rename(placement, HOST, "new")
    name_node(cards, "new")
    cards.cycle.sync()
    rename(placement, "new", HOST)
    name_node(cards, HOST)
    seen = offered_after_each_request(placement)

    for _ in range(2):
        assert not cards.cycle.sync().problems
        clock.later(DELAY)
        assert offered() == 4

    assert contents(placement) == before
    assert max(seen) == 4


def test_card_in_use_under_its_old_name_stays_reserved(
    cards: Publishing, placement: PlacementFixture, clock: Clock
) -> None:
    in_use = f"{HOST}_card_0"
    use: dict[str, Any] = {in_use: {CARD: 1}}
    allocate(placement, CONSUMER, **use)
    rename(placement, HOST, "new")
    name_node(cards, "new")

    for _ in range(2):
        cards.cycle.sync()
        clock.later(DELAY)

    assert names() == sorted([in_use, *(f"new_card_{slot}" for slot in range(4))])
    assert everything()[in_use]["inventories"] == {CARD: (1, 1)}


def test_cards_of_a_renamed_node_beyond_the_removal_limit_stay_reserved(
    cards: Publishing, placement: PlacementFixture, clock: Clock
) -> None:
    file: Path = cards.driver._file  # type: ignore[attr-defined]
    file.write_text(json.dumps({str(slot): {"units": 1} for slot in range(8)}))
    assert not cards.cycle.sync().problems
    rename(placement, HOST, "new")
    name_node(cards, "new")
    seen = offered_after_each_request(placement)

    assert not cards.cycle.sync().problems
    clock.later(DELAY)
    outcome = cards.cycle.sync()

    assert [type(one) for one in outcome.problems] == [MassRemoval]
    assert (len(names()), offered()) == (16, 8)
    cards.allow_mass_removal = True
    assert not cards.restarted().sync().problems
    assert (len(names()), offered()) == (8, 8)
    assert max(seen) == 8


def test_cycles_of_driver_that_removes_unreported_children_keep_those_of_other_programs(
    cards: Publishing, placement: PlacementFixture, clock: Clock
) -> None:
    marks = {"OWNER_NOVA", "CUSTOM_WHARFINGER_CARDS"}
    theirs: dict[str, set[str]] = {
        "pgpu": {"OWNER_NOVA"},
        "fpga": {"OWNER_CYBORG"},
        "bridge": set(),
        "orphan": marks,
        f"{HOST}_card_9": marks,
    }
    for name, traits in theirs.items():
        publish(placement.client, name, {CARD: 1}, *traits)
        placement.client.update_provider(uuid(name), name, uuid(HOST))
    before = contents(placement)

    for _ in range(3):
        outcome = cards.cycle.sync()
        clock.later(DELAY)

        assert not outcome.problems
        assert not outcome.steps
        assert {one.name for one in outcome.pending} == {"orphan", f"{HOST}_card_9"}
    assert contents(placement) == before


# Hosts.


@pytest.fixture
def renamed(
    cards: Publishing, placement: PlacementFixture, tmp_path: Path, clock: Clock
) -> Iterator[Publishing]:
    """The driver of cards after a restart on its host, which has a new name."""
    rename(placement, HOST, "new")
    with Publishing(
        placement,
        tmp_path / "state",
        name="cards",
        host="new",
        removal_delay=DELAY,
        read_uptime=clock,
    ) as fixture:
        cards.driver.host = "new"
        fixture.driver = cards.driver
        fixture.restarted()
        yield fixture


def test_cycles_of_renamed_host_never_offer_its_cards_twice(
    renamed: Publishing, placement: PlacementFixture, clock: Clock
) -> None:
    old, new = ([f"{host}_card_{slot}" for slot in range(4)] for host in (HOST, "new"))
    seen = offered_after_each_request(placement)

    first = renamed.cycle.sync()

    assert not first.problems
    assert (names(), offered()) == (sorted(old + new), 4)
    clock.later(DELAY)
    assert not renamed.cycle.sync().problems
    assert (names(), offered()) == (new, 4)
    assert max(seen) == 4
    with Transactions() as transactions:
        renamed.cycle.sync()
        assert_unchanged(renamed, placement, transactions, "sync")


def test_cycle_below_root_with_cards_of_host_that_is_up_writes_nothing(
    renamed: Publishing, placement: PlacementFixture
) -> None:
    service_record.report(renamed.context, HOST, {"OWNER_NOVA"}, complete=True)
    before = contents(placement)

    outcomes = [renamed.cycle.sync(), renamed.cycle.drift(), renamed.cycle.sync()]

    assert contents(placement) == before
    for outcome in outcomes[::2]:
        (problem,) = outcome.problems
        assert isinstance(problem, NodeTaken)
        assert f"on host {HOST}" in str(problem)


def test_absent_card_that_is_due_for_removal_is_reserved_before_a_new_card_is_offered(
    cards: Publishing, placement: PlacementFixture, clock: Clock
) -> None:
    file: Path = cards.driver._file  # type: ignore[attr-defined]
    file.write_text(json.dumps({str(slot): {"units": 1} for slot in range(3)}))
    cards.cycle.sync()
    clock.later(DELAY)
    file.write_text(json.dumps({str(slot): {"units": 1} for slot in (0, 1, 2, 4)}))
    seen = offered_after_each_request(placement)

    for _ in range(2):
        assert not cards.cycle.sync().problems

    assert names() == [f"{HOST}_card_{slot}" for slot in (0, 1, 2, 4)]
    assert max(seen) == 4
