"""The takeover of Ironic's nodes from nova's IronicDriver, which a real nova-compute runs.

The tests are the rows about bare metal in docs/reference/beside-nova.rst.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.lab.bare_metal import GOLD, with_template
from tests.lab.beside_nova import Wharfinger, delete_allocations, use, users
from tests.lab.cycles import everything
from wharfinger_harnesses.ironic import Ironic

if TYPE_CHECKING:
    from tests.lab.nova_services import Nova

HOST = "metal-host"
OURS = "CUSTOM_WHARFINGER_IRONIC"
FREE, RESERVED = {GOLD: (1, 0)}, {GOLD: (1, 1)}


@pytest.fixture(scope="module")
def ironic() -> Iterator[Ironic]:
    for name in ("nova", "oslotest"):
        pytest.importorskip(name, reason="only the tox environment nova has nova and its tests")
    with Ironic() as ironic:
        yield with_template(ironic)


@pytest.fixture
def node(ironic: Ironic) -> Iterator[str]:
    """An available node, which is deleted after the test."""
    [node] = ironic.insert_nodes(1)
    yield node
    ironic.update_node(node, instance_uuid=None)
    ironic.delete_node(node)


@pytest.fixture
def nova(ironic: Ironic, node: str) -> Iterator["Nova"]:
    """nova's services, with a nova-compute that has published all nodes of Ironic."""
    from tests.lab.nova_services import Nova  # noqa: PLC0415 - nova may not be installed

    with Nova("ironic.IronicDriver") as nova:
        nova.set_options("ironic", auth_type="none", endpoint_override=ironic.url)
        nova.start_compute(HOST)
        yield nova


@pytest.fixture
def metal(nova: "Nova", ironic: Ironic) -> Iterator[Wharfinger]:
    """The program, which has not written anything yet."""
    options = {"auth_type": "none", "endpoint": ironic.url}
    with Wharfinger(nova.url, "ironic", HOST, **options) as program:
        yield program


def is_ours(node: str) -> bool:
    return OURS in everything()[node]["traits"]


def test_sync_leaves_the_nodes_that_nova_publishes(
    nova: "Nova", metal: Wharfinger, node: str
) -> None:
    before = everything()

    done = metal.run("sync")

    assert done.code == 1
    assert f"`wharfinger provider adopt {node} --instance ironic`" in done.err
    assert everything() == before


def test_takeover_after_service_delete_publishes_the_nodes(
    nova: "Nova", metal: Wharfinger, node: str
) -> None:
    before = everything()

    nova.stop_compute(HOST)
    nova.delete_service(HOST)
    assert everything() == {}
    metal.sync()

    assert everything().keys() == before.keys()
    assert everything()[node]["inventories"] == FREE
    assert is_ours(node)
    assert metal.sync() == "ironic: no change\n"


def test_takeover_by_adoption_keeps_the_providers(
    nova: "Nova", metal: Wharfinger, node: str
) -> None:
    before = everything()[node]

    nova.stop_compute(HOST)
    metal.do("provider", "adopt", *everything(), "--instance", "ironic")
    metal.sync()

    after = everything()[node]
    assert after["traits"] == before["traits"] | {OURS}
    assert {**after, "traits": None} == {**before, "traits": None}
    assert metal.sync() == "ironic: no change\n"


def test_service_delete_after_adoption_deletes_our_nodes_and_sync_returns_them(
    nova: "Nova", metal: Wharfinger, node: str
) -> None:
    nova.stop_compute(HOST)
    metal.do("provider", "adopt", *everything(), "--instance", "ironic")
    metal.sync()
    before = everything()

    nova.delete_service(HOST)
    assert everything() == {}
    metal.sync()

    assert everything().keys() == before.keys()
    assert everything()[node]["inventories"] == FREE
    assert metal.sync() == "ironic: no change\n"


def test_adoption_beside_a_running_nova_compute_loses_our_trait(
    nova: "Nova", metal: Wharfinger, node: str
) -> None:
    metal.do("provider", "adopt", node, "--instance", "ironic")

    nova.refresh()

    assert not is_ours(node)


def test_fight_with_a_running_nova_compute_is_reported_once(
    nova: "Nova", metal: Wharfinger, node: str
) -> None:
    metal.do("provider", "adopt", *everything(), "--instance", "ironic")
    reports = []
    for _ in range(5):
        nova.refresh()
        reports.append(metal.run("sync"))

    assert [f"{node}" in done.err and "fight" in done.err for done in reports].count(True) == 1


def test_node_in_maintenance_is_reserved_by_nova_and_kept_by_adoption(
    nova: "Nova", ironic: Ironic, metal: Wharfinger, node: str
) -> None:
    ironic.set_maintenance(node, "fan")
    nova.refresh()
    assert everything()[node]["inventories"] == RESERVED
    nova.stop_compute(HOST)

    metal.do("provider", "adopt", *everything(), "--instance", "ironic")
    metal.sync()

    assert everything()[node]["inventories"] == RESERVED


def test_adopted_node_in_maintenance_is_free_after_the_maintenance_ends(
    nova: "Nova", ironic: Ironic, metal: Wharfinger, node: str
) -> None:
    ironic.set_maintenance(node, "fan")
    nova.refresh()
    nova.stop_compute(HOST)
    metal.do("provider", "adopt", *everything(), "--instance", "ironic")
    metal.sync()

    ironic.end_maintenance(node)
    metal.sync()

    assert everything()[node]["inventories"] == FREE


@pytest.fixture
def instance(nova: "Nova", ironic: Ironic, node: str) -> str:
    """An instance of nova that uses the node; nova has therefore reserved the node."""
    instance = nova.create_instance(HOST, node)
    ironic.update_node(node, instance_uuid=instance)
    use(nova.url, node, instance)
    nova.refresh()
    assert everything()[node]["inventories"] == RESERVED
    return instance


def test_node_in_use_prevents_service_delete(
    nova: "Nova", metal: Wharfinger, node: str, instance: str
) -> None:
    nova.stop_compute(HOST)

    with pytest.raises(Exception, match="hosting instances"):
        nova.delete_service(HOST)

    assert metal.run("sync").code == 1
    assert users(node) == {instance: 1}
    assert not is_ours(node)


def test_node_in_use_is_adopted_with_its_allocation(
    nova: "Nova", metal: Wharfinger, node: str, instance: str
) -> None:
    nova.stop_compute(HOST)

    metal.do("provider", "adopt", *everything(), "--instance", "ironic")
    metal.sync()

    assert is_ours(node)
    assert users(node) == {instance: 1}
    assert everything()[node]["inventories"] == RESERVED


def test_adopted_node_is_free_after_its_instance_is_gone(
    nova: "Nova", ironic: Ironic, metal: Wharfinger, node: str, instance: str
) -> None:
    nova.stop_compute(HOST)
    metal.do("provider", "adopt", *everything(), "--instance", "ironic")
    metal.sync()

    ironic.update_node(node, instance_uuid=None)
    delete_allocations(nova.url, instance)
    metal.sync()

    assert everything()[node]["inventories"] == FREE
