"""Questions about what a listing lacks, and how long they may take."""

from typing import cast

from oslo_config import cfg

from tests.lab.drivers import ScriptedDriver
from wharfinger.driver import ComputeDriver
from wharfinger.placement.client import PlacementClient
from wharfinger.providers import Provider, names
from wharfinger.reconcile.availability import Availability
from wharfinger.reconcile.node_list import NodeListing


class SlowDriver(ComputeDriver):
    """A driver whose backend lets each question for one node time out, after 100 seconds."""

    default_owner = "OWNER_NOVA"
    capabilities = ScriptedDriver.capabilities

    def __init__(self) -> None:
        super().__init__(cfg.ConfigOpts(), "host", "slow")
        self.seconds = 0.0

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        return []

    def node_is_available(self, nodename: str) -> bool:
        self.seconds += 100
        raise TimeoutError(nodename)


def test_keep_where_questions_time_out_ends_and_keeps_what_was_not_asked_for() -> None:
    driver = SlowDriver()
    uuids = [names.root_uuid(f"node-{number}") for number in range(1000)]
    live = {
        uuid: Provider(uuid=uuid, name=f"node-{number}", root_uuid=uuid, parent_uuid=None)
        for number, uuid in enumerate(uuids)
    }
    no_client = cast(PlacementClient, None)
    asked = Availability(
        driver, no_client, NodeListing(), live, {}, clock=lambda: driver.seconds
    ).keep(uuids)

    assert asked.keys() == set(uuids)
    reasons = list(asked.values())
    assert sum("TimeoutError" in reason for reason in reasons) == 3
    assert sum("has not been asked" in reason for reason in reasons) == 997
