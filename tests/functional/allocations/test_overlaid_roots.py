"""Claims on providers below a root that nova-compute publishes."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from oslo_config import cfg

from tests.functional.reconcile.test_nova_root import below
from tests.functional.reconcile.test_renaming import cards_driver, rename
from tests.functional.scheduling.hosts import publish
from tests.lab.allocating import Desk, faults, flavor, held
from tests.lab.cycles import HOST, Publishing
from tests.lab.reserving import figures, is_full, rows, summary
from tests.lab.samples import uuid
from wharfinger.exceptions import AllocationLost, NoCandidates
from wharfinger.objects import Instance, ServiceList
from wharfinger.tracker import service_record

ONE = uuid("an instance")
NOVA = "OWNER_NOVA"
CARD = flavor("card", 2, **{"resources:CUSTOM_CARD_UNIT": "1"})


@pytest.fixture
def desk(publishing: Publishing, tmp_path: Path) -> Iterator[Desk]:
    """A desk with a root of nova-compute, and two cards of the documentation's driver below it."""
    publish(publishing.client, HOST, {"VCPU": 8, "MEMORY_MB": 64}, NOVA)
    file = tmp_path / "cards.json"
    file.write_text(json.dumps({str(slot): {"units": 1} for slot in range(2)}))
    conf = cfg.ConfigOpts()
    conf([])
    driver = cards_driver(conf)
    driver._file = file  # type: ignore[attr-defined]
    publishing.driver = driver  # type: ignore[assignment]
    publishing.restarted()
    assert not publishing.cycle.sync().problems
    service_record.report(publishing.context, HOST, [NOVA], complete=True)
    with Desk(publishing.client, publishing.context) as fixture:
        yield fixture


def test_claim_of_a_card_below_novas_root_uses_the_card_and_the_root(
    desk: Desk, publishing: Publishing
) -> None:
    claimed = desk.claim(CARD, uuid=ONE)

    assert (claimed.instance.host, claimed.instance.node) == (HOST, HOST)
    assert held() == {ONE: {HOST: {"VCPU": 2}, card_of(ONE): {"CUSTOM_CARD_UNIT": 1}}}
    assert desk.claim(CARD, uuid=ONE).instance.uuid == ONE
    assert publishing.cycle.sync().problems == ()
    assert faults(publishing.context) == []


def card_of(consumer: str) -> str:
    """Return the name of the card that is allocated to a consumer."""
    [card] = held()[consumer].keys() - {HOST}
    return card


def test_claim_below_a_root_without_an_overlay_is_refused_with_its_name(
    desk: Desk, publishing: Publishing
) -> None:
    publish(publishing.client, "cn-1", {"VCPU": 8, "CUSTOM_CARD_UNIT": 1}, NOVA)
    two = {desk.claim(CARD).instance.node for _card in range(2)}
    assert two == {HOST}
    root = uuid("cn-1")
    with pytest.raises(NoCandidates) as refused:
        desk.claim(CARD)

    assert f"elsewhere: of root provider {root}, which is not a node of a driver instance" in str(
        refused.value
    )


def test_resize_and_release_on_an_overlaid_node_release_the_claimed_resources(
    desk: Desk, publishing: Publishing
) -> None:
    desk.claim(CARD, uuid=ONE)
    desk.moves.start(ONE, flavor("larger", 4, **{"resources:CUSTOM_CARD_UNIT": "1"}))
    desk.moves.confirm(ONE)

    row = Instance.get_by_uuid(publishing.context, ONE)
    assert (row.host, row.node, row.flavor.name) == (HOST, HOST, "larger")
    assert held() == {ONE: {HOST: {"VCPU": 4}, card_of(ONE): {"CUSTOM_CARD_UNIT": 1}}}
    assert desk.claims.release(ONE) == ()
    assert held() == {}
    assert faults(publishing.context) == []


def test_lost_allocation_on_an_overlaid_node_reserves_only_the_card_and_is_repaired(
    desk: Desk, publishing: Publishing
) -> None:
    desk.claim(CARD, uuid=ONE)
    before, card = held(), card_of(ONE)
    desk.client.delete_allocations(ONE)

    [problem] = publishing.cycle.sync().problems

    assert isinstance(problem, AllocationLost)
    assert is_full(publishing.placement, card)
    assert figures(publishing.placement, HOST) == {"VCPU": (8, 0), "MEMORY_MB": (64, 0)}
    assert {provider for provider, _holder in rows(publishing.context)} == {
        summary(publishing.placement, card).uuid
    }
    assert desk.claim(CARD).instance.node == HOST
    with pytest.raises(NoCandidates):
        desk.claim(CARD)
    other = {uuid: has for uuid, has in held().items() if uuid != ONE}
    desk.claims.repair(ONE)
    assert held() == before | other
    assert rows(publishing.context) == {}
    assert publishing.cycle.sync().problems == ()


def test_host_with_a_new_name_takes_over_the_instances_on_its_overlaid_node(
    desk: Desk, publishing: Publishing
) -> None:
    desk.claim(CARD, uuid=ONE)
    before, card = held(), card_of(ONE)
    rename(publishing.placement, HOST, "new")
    for service in ServiceList.get_by_filters(publishing.context, host=HOST):
        service.forced_down = True
        service.save()
    with Publishing(publishing.placement, publishing.state_path, host="new") as other:
        publishing.driver.host = "new"
        other.driver = publishing.driver
        other.restarted()

        assert other.cycle.sync().problems == ()

        row = Instance.get_by_uuid(other.context, ONE)
        assert (row.host, row.node) == ("new", HOST)
        assert held() == {ONE: {"new": before[ONE][HOST], card: before[ONE][card]}}
        desk.client.delete_allocations(ONE)
        assert [type(one) for one in other.cycle.sync().problems] == [AllocationLost]


def test_claim_on_a_root_that_two_hosts_overlay_is_refused_with_the_names_of_both(
    desk: Desk, publishing: Publishing
) -> None:
    with Publishing(
        publishing.placement, publishing.state_path, name="others", host="other"
    ) as other:
        other.driver.nodes[HOST] = below()
        assert not other.cycle.sync().problems

    with pytest.raises(NoCandidates) as refused:
        desk.claim(CARD)

    assert f"on node {HOST} of host other and node {HOST} of host {HOST}, but an" in str(
        refused.value
    )
    assert held() == {}
    assert faults(publishing.context) == []
