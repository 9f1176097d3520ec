"""Adoption of providers that nova's IronicDriver has left, one node at a time."""

from pathlib import Path
from uuid import uuid4

from tests.lab import inprocess
from tests.lab.bare_metal import GOLD
from tests.lab.placement import over_http
from tests.lab.program import Program
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.placement.embedded import EmbeddedPlacement
from wharfinger.providers import Inventory
from wharfinger_harnesses.ironic import Ironic


def test_adopt_takes_over_the_providers_of_novas_ironic_driver(
    ironic: Ironic, placement_service: EmbeddedPlacement, tmp_path: Path
) -> None:
    owner = uuid4().hex
    with over_http(placement_service) as (url, _requests):
        nodes = [ironic.create_node(None, owner=owner, extra={"lab": {}}) for _ in range(2)]
        program = Program(tmp_path, url)
        program.config.write_text(
            program.config.read_text().replace("enabled_drivers = gpus", "enabled_drivers = metal")
            + f"\n[metal]\ndriver = ironic\nauth_type = none\nendpoint = {ironic.url}\n"
            f"node_owner = {owner}\n"
        )
        client = WritingClient(placement_service.adapter)
        client.create_resource_class(GOLD)
        for reserved, node in enumerate(nodes):  # nova reserves nodes that are not available
            client.create_provider(node, node, None)
            figures = Inventory(total=1, reserved=reserved, max_unit=1)
            client.set_traits(
                node, client.set_inventories(node, 0, {GOLD: figures}), ["OWNER_NOVA"]
            )

        refused = inprocess.run(program, "sync")
        adopt = ["provider", "adopt", *nodes, "--instance", "metal"]
        planned = inprocess.run(program, *adopt, "--dry-run")
        done = inprocess.run(program, *adopt)
        synced = inprocess.run(program, "sync")
        again = inprocess.run(program, "sync", "--dry-run")

    for node in nodes:
        assert f"`wharfinger provider adopt {node} --instance metal`" in refused.err
        assert "CUSTOM_WHARFINGER_METAL" in client.get_traits(node).traits
    assert [one.code for one in (refused, planned, done, synced, again)] == [1, 2, 0, 0, 0]
    assert planned.out.replace("to be written", "written") == done.out
