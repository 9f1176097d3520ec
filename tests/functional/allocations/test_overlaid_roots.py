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
from wharfinger.exceptions import AllocationLost
from wharfinger.objects import Instance
from wharfinger.providers import ProviderTree
from wharfinger.tracker import service_record

ONE = uuid("an instance")
NOVA = "OWNER_NOVA"
CARD = flavor("card", 2, **{"resources:CUSTOM_CARD_UNIT": "1"})


def cards(*names: str) -> Edit:
    """A node of nova's, and a card of one unit for each of these names."""

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
