"""Claims of what is published below a root that another service, nova-compute, publishes."""

from collections.abc import Iterator

import pytest

from tests.functional.scheduling.hosts import publish
from tests.lab.allocating import Desk, faults, flavor, held
from tests.lab.cycles import HOST, Publishing
from tests.lab.drivers import Edit
from tests.lab.reserving import figures, is_full, overlaid, rows, summary
from tests.lab.samples import uuid
from wharfinger.driver import Allocations
from wharfinger.exceptions import AllocationLost, NoCandidates
from wharfinger.objects import Instance, ProviderRecordList
from wharfinger.providers import ProviderTree
from wharfinger.tracker import service_record

ONE = uuid("an instance")
NOVA = "OWNER_NOVA"
CARD = flavor("card", 2, **{"resources:CUSTOM_CARD_UNIT": "1"})


def cards(*names: str) -> Edit:
    """A node that nova publishes, and a card of one unit for each of these names."""

    def edit(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
        overlaid(tree, node, allocations)
        for name in names:
            if not tree.exists(name):
                tree.new_child(name, node)
            tree.update_inventory(name, {"CUSTOM_CARD_UNIT": {"total": 1}})

    return edit


@pytest.fixture
def desk(publishing: Publishing) -> Iterator[Desk]:
    """Over a root of nova-compute's, which our driver instance has two cards below."""
    publish(publishing.client, "cn-0", {"VCPU": 8, "MEMORY_MB": 64}, NOVA)
    publishing.driver.nodes = {"cn-0": cards("card-0", "card-1")}
    assert not publishing.cycle.sync().problems
    service_record.report(publishing.context, HOST, [NOVA], complete=True)
    with Desk(publishing.client, publishing.context) as fixture:
        yield fixture


def test_claim_of_a_card_below_novas_root_takes_both_on_the_overlaid_node(
    desk: Desk, publishing: Publishing
) -> None:
    claimed = desk.claim(CARD, uuid=ONE)

    assert (claimed.instance.host, claimed.instance.node) == (HOST, "cn-0")
    assert held() == {ONE: {"cn-0": {"VCPU": 2}, card_of(ONE): {"CUSTOM_CARD_UNIT": 1}}}
    assert desk.claim(CARD, uuid=ONE).instance.uuid == ONE
    assert publishing.cycle.sync().problems == ()
    assert faults(publishing.context) == []


def card_of(consumer: str) -> str:
    """Return the name of the card that a consumer has."""
    [card] = held()[consumer].keys() - {"cn-0"}
    return card


def test_claim_below_a_root_that_another_host_overlays_is_of_that_host(
    desk: Desk, publishing: Publishing
) -> None:
    for row in ProviderRecordList.get_by_filters(publishing.context, mode="overlay"):
        assert (row.host, row.driver_instance) == (HOST, "scripted")
    publish(publishing.client, "cn-1", {"VCPU": 8, "CUSTOM_CARD_UNIT": 1}, NOVA)
    two = {desk.claim(CARD).instance.node for _card in range(2)}
    assert two == {"cn-0"}
    root = uuid("cn-1")
    with pytest.raises(NoCandidates) as refused:
        desk.claim(CARD)

    assert f"elsewhere: of root provider {root}, which is no node of a driver instance" in str(
        refused.value
    )


def test_resize_and_release_on_an_overlaid_node_give_back_what_was_claimed(
    desk: Desk, publishing: Publishing
) -> None:
    desk.claim(CARD, uuid=ONE)
    desk.moves.start(ONE, flavor("larger", 4, **{"resources:CUSTOM_CARD_UNIT": "1"}))
    desk.moves.confirm(ONE)

    row = Instance.get_by_uuid(publishing.context, ONE)
    assert (row.host, row.node, row.flavor.name) == (HOST, "cn-0", "larger")
    assert held() == {ONE: {"cn-0": {"VCPU": 4}, card_of(ONE): {"CUSTOM_CARD_UNIT": 1}}}
    assert desk.claims.release(ONE) == ()
    assert held() == {}
    assert faults(publishing.context) == []


def test_lost_allocation_on_an_overlaid_node_reserves_the_card_alone_and_is_repaired(
    desk: Desk, publishing: Publishing
) -> None:
    desk.claim(CARD, uuid=ONE)
    before, card = held(), card_of(ONE)
    desk.client.delete_allocations(ONE)

    [problem] = publishing.cycle.sync().problems

    assert isinstance(problem, AllocationLost)
    assert is_full(publishing.placement, card)
    assert figures(publishing.placement, "cn-0") == {"VCPU": (8, 0), "MEMORY_MB": (64, 0)}
    assert {provider for provider, _holder in rows(publishing.context)} == {
        summary(publishing.placement, card).uuid
    }
    assert desk.claim(CARD).instance.node == "cn-0"
    with pytest.raises(NoCandidates):
        desk.claim(CARD)
    other = {uuid: has for uuid, has in held().items() if uuid != ONE}
    desk.claims.repair(ONE)
    assert held() == before | other
    assert rows(publishing.context) == {}
    assert publishing.cycle.sync().problems == ()
