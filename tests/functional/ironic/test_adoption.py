"""Adoption by the Ironic driver of nodes that nova's IronicDriver has published."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from unittest import mock

import pytest

from tests.lab.cycles import Publishing, allocate, everything
from tests.lab.placement import PlacementFixture
from tests.unit.ironic.model import Model
from tests.unit.ironic.samples import INSTANCE, node
from wharfinger.conf import load
from wharfinger.exceptions import PlacementUnavailable
from wharfinger.objects import Service
from wharfinger.providers import Inventory
from wharfinger.reconcile.cycle_result import CycleResult
from wharfinger_ironic.driver import IronicDriver

GOLD: Final = "CUSTOM_BAREMETAL_GOLD"
MARK: Final = "CUSTOM_WHARFINGER_METAL"
FREE, FULL = {GOLD: (1, 0)}, {GOLD: (1, 1)}
IN_USE: Final[dict[str, Any]] = {"provision_state": "active", "instance_uuid": INSTANCE}
#: Fields of a node in Ironic that is not available, by the reason.
STATES: Final[dict[str, dict[str, Any]]] = {
    "in use": IN_USE,
    "in maintenance": {"maintenance": True},
    "in cleaning": {"provision_state": "cleaning"},
    "with an instance, but available": {"instance_uuid": INSTANCE},
    "without power": {"power_state": "error"},
}


class Metal(Publishing):
    """A driver instance of the Ironic driver, whose Ironic is simulated in memory.

    ``node`` is the only node; nova's IronicDriver has published it.
    """

    def __init__(self, placement: PlacementFixture, state_path: Path) -> None:
        super().__init__(placement, state_path, name="metal")

    def _setUp(self) -> None:
        self.ironic = Model()
        [self.node] = self.ironic.create()
        super()._setUp()
        options = "driver = ironic\nauth_type = none\nendpoint = http://127.0.0.1:9\n"
        path = self.state_path / "metal.conf"
        path.write_text(f"[DEFAULT]\nenabled_drivers = metal\n[metal]\n{options}")
        driver = IronicDriver(load([str(path)]), self.host, "metal")
        connect = mock.patch("wharfinger_ironic.driver.Ironic.connect", return_value=self.ironic)
        with connect:
            driver.init_host(Service(host=self.host, binary="wharfinger"))
        self.driver = driver  # type: ignore[assignment]
        self.restarted()

    def change_in_ironic(self, **fields: Any) -> None:
        """Change the node in Ironic."""
        self.ironic.rows[self.node].history.append(node(uuid=self.node, **fields))

    def left_by_nova(self, *traits: str, reserved: int = 1, is_allocated: bool = False) -> None:
        """Publish the node as nova's IronicDriver does."""
        client = self.placement.client
        client.create_resource_class(GOLD)
        made = client.create_provider(self.node, self.node, None)
        generation = client.set_traits(self.node, made.generation, traits)
        self.reserve(0, generation)
        if is_allocated:
            amounts: dict[str, Any] = {self.node: {GOLD: 1}}
            allocate(self.placement, INSTANCE, **amounts)
        self.reserve(reserved)

    def reserve(self, amount: int, generation: int | None = None) -> None:
        """Write the provider's reserved amount as another program does."""
        client = self.placement.client
        if generation is None:
            generation = client.get_inventories(self.node).resource_provider_generation
        inventory = Inventory(total=1, reserved=amount, max_unit=1)
        client.set_inventories(self.node, generation, {GOLD: inventory})

    def adopt(self, way: str) -> CycleResult:
        """Adopt the node with the command or with ``adopt = matching``, for one cycle."""
        then = self.publisher
        if way == "command":
            self.publisher = type(then)(then.instance, then.owner, adopts=frozenset([self.node]))
            outcome = self.restarted().adopt()
        else:
            self.publisher = type(then)(then.instance, then.owner, adopts_matching=True)
            outcome = self.restarted().sync()
        self.publisher = then
        self.restarted()
        assert not outcome.problems
        assert MARK in self.shown["traits"]
        return outcome

    def sync(self) -> CycleResult:
        """Run a full cycle without problems, in a new process."""
        outcome = self.restarted().sync()
        assert not outcome.problems
        return outcome

    @property
    def shown(self) -> dict[str, Any]:
        """Return the node's provider in Placement."""
        return everything()[self.node]

    @property
    def figures(self) -> dict[str, tuple[int, int]]:
        """Return (total, reserved) of each class of the node."""
        found: dict[str, tuple[int, int]] = self.shown["inventories"]
        return found


@pytest.fixture
def metal(placement: PlacementFixture, tmp_path: Path) -> Iterator[Metal]:
    with Metal(placement, tmp_path / "state") as metal:
        yield metal


WAYS = pytest.mark.parametrize("way", ["command", "matching"])


@pytest.mark.drawn(4)
@WAYS
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("is_allocated", [False, True], ids=["no allocation", "allocated"])
def test_adopt_node_with_a_reason_keeps_it_reserved_until_the_reason_ends(
    metal: Metal, way: str, state: str, is_allocated: bool
) -> None:
    """A node that the driver reserves is not offered until Ironic has it available again."""
    metal.left_by_nova("OWNER_NOVA", is_allocated=is_allocated)
    metal.change_in_ironic(**STATES[state])

    assert not metal.adopt(way).foreign
    after_adoption = metal.figures
    for _ in range(3):
        assert not metal.sync().foreign
    still = metal.figures
    metal.change_in_ironic(provision_state="clean wait")
    assert not metal.sync().foreign
    cleaning = metal.figures
    metal.change_in_ironic()
    metal.sync()

    assert (after_adoption, still, cleaning) == (FULL, FULL, FULL)
    assert metal.figures == FREE
    assert not metal.sync().steps


@WAYS
@pytest.mark.parametrize("is_allocated", [False, True], ids=["tagged", "untagged, in use"])
def test_adopt_available_node_that_nova_has_reserved_frees_it(
    metal: Metal, way: str, is_allocated: bool
) -> None:
    """A reservation that nova wrote ends with the adoption if the driver has no reason for it."""
    metal.left_by_nova(*[] if is_allocated else ["OWNER_NOVA"], is_allocated=is_allocated)

    assert not metal.adopt(way).foreign

    assert metal.figures == FREE
    assert not metal.sync().steps


@WAYS
def test_adopt_untagged_node_without_explanation_keeps_and_reports_the_reservation(
    metal: Metal, way: str
) -> None:
    """Without owner trait, allocation and reason, the reservation may be an operator's."""
    metal.left_by_nova()

    [found] = metal.adopt(way).foreign
    [later] = metal.sync().foreign

    assert found == later
    assert (found.uuid, set(found.classes), found.is_releasable) == (metal.node, {GOLD}, True)
    assert metal.figures == FULL


@WAYS
def test_adopt_free_node_that_is_in_use_without_allocation_reserves_it(
    metal: Metal, way: str
) -> None:
    """A node that has an instance in Ironic is not offered, whatever nova wrote in Placement."""
    metal.left_by_nova("OWNER_NOVA", reserved=0)
    metal.change_in_ironic(**IN_USE)

    metal.adopt(way)

    assert metal.figures == FULL
    metal.change_in_ironic()
    metal.sync()
    assert metal.figures == FREE


def test_sync_of_a_node_with_our_trait_and_without_its_record_keeps_a_foreign_reservation(
    metal: Metal,
) -> None:
    """A provider with our trait is not adopted again: only its record was lost."""
    metal.placement.client.create_trait(MARK)
    metal.left_by_nova("OWNER_NOVA", MARK)

    [found] = metal.sync().foreign

    assert found.uuid == metal.node
    assert metal.figures == FULL


@WAYS
def test_reservation_of_an_operator_after_the_adoption_is_kept(metal: Metal, way: str) -> None:
    """The owner trait explains a reservation at the moment of the adoption, and not later."""
    metal.left_by_nova("OWNER_NOVA", reserved=0)
    metal.adopt(way)
    metal.reserve(1)

    assert [one.uuid for one in metal.sync().foreign] == [metal.node]

    assert metal.figures == FULL


@WAYS
def test_adopt_that_crashes_before_the_inventory_ends_the_reservation_later(
    metal: Metal, way: str
) -> None:
    """A crash between the traits and the inventory does not leave the node reserved for ever."""
    metal.left_by_nova("OWNER_NOVA")

    def cut(method: str, path: str) -> None:
        if method == "PUT" and path.endswith("/inventories"):
            raise PlacementUnavailable(request=path, status=0, code="", detail="cut off")

    metal.placement.adapter.before = cut
    with pytest.raises(PlacementUnavailable):
        metal.adopt(way)
    metal.placement.adapter.before = lambda method, path: None
    assert (metal.figures, MARK in metal.shown["traits"]) == (FULL, True)
    metal.publisher = type(metal.publisher)("metal", "OWNER_NOVA")

    assert not metal.sync().foreign

    assert metal.figures == FREE
