"""Fights, in which two programs keep writing the same value: reports, and number of our writes."""

import logging
from collections.abc import Iterator, Set
from typing import Final

import pytest

from tests.lab.cycles import Publishing, contents
from tests.lab.database_writes import Transactions
from tests.lab.drivers import Edit, also, flat
from tests.lab.placement import PlacementFixture
from wharfinger.exceptions import ProviderMissing, ReservationRefused
from wharfinger.placement.model import ProviderSummary
from wharfinger.providers import Inventory, ProviderTree, PublishingMode, fights
from wharfinger.providers.provider import Record
from wharfinger.reconcile.reserve_and_release import Reservations

NODE: Final = "cn"
MARK: Final = "CUSTOM_WHARFINGER_SCRIPTED"
NOVAS_TRAITS: Final = frozenset({"OWNER_NOVA", "COMPUTE_NODE"})

pytestmark = pytest.mark.usefixtures("no_waiting")


class OtherProgram:
    """Another program that writes a provider directly, as nova's report client does."""

    def __init__(self, placement: PlacementFixture) -> None:
        self._client = placement.new_client()

    def find(self, name: str = NODE) -> ProviderSummary:
        (found,) = self._client.list_providers(name=name)
        return found

    def create(self, name: str = NODE, parent: str | None = None, **totals: int) -> None:
        self._client.create_provider(
            f"00000000-0000-0000-0000-00000000000{len(name)}", name, parent
        )
        self.write(name, NOVAS_TRAITS, **totals)

    def write(self, name: str = NODE, traits: frozenset[str] = NOVAS_TRAITS, **totals: int) -> None:
        """Replace a provider's inventories and traits."""
        found = self.find(name)
        generation = self._client.set_inventories(
            found.uuid,
            found.generation,
            {kind: Inventory(total=total) for kind, total in totals.items()},
        )
        self._client.set_traits(found.uuid, generation, traits)

    def rename(self, name: str, new: str) -> None:
        self._client.update_provider(self.find(name).uuid, new, None)

    def delete(self, name: str = NODE) -> None:
        self._client.delete_provider(self.find(name).uuid)


@pytest.fixture
def nova(placement: PlacementFixture) -> OtherProgram:
    return OtherProgram(placement)


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    """The messages that cycles log as warnings."""
    found: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: found.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("wharfinger.reconcile.cycle")
    logger.addHandler(handler)
    yield found
    logger.removeHandler(handler)


def totals(placement: PlacementFixture, name: str = NODE) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = contents(placement)[name]["inventories"]
    return found


def record_of(publishing: Publishing, uuid: str) -> Record:
    return publishing.store.get(uuid)


def auto(edit: Edit) -> Edit:
    """Return an edit of a node in publishing mode AUTO: the framework chooses OWN or OVERLAY."""

    def both(tree: ProviderTree, node: str, allocations: object) -> None:
        if tree.set_publishing_mode(node, PublishingMode.AUTO) is PublishingMode.OWN:
            edit(tree, node, None)

    return both


def overwrite_after_each_sync(publishing: Publishing, nova: OtherProgram, times: int) -> None:
    """Publish VCPU 64; after each sync, of a new process each time, let nova set VCPU 10."""
    publishing.driver.nodes[NODE] = flat(VCPU=64)
    for _ in range(times):
        assert not publishing.restarted().sync().problems
        nova.write(VCPU=10)


# Fights.


def test_fight_with_nova_compute_is_logged_once_with_both_values(
    publishing: Publishing, nova: OtherProgram, warnings: list[str]
) -> None:
    overwrite_after_each_sync(publishing, nova, 3)
    assert warnings == []

    assert publishing.restarted().sync().steps
    (message,) = warnings
    uuid = nova.find().uuid
    assert message.startswith(f"{NODE} ({uuid}): driver instance scripted and nova-compute on cn ")
    assert "inventory of VCPU: total 64 (ours), total 10 (theirs)" in message
    assert f"trait {MARK}: set (ours), not there (theirs)" in message

    nova.write(VCPU=10)
    assert publishing.restarted().sync().steps, "a full cycle writes still"
    assert len(warnings) == 1
    assert fights.fights(record_of(publishing, uuid))["inventory of VCPU"].count == 4


def test_fight_that_ends_is_forgotten_and_an_unchanged_cycle_writes_nothing(
    publishing: Publishing, nova: OtherProgram, placement: PlacementFixture
) -> None:
    overwrite_after_each_sync(publishing, nova, 3)
    publishing.restarted().sync()
    uuid = nova.find().uuid
    assert fights.fights(record_of(publishing, uuid))

    assert not publishing.restarted().sync().steps
    assert record_of(publishing, uuid).undone == {}
    placement.requests.clear()
    publishing.restarted()
    with Transactions() as transactions:
        assert not publishing.cycle.sync().steps
    assert not transactions.writes
    assert len(placement.requests) == 1


def test_count_of_overwrites_restarts_after_a_cycle_that_finds_the_value(
    publishing: Publishing, nova: OtherProgram, warnings: list[str]
) -> None:
    for _ in range(3):
        overwrite_after_each_sync(publishing, nova, 2)
        publishing.restarted().sync()
        publishing.restarted().sync()

    assert warnings == []


def test_drift_cycle_of_a_fight_writes_nothing_and_the_full_cycle_writes_once(
    publishing: Publishing, nova: OtherProgram, placement: PlacementFixture
) -> None:
    overwrite_after_each_sync(publishing, nova, 3)
    publishing.restarted().sync()

    for _ in range(3):
        nova.write(VCPU=10)
        placement.requests.clear()
        assert not publishing.cycle.drift().steps
        assert placement.requests.writes == []
    assert totals(placement) == {"VCPU": (10, 0)}
    publishing.cycle.sync()
    assert totals(placement) == {"VCPU": (64, 0)}


def test_drift_cycle_of_a_fight_sets_a_reservation(
    publishing: Publishing, nova: OtherProgram, placement: PlacementFixture
) -> None:
    overwrite_after_each_sync(publishing, nova, 3)
    publishing.restarted().sync()
    nova.write(VCPU=10)
    Reservations(publishing.client, publishing.context).reserve(
        nova.find(), holder="operator", reason="burns"
    )
    nova.write(VCPU=10)

    publishing.cycle.drift()

    assert totals(placement) == {"VCPU": (64, 64)}


def test_fight_of_drift_cycles_is_logged_though_each_full_cycle_finds_the_value(
    publishing: Publishing, nova: OtherProgram, warnings: list[str]
) -> None:
    """An agent restores within a minute the value that nova overwrites every five minutes."""
    publishing.driver.nodes[NODE] = flat(VCPU=64)
    publishing.cycle.sync()
    for number in range(3):
        assert warnings == [], number
        nova.write(VCPU=10)
        publishing.cycle.drift()
        publishing.cycle.sync()

    assert len(warnings) == 1
    publishing.cycle.sync()
    assert record_of(publishing, nova.find().uuid).undone == {}


def test_values_added_by_another_program_are_no_fight(
    publishing: Publishing, nova: OtherProgram, warnings: list[str]
) -> None:
    publishing.driver.nodes[NODE] = flat(CUSTOM_GOLD=1)
    publishing.cycle.sync()
    for total in range(1, 5):
        nova.write(traits=NOVAS_TRAITS | {MARK}, CUSTOM_GOLD=1, DISK_GB=total)
        publishing.restarted().sync()

    assert warnings == []
    assert record_of(publishing, nova.find().uuid).undone == {}


def test_values_that_the_driver_changes_are_no_fight(
    publishing: Publishing, nova: OtherProgram, warnings: list[str]
) -> None:
    for total in range(1, 6):
        publishing.driver.nodes[NODE] = flat(CUSTOM_GOLD=total)
        publishing.restarted().sync()

    assert warnings == []
    assert record_of(publishing, nova.find().uuid).undone == {}


# The other writer.


def test_fight_with_a_program_that_removes_the_instance_trait_names_novas_ironic_driver(
    publishing: Publishing, nova: OtherProgram, warnings: list[str]
) -> None:
    publishing.driver.nodes[NODE] = flat(CUSTOM_GOLD=1)
    for _ in range(4):
        publishing.restarted().sync()
        nova.write(traits=frozenset({"OWNER_NOVA"}), CUSTOM_GOLD=1)

    (message,) = warnings
    assert "scripted and nova's IronicDriver fight over this provider" in message
    assert "CUSTOM_GOLD" not in message


def test_fight_over_an_overlaid_child_names_its_service(
    publishing: Publishing, nova: OtherProgram, warnings: list[str]
) -> None:
    nova.create(VCPU=8)
    nova.create("fpga", nova.find().uuid, FPGA=1)

    def overlay(tree: ProviderTree, _node: str, _allocations: object) -> None:
        tree.set_publishing_mode("fpga", PublishingMode.OVERLAY)

    publishing.driver.nodes[NODE] = overlay
    for _ in range(4):
        assert not publishing.restarted().sync().problems
        nova.write("fpga", traits=frozenset(), FPGA=1)

    (message,) = warnings
    assert "scripted and the service that publishes it fight over this provider" in message


def test_fight_over_another_provider_names_another_program(
    publishing: Publishing, nova: OtherProgram, warnings: list[str]
) -> None:
    publishing.driver.nodes[NODE] = flat(CUSTOM_GOLD=4)
    for _ in range(4):
        publishing.restarted().sync()
        nova.write(traits=frozenset({"OWNER_NOVA", MARK}), CUSTOM_GOLD=1)

    (message,) = warnings
    assert "scripted and another program fight over this provider" in message


def test_fight_over_a_name_reports_both_names(
    publishing: Publishing, nova: OtherProgram, warnings: list[str]
) -> None:
    publishing.driver.nodes[NODE] = flat(CUSTOM_GOLD=4)
    for _ in range(4):
        assert not publishing.restarted().sync().problems
        nova.rename(NODE, "theirs")

    (message,) = warnings
    assert "name: cn (ours), theirs (theirs)" in message


# The publishing mode ``auto``.


def test_auto_mode_of_a_root_that_nova_publishes_is_overlay(
    publishing: Publishing, nova: OtherProgram, placement: PlacementFixture
) -> None:
    nova.create(VCPU=10)
    publishing.driver.nodes[NODE] = auto(flat(VCPU=64))

    for _ in range(2):  # in the second cycle, the root also has our traits
        assert not publishing.restarted().sync().problems
        assert totals(placement) == {"VCPU": (10, 0)}
        assert contents(placement)[NODE]["traits"] == NOVAS_TRAITS | {MARK}
    assert record_of(publishing, nova.find().uuid).mode is PublishingMode.OVERLAY


def test_auto_mode_of_a_root_that_does_not_exist_is_own(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    publishing.driver.nodes[NODE] = auto(flat(VCPU=64))

    assert not publishing.cycle.sync().problems

    assert totals(placement) == {"VCPU": (64, 0)}


def test_auto_mode_of_a_root_that_we_created_stays_own_when_nova_writes_it(
    publishing: Publishing, nova: OtherProgram, placement: PlacementFixture
) -> None:
    publishing.driver.nodes[NODE] = auto(flat(VCPU=64))
    publishing.cycle.sync()
    nova.write(VCPU=10)  # without our traits

    assert not publishing.restarted().sync().problems

    assert totals(placement) == {"VCPU": (64, 0)}
    assert record_of(publishing, nova.find().uuid).mode is PublishingMode.OWN


def test_auto_mode_of_a_root_that_nova_deleted_creates_no_root(
    publishing: Publishing, nova: OtherProgram, placement: PlacementFixture
) -> None:
    """nova could not create its root again: the name would be taken."""
    nova.create(VCPU=10)
    publishing.driver.nodes[NODE] = auto(flat(VCPU=64))
    publishing.cycle.sync()
    nova.delete()

    for _ in range(2):
        (problem,) = publishing.restarted().sync().problems
        assert isinstance(problem, ProviderMissing)
        assert contents(placement) == {}
    nova.create(VCPU=11)
    assert not publishing.restarted().sync().problems
    assert totals(placement) == {"VCPU": (11, 0)}


# Reservations of roots that nova writes.


@pytest.mark.parametrize(
    ("resource_class", "traits"), [("VCPU", {"OWNER_NOVA"}), ("PCPU", NOVAS_TRAITS)]
)
def test_reserve_of_an_overlaid_root_of_nova_is_refused_with_the_alternatives(
    publishing: Publishing,
    nova: OtherProgram,
    placement: PlacementFixture,
    resource_class: str,
    traits: Set[str],
) -> None:
    nova.create(PCPU=10)
    nova.write(NODE, frozenset(traits), **{resource_class: 10})
    publishing.driver.nodes[NODE] = auto(flat(VCPU=64))
    publishing.cycle.sync()
    reservations = Reservations(publishing.client, publishing.context)

    with pytest.raises(ReservationRefused) as refused:
        reservations.reserve(nova.find(), holder="operator", reason="burns")

    assert "openstack compute service set --disable cn nova-compute" in str(refused.value)
    assert totals(placement) == {resource_class: (10, 0)}


def test_reserve_of_an_overlaid_child_and_of_our_child_below_novas_root_fills_them(
    publishing: Publishing, nova: OtherProgram, placement: PlacementFixture
) -> None:
    nova.create(VCPU=10)
    nova.create("fpga", nova.find().uuid, FPGA=1)

    def overlay(tree: ProviderTree) -> None:
        tree.set_publishing_mode("fpga", PublishingMode.OVERLAY)
        if not tree.exists("gpu-1"):
            tree.new_child("gpu-1", NODE)
        tree.update_inventory("gpu-1", {"VGPU": {"total": 2}})

    def edit(tree: ProviderTree, node: str, _allocations: object) -> None:
        tree.set_publishing_mode(node, PublishingMode.AUTO)

    publishing.driver.nodes[NODE] = also(overlay)(edit)
    assert not publishing.cycle.sync().problems

    for name in ("fpga", "gpu-1"):
        Reservations(publishing.client, publishing.context).reserve(
            nova.find(name), holder="operator", reason="burns"
        )
    assert (totals(placement, "fpga"), totals(placement, "gpu-1")) == (
        {"FPGA": (1, 1)},
        {"VGPU": (2, 2)},
    )
