"""Fixtures for tests of claims and moves."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.allocating import Desk
from tests.lab.cycles import HOST, Publishing
from tests.lab.drivers import flat, with_children
from tests.lab.faults import Interceptor
from tests.lab.histories import Quay
from tests.lab.placement import PlacementFixture
from tests.lab.reserving import CleaningDriver, drives, summary
from tests.lab.samples import uuid
from tests.lab.sqlite import StayingOpen
from wharfinger.placement.embedded import EmbeddedPlacement
from wharfinger.providers import Inventory
from wharfinger.tracker import service_record

NOVA, CYBORG = "OWNER_NOVA", "OWNER_CYBORG"


@pytest.fixture(scope="module", autouse=True)
def files_stay_open() -> Iterator[None]:
    """Keep SQLite files open between transactions; tests of the objects open them each time."""
    with StayingOpen():
        yield


@pytest.fixture(autouse=True)
def no_waits(no_waiting: None) -> None:
    """Skip waits between attempts; tests check only that the number of attempts is bounded."""


@pytest.fixture
def desk(publishing: Publishing) -> Iterator[Desk]:
    """The claims and moves of one process, on the nodes cn-0 and cn-1 with two VCPUs each."""
    publishing.driver.nodes |= {"cn-0": flat(VCPU=2), "cn-1": flat(VCPU=2)}
    assert not publishing.cycle.sync().problems
    with Desk(publishing.client, publishing.context) as fixture:
        yield fixture


@pytest.fixture
def gpus(desk: Desk, publishing: Publishing) -> Desk:
    """A desk whose node cn-0 has a VGPU of nova, one of Cyborg, and nine without an owner."""
    publishing.driver.nodes = {"cn-0": with_children({"VCPU": 4}, {"novas": {"VGPU": 1}})}
    publishing.driver.nodes["cn-1"] = flat(VCPU=4)
    assert not publishing.cycle.sync().problems
    client, root = publishing.client, summary(publishing.placement, "cn-0").uuid
    for name, traits, total in (("cyborgs", [CYBORG], 1), ("nobodys", [], 9)):
        made = client.create_provider(uuid(name), name, root)
        generation = client.set_traits(made.uuid, made.generation, traits)
        client.set_inventories(made.uuid, generation, {"VGPU": Inventory(total=total)})
    service_record.report(publishing.context, HOST, [NOVA, CYBORG], complete=True)
    return desk


@pytest.fixture
def metal(desk: Desk, publishing: Publishing) -> Desk:
    """A desk with the same nodes, whose driver cleans them after their release."""
    driver = CleaningDriver()
    drives(publishing, driver)
    driver.nodes |= {"cn-0": flat(VCPU=2), "cn-1": flat(VCPU=2)}
    assert not publishing.cycle.sync().problems
    return desk


@pytest.fixture
def quay(placement: PlacementFixture, tmp_path: Path) -> Iterator[Quay]:
    with Quay(placement, tmp_path / "state") as fixture:
        yield fixture


@pytest.fixture
def interceptor(placement_service: EmbeddedPlacement) -> Iterator[Interceptor]:
    with Interceptor(placement_service.application) as fixture:
        yield fixture
