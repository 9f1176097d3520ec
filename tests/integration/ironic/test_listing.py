"""Complete listings of a real Ironic: they return all selected nodes, or fail.

Each test has nodes with its own owner. tests/unit/ironic has errors and invalid answers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
from oslo_utils.uuidutils import is_uuid_like

from tests.integration.conftest import IRONIC_PAGE
from tests.lab.bare_metal import Metal
from tests.lab.between import Between, edited
from tests.lab.cycles import everything
from tests.lab.drawing import Draw
from tests.lab.faults import Answer, Request
from tests.lab.placement import PlacementFixture
from wharfinger.conf import parse
from wharfinger.exceptions import BackendError, PartialListing
from wharfinger_harnesses.ironic import Ironic as Lab
from wharfinger_ironic import client
from wharfinger_ironic.client import Ironic
from wharfinger_ironic.config import FleetSection
from wharfinger_ironic.fleet import Fleet

#: A fleet of 25 nodes, with 10 nodes on a page.
COUNT, PAGE = 25, 10
#: The requests of a listing, in order.
CHECK, LAST, *PAGES = range(6)


def asks(directory: Path, url: str, **options: str) -> Ironic:
    lines = "".join(f"{name} = {value}\n" for name, value in options.items())
    path = directory / f"{uuid4()}.conf"
    path.write_text(f"[metal]\nauth_type = none\nendpoint = {url}\ntimeout = 3\n{lines}")
    conf = parse([str(path)])
    return Ironic.connect(conf, FleetSection.read(conf, "metal"))


def listed_from(directory: Path, url: str, **options: str) -> list[str]:
    """Return the nodes of a new fleet, in order."""
    fleet = Fleet(asks(directory, url, **options), "metal")
    fleet.refresh()
    return list(fleet.nodes)


@dataclass(frozen=True)
class Listed:
    """A fleet behind a proxy, and the uuids of its nodes."""

    lab: Lab
    between: Between
    fleet: Fleet
    owner: str
    uuids: list[str]

    def ways_to_go(self, uuid: str) -> dict[str, Callable[[], object]]:
        """Return the ways in which the node may leave the fleet during a listing."""
        return {
            "delete": partial(self.lab.delete_node, uuid),
            "move": partial(self.lab.update_node, uuid, owner=uuid4().hex),
        }


Make = Callable[[], Listed]


@pytest.fixture
def make(
    ironic: Lab, between: Between, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], Listed]:
    """A function that creates a fleet and lists it once."""
    monkeypatch.setattr(client, "PAGE", PAGE)

    def make() -> Listed:
        owner = uuid4().hex
        uuids = ironic.insert_nodes(COUNT, owner=owner)
        between.expect()
        fleet = Fleet(asks(tmp_path, between.url, node_owner=owner), "metal")
        fleet.refresh()
        return Listed(ironic, between, fleet, owner, uuids)

    return make


# Pages.


def test_listing_reads_all_pages_of_ironics_page_size(
    ironic: Lab, between: Between, tmp_path: Path
) -> None:
    owner = uuid4().hex
    count = 2 * IRONIC_PAGE + 5
    uuids = ironic.insert_nodes(count, owner=owner)
    assert listed_from(tmp_path, between.url, node_owner=owner) == uuids
    assert between.rows == [1, 1, IRONIC_PAGE, IRONIC_PAGE, 5, 0]
    ends = (IRONIC_PAGE, 2 * IRONIC_PAGE, count)
    assert [one.query.get("marker") for one in between.asked[2:]] == [
        None,
        *(uuids[end - 1] for end in ends),
    ]


def test_listing_reads_all_pages_of_our_page_size(make: Make) -> None:
    listed = make()
    assert list(listed.fleet.nodes) == listed.uuids
    assert listed.between.rows == [1, 1, 10, 10, 5, 0]


@pytest.mark.parametrize("count", [0, 1, IRONIC_PAGE])
def test_fleet_of_any_size_is_listed(ironic: Lab, tmp_path: Path, count: int) -> None:
    owner = uuid4().hex
    uuids = ironic.insert_nodes(count, owner=owner) if count else []
    assert listed_from(tmp_path, ironic.url, node_owner=owner) == uuids


def test_node_is_read_with_ironics_values(ironic: Lab, tmp_path: Path) -> None:
    owner = uuid4().hex
    uuid = ironic.create_node(f"node-{owner}", owner=owner, resource_class="bare metal/größe")
    ironic.set_traits(uuid, "CUSTOM_A", "HW_CPU_X86_VMX")
    ironic.set_maintenance(uuid, "a fan ✗\nand more")
    ironic.update_node(uuid, retired=True, retired_reason="sold")
    fleet = Fleet(asks(tmp_path, ironic.url, node_owner=owner), "metal")
    fleet.refresh()
    node = fleet.nodes[uuid]
    assert (node.name, node.resource_class) == (f"node-{owner}", "bare metal/größe")
    assert set(node.traits) == {"CUSTOM_A", "HW_CPU_X86_VMX"}
    assert (node.provision_state, node.power_state) == ("enroll", None)
    assert (node.maintenance, node.maintenance_reason) == (True, "a fan ✗\nand more")
    assert (node.retired, node.retired_reason) == (True, "sold")
    assert (node.fault, node.instance_uuid) == (None, None)


# Selection.

#: Values with characters that are special in URLs, headers or configuration files.
CHARACTERS: Final = "a&shard=b%20c+d/e;f#g?h=ü"
SELECTIONS: Final = {
    "conductor_group": ("conductor_group", "rack-1"),
    "shard": ("shard", CHARACTERS),
    "node_owner": ("owner", CHARACTERS),
    "resource_class": ("resource_class", CHARACTERS),
}


@pytest.mark.parametrize("option", SELECTIONS)
def test_option_selects_for_listing_and_feed(ironic: Lab, tmp_path: Path, option: str) -> None:
    column, start = SELECTIONS[option]
    value = f"{start}-{uuid4().hex}"
    mine = ironic.insert_nodes(3, **{column: value})
    other = ironic.insert_nodes(2, **{column: f"{value}x"})
    fleet = Fleet(asks(tmp_path, ironic.url, **{option: value}), "metal")
    mark = fleet.begin_following()
    fleet.refresh()
    assert list(fleet.nodes) == mine
    for uuid in (mine[1], *other):
        # Write to the database, because no conductor is in the group.
        ironic.execute(
            "UPDATE nodes SET maintenance = :on, updated_at = :now WHERE uuid = :uuid",
            on=True,
            now=datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f"),
            uuid=uuid,
        )
    assert fleet.changed_since(mark)[0] == {mine[1]}


def test_several_options_select_nodes_that_match_all(ironic: Lab, tmp_path: Path) -> None:
    owner = uuid4().hex
    fields = {"owner": owner, "shard": "s", "conductor_group": "g", "resource_class": "c"}
    mine = ironic.insert_nodes(2, **fields)
    for field in fields:
        ironic.insert_nodes(1, **{**fields, field: "other"})
    options = {"node_owner": owner, "shard": "s", "conductor_group": "g", "resource_class": "c"}
    assert listed_from(tmp_path, ironic.url, **options) == mine


def test_empty_conductor_group_selects_the_default_group(ironic: Lab, tmp_path: Path) -> None:
    owner = uuid4().hex
    mine = ironic.insert_nodes(2, owner=owner, conductor_group="")
    others = ironic.insert_nodes(2, owner=owner, conductor_group="g")
    assert listed_from(tmp_path, ironic.url, node_owner=owner, conductor_group="") == mine
    assert listed_from(tmp_path, ironic.url, node_owner=owner) == [*mine, *others]


def test_node_is_available_asks_ironic_for_one_node(ironic: Lab, tmp_path: Path) -> None:
    fields = {"owner": uuid4().hex, "conductor_group": "rack-1", "resource_class": "c"}
    [uuid] = ironic.insert_nodes(1, shard="s", **fields)
    options = {"node_owner": fields["owner"], "conductor_group": "Rack-1", "shard": "r,s"}
    assert asks(tmp_path, ironic.url).has(uuid)
    assert asks(tmp_path, ironic.url, **options).has(uuid)
    for option in ("node_owner", "conductor_group", "shard", "resource_class"):
        assert not asks(tmp_path, ironic.url, **{**options, option: "other"}).has(uuid)
    assert not asks(tmp_path, ironic.url, conductor_group="").has(uuid)
    assert not asks(tmp_path, ironic.url).has(str(uuid4()))


# Changes between two pages.


def come(listed: Listed, new: list[str]) -> None:
    new.extend(listed.lab.insert_nodes(1, owner=listed.owner))


def test_node_added_or_removed_during_a_listing_hides_no_other(make: Make, draw: Draw) -> None:
    """The removed nodes are in the middle of a page, the last one, and the first one."""
    for at in draw([CHECK, LAST, *PAGES], 2):
        listed, new = make(), list[str]()
        listed.between.act(at, partial(come, listed, new))
        listed.fleet.refresh()
        assert set(listed.uuids) <= listed.fleet.nodes.keys() <= {*listed.uuids, *new}
        assert (new[0] in listed.fleet.nodes) == (at < PAGES[3])
    cases = [
        (which, at, how)
        for which in (0, 4, 14, 22)
        for at in (LAST, *PAGES[:3])
        for how in ("delete", "move")
    ]
    for which, at, how in draw(cases, 3):
        listed = make()
        uuid = listed.uuids[which]
        listed.between.act(at, listed.ways_to_go(uuid)[how])
        listed.fleet.refresh()
        rest = set(listed.uuids) - {uuid}
        assert rest <= listed.fleet.nodes.keys() <= set(listed.uuids), (which, at, how)


def test_listing_during_which_the_last_node_of_a_page_moves_succeeds(make: Make) -> None:
    listed = make()
    listed.between.act(PAGES[1], listed.ways_to_go(listed.uuids[19])["move"])
    listed.fleet.refresh()
    assert set(listed.fleet.nodes) == set(listed.uuids)
    listed.fleet.refresh()
    assert set(listed.fleet.nodes) == set(listed.uuids) - {listed.uuids[19]}


@pytest.mark.parametrize("which", [9, 24])
def test_listing_during_which_the_last_node_of_a_page_is_deleted_is_an_error(
    make: Make, which: int
) -> None:
    listed = make()
    uuid = listed.uuids[which]
    listed.between.act(PAGES[which // PAGE], listed.ways_to_go(uuid)["delete"])
    with pytest.raises(BackendError) as caught:
        listed.fleet.refresh()
    assert caught.value.operation == "listing the nodes"
    assert f"Node {uuid} could not be found. (HTTP 404)" in str(caught.value)
    assert listed.between.url in str(caught.value)
    assert set(listed.fleet.nodes) == set(listed.uuids)
    listed.fleet.refresh()
    assert set(listed.fleet.nodes) == set(listed.uuids) - {uuid}


def test_listing_before_whose_last_page_the_last_node_is_deleted_succeeds(make: Make) -> None:
    listed = make()
    listed.between.act(LAST, listed.ways_to_go(listed.uuids[-1])["delete"])
    listed.fleet.refresh()
    assert list(listed.fleet.nodes) == listed.uuids[:-1]


# Well-formed pages with missing nodes.


def lists_nodes(request: Request) -> bool:
    return request.path.startswith("/v1/nodes?")


def lacking(*uuids: str) -> Callable[[Answer], Answer]:
    def leave_out(content: dict[str, Any]) -> None:
        content["nodes"] = [node for node in content["nodes"] if node["uuid"] not in uuids]

    return edited(leave_out)


def test_nodes_missing_from_a_page_are_kept_until_ironic_has_deleted_them(
    ironic: Lab, between: Between, placement: PlacementFixture, tmp_path: Path
) -> None:
    owner = uuid4().hex
    uuids = ironic.insert_nodes(10, owner=owner, resource_class="gold")
    lost = uuids[2:5]

    def asked_alone() -> list[str]:
        paths = [one.path.partition("?")[0] for one in between.asked]
        between.asked.clear()
        asked = [path.removeprefix("/v1/nodes/") for path in paths]
        return sorted(one for one in asked if is_uuid_like(one))

    with Metal(placement, ironic, tmp_path / "state", url=between.url, owner=owner) as metal:
        metal.sync()
        published = everything()
        assert published.keys() == set(uuids)
        metal.sync()
        assert asked_alone() == [], "an unchanged cycle asks for no node alone"

        between.replace(lists_nodes, lacking(*lost), each_time=True)
        metal.cycle.sync()
        assert asked_alone() == []
        for cycle in (metal.cycle, metal.restarted()):
            outcome = cycle.sync()
            assert (outcome.steps, everything()) == ((), published)
            [problem] = outcome.problems
            assert isinstance(problem, PartialListing)
            assert problem.names == tuple(sorted(lost))
            assert asked_alone() == sorted(lost)

        ironic.delete_node(lost[0])
        ironic.update_node(lost[1], owner=uuid4().hex)
        [problem] = metal.cycle.sync().problems
        assert isinstance(problem, PartialListing)
        assert problem.names == (lost[2],)
        assert published.keys() - everything().keys() == set(lost[:2])


# Versions.


def test_too_old_ironic_is_an_error_that_names_the_version(old_ironic: Lab, tmp_path: Path) -> None:
    for options, told in (
        ({}, r"API 1\.61 is needed for the requested fields of nodes.* 1\.1 to 1\.58"),
        ({"shard": "a"}, r"API 1\.82 is needed for \[metal\] shard.* 1\.1 to 1\.58"),
    ):
        fleet = Fleet(asks(tmp_path, old_ironic.url, **options), "metal")
        with pytest.raises(BackendError, match=told):
            fleet.begin_following()
        with pytest.raises(BackendError, match=told):
            fleet.refresh()
        assert fleet.nodes == {}
