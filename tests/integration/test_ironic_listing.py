"""Complete listings of a real Ironic: all that is selected, or an error; never a part of it.

Each test has nodes of an owner of its own, 25 of them, and Ironic puts 10 on a page.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest

from tests.lab.between import Between, edited
from tests.lab.faults import BAD_REQUEST, FAULTS, Answer, Fault
from wharfinger.conf import parse
from wharfinger.exceptions import BackendError
from wharfinger_harnesses.ironic import Ironic as Lab
from wharfinger_ironic import client
from wharfinger_ironic.client import Ironic
from wharfinger_ironic.config import FleetSection
from wharfinger_ironic.fleet import Fleet

COUNT: Final = 25
MAX_LIMIT: Final = 10
#: The requests of a listing, in their order.
CHECK, LAST, *PAGES = range(6)
#: What is being done, as an error says it.
OPERATIONS: Final = {
    CHECK: "checking that all nodes are listed",
    LAST: "looking for the last node",
    **dict.fromkeys(PAGES, "listing the nodes"),
}


def asks(directory: Path, url: str, **options: str) -> Ironic:
    lines = "".join(f"{name} = {value}\n" for name, value in options.items())
    path = directory / f"{uuid4()}.conf"
    path.write_text(f"[metal]\nauth_type = none\nendpoint = {url}\ntimeout = 3\n{lines}")
    conf = parse([str(path)])
    return Ironic.connect(conf, FleetSection.read(conf, "metal"))


@dataclass(frozen=True)
class Listed:
    """A fleet that is asked for through something between, and the nodes it has."""

    lab: Lab
    between: Between
    fleet: Fleet
    owner: str
    uuids: list[str]

    def fails(self) -> str:
        """What is said when it is listed again; it stays as it was."""
        before = dict(self.fleet.nodes)
        assert set(before) == set(self.uuids)
        with pytest.raises(BackendError) as caught:
            self.fleet.refresh()
        assert self.fleet.nodes == before
        self.between.expect()
        return str(caught.value)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab({"api": {"max_limit": MAX_LIMIT}}) as lab:
        lab.create_node(None)
        yield lab


@pytest.fixture(scope="module")
def between(lab: Lab) -> Iterator[Between]:
    with Between(lab.url) as between:
        yield between


def made(lab: Lab, between: Between, directory: Path) -> Listed:
    owner = uuid4().hex
    uuids = lab.insert_nodes(COUNT, owner=owner)
    between.expect()
    fleet = Fleet(asks(directory, between.url, node_owner=owner), "metal")
    fleet.refresh()
    return Listed(lab, between, fleet, owner, uuids)


@pytest.fixture
def listed(lab: Lab, between: Between, tmp_path: Path) -> Listed:
    """With nodes of its own, which may be changed."""
    return made(lab, between, tmp_path)


@pytest.fixture(scope="module")
def still(lab: Lab, between: Between, tmp_path_factory: pytest.TempPathFactory) -> Listed:
    """With nodes that nobody changes."""
    return made(lab, between, tmp_path_factory.mktemp("still"))


# Pages.


def test_all_pages_are_read(listed: Listed) -> None:
    assert list(listed.fleet.nodes) == listed.uuids
    assert listed.between.rows == [1, 1, 10, 10, 5, 0]
    assert [one.query.get("marker") for one in listed.between.asked[2:]] == [
        None,
        *(listed.uuids[index] for index in (9, 19, 24)),
    ]


def test_our_own_pages_are_read_as_well(listed: Listed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PAGE", 7)
    listed.between.expect()
    listed.fleet.refresh()
    assert list(listed.fleet.nodes) == listed.uuids
    assert listed.between.rows[2:] == [7, 7, 7, 4, 0]


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 20])
def test_a_fleet_of_any_size_is_listed(lab: Lab, tmp_path: Path, count: int) -> None:
    owner = uuid4().hex
    uuids = lab.insert_nodes(count, owner=owner) if count else []
    fleet = Fleet(asks(tmp_path, lab.url, node_owner=owner), "metal")
    fleet.refresh()
    assert list(fleet.nodes) == uuids


def test_a_node_is_read_as_ironic_has_it(lab: Lab, tmp_path: Path) -> None:
    owner = uuid4().hex
    uuid = lab.create_node(f"node-{owner}", owner=owner, resource_class="bare metal/größe")
    lab.set_traits(uuid, "CUSTOM_A", "HW_CPU_X86_VMX")
    lab.set_maintenance(uuid, "a fan ✗\nand more")
    lab.update_node(uuid, retired=True, retired_reason="sold")
    fleet = Fleet(asks(tmp_path, lab.url, node_owner=owner), "metal")
    fleet.refresh()
    node = fleet.nodes[uuid]
    assert (node.name, node.resource_class) == (f"node-{owner}", "bare metal/größe")
    assert set(node.traits) == {"CUSTOM_A", "HW_CPU_X86_VMX"}
    assert (node.provision_state, node.power_state) == ("enroll", None)
    assert (node.maintenance, node.maintenance_reason) == (True, "a fan ✗\nand more")
    assert (node.retired, node.retired_reason) == (True, "sold")
    assert (node.fault, node.instance_uuid) == (None, None)


# Selection.

#: With a meaning in URLs, in headers, and in oslo.config's files.
CHARACTERS: Final = "a&shard=b%20c+d/e;f#g?h=ü"
SELECTIONS: Final = {
    "conductor_group": ("conductor_group", "rack-1"),
    "shard": ("shard", CHARACTERS),
    "node_owner": ("owner", CHARACTERS),
    "resource_class": ("resource_class", CHARACTERS),
}


@pytest.mark.parametrize("option", SELECTIONS)
def test_an_option_selects(lab: Lab, tmp_path: Path, option: str) -> None:
    column, value = SELECTIONS[option]
    mine = lab.insert_nodes(12, **{column: value})
    lab.insert_nodes(3, **{column: f"{value}x"})
    fleet = Fleet(asks(tmp_path, lab.url, **{option: value.replace("$", "$$")}), "metal")
    fleet.refresh()
    assert list(fleet.nodes) == mine


def test_options_select_together(lab: Lab, tmp_path: Path) -> None:
    owner = uuid4().hex
    fields = {"owner": owner, "shard": "s", "conductor_group": "g", "resource_class": "c"}
    mine = lab.insert_nodes(2, **fields)
    for field in fields:
        lab.insert_nodes(1, **{**fields, field: "other"})
    fleet = Fleet(
        asks(
            tmp_path,
            lab.url,
            node_owner=owner,
            shard="s",
            conductor_group="g",
            resource_class="c",
        ),
        "metal",
    )
    fleet.refresh()
    assert list(fleet.nodes) == mine


def test_the_default_group_is_one(lab: Lab, tmp_path: Path) -> None:
    owner = uuid4().hex
    mine = lab.insert_nodes(2, owner=owner, conductor_group="")
    others = lab.insert_nodes(2, owner=owner, conductor_group="g")
    default = Fleet(asks(tmp_path, lab.url, node_owner=owner, conductor_group=""), "metal")
    every = Fleet(asks(tmp_path, lab.url, node_owner=owner), "metal")
    default.refresh()
    every.refresh()
    assert list(default.nodes) == mine
    assert list(every.nodes) == [*mine, *others]


@pytest.mark.parametrize("option", SELECTIONS)
def test_the_feed_selects_too(lab: Lab, between: Between, tmp_path: Path, option: str) -> None:
    column, value = SELECTIONS[option]
    value = f"{value}{uuid4().hex}"
    mine, other = lab.insert_nodes(1, **{column: value}), lab.insert_nodes(1)
    fleet = Fleet(asks(tmp_path, between.url, **{option: value}), "metal")
    mark = fleet.begin_following()
    fleet.refresh()
    for uuid in (*mine, *other):
        # By hand: no conductor is in the group.
        lab.execute(
            "UPDATE nodes SET maintenance = :on, updated_at = :now WHERE uuid = :uuid",
            on=True,
            now=datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S.%f"),
            uuid=uuid,
        )
    assert fleet.changed_since(mark)[0] == set(mine)


def test_what_moves_out_of_the_selection_goes_with_the_next_listing(listed: Listed) -> None:
    listed.lab.update_node(listed.uuids[3], owner=uuid4().hex)
    listed.fleet.refresh()
    assert set(listed.fleet.nodes) == set(listed.uuids) - {listed.uuids[3]}


# What happens between two pages.


@pytest.mark.parametrize("at", [CHECK, LAST, *PAGES])
def test_a_node_that_comes_meanwhile_does_no_harm(listed: Listed, at: int) -> None:
    new = list[str]()
    listed.between.act(at, lambda: new.extend(listed.lab.insert_nodes(1, owner=listed.owner)))
    listed.fleet.refresh()
    assert set(listed.uuids) <= listed.fleet.nodes.keys() <= {*listed.uuids, *new}
    assert (new[0] in listed.fleet.nodes) == (at < PAGES[3])


#: Nodes in the middle of a page, the last of all, and the first; after which no page begins.
@pytest.mark.parametrize("which", [0, 4, 14, 22])
@pytest.mark.parametrize("at", [LAST, *PAGES[:3]])
@pytest.mark.parametrize("how", ["delete", "move"])
def test_a_node_that_goes_meanwhile_takes_no_other_with_it(
    listed: Listed, which: int, at: int, how: str
) -> None:
    uuid = listed.uuids[which]
    if how == "delete":
        go: Callable[[], object] = partial(listed.lab.delete_node, uuid)
    else:
        go = partial(listed.lab.update_node, uuid, owner=uuid4().hex)
    listed.between.act(at, go)
    listed.fleet.refresh()
    rest = set(listed.uuids) - {uuid}
    assert rest <= listed.fleet.nodes.keys() <= set(listed.uuids)


@pytest.mark.parametrize("which", [9, 19, 24])
def test_the_last_of_a_page_may_move_out_of_the_selection_meanwhile(
    listed: Listed, which: int
) -> None:
    uuid = listed.uuids[which]
    page = PAGES[which // 10]
    listed.between.act(page, lambda: listed.lab.update_node(uuid, owner=uuid4().hex))
    listed.fleet.refresh()
    assert set(listed.fleet.nodes) == set(listed.uuids)


@pytest.mark.parametrize("which", [9, 19, 24])
def test_the_last_of_a_page_that_is_deleted_meanwhile_is_told(listed: Listed, which: int) -> None:
    uuid = listed.uuids[which]
    listed.between.act(PAGES[which // 10], lambda: listed.lab.delete_node(uuid))
    told = listed.fails()
    assert told.startswith("driver metal: listing the nodes failed: ")
    assert f"Node {uuid} could not be found. (HTTP 404)" in told
    assert listed.between.url in told
    listed.fleet.refresh()
    assert set(listed.fleet.nodes) == set(listed.uuids) - {uuid}


def test_the_last_of_all_may_be_deleted_before_its_page(listed: Listed) -> None:
    listed.between.act(LAST, lambda: listed.lab.delete_node(listed.uuids[-1]))
    listed.fleet.refresh()
    assert list(listed.fleet.nodes) == listed.uuids[:-1]


# Pages that are not what they should be.


def no_nodes(answer: Answer) -> Answer:
    return replace(answer, body=b'{"nodes": []}')


@pytest.mark.parametrize("at", PAGES[:3])
def test_an_empty_page_is_not_the_end(still: Listed, at: int) -> None:
    still.between.replace(at, no_nodes)
    assert still.fails() == (
        "driver metal: listing the nodes failed: its pages end, and the last node, "
        f"{still.uuids[-1]}, is on none of them"
    )


@pytest.mark.parametrize("at", PAGES[1:])
def test_a_page_that_comes_twice_is_told(still: Listed, at: int) -> None:
    pages: list[Answer] = []

    def keep(answer: Answer) -> Answer:
        pages.append(answer)
        return answer

    still.between.replace(PAGES[0], keep)
    still.fleet.refresh()
    still.between.replace(at, lambda _answer: pages[0])
    assert still.fails() == (
        "driver metal: listing the nodes failed: its pages have node "
        f"{still.uuids[0]} more than once"
    )


@pytest.mark.parametrize("at", PAGES[:3])
def test_a_page_of_which_the_end_is_missing_costs_a_request(still: Listed, at: int) -> None:
    still.between.replace(at, edited(lambda content: content["nodes"].pop()))
    still.fleet.refresh()
    assert list(still.fleet.nodes) == still.uuids


def body(content: bytes) -> Callable[[Answer], Answer]:
    return lambda answer: replace(answer, body=content)


def first(change: Callable[[dict[str, Any]], object]) -> Callable[[Answer], Answer]:
    return edited(lambda content: change(content["nodes"][0]))


HTML: Final = b"<html><body><h1>Sign in</h1></body></html>"
#: Answers that are none: what is sent, and what is told of it.
NONSENSE: Final[dict[str, tuple[Callable[[Answer], Answer], str]]] = {
    "HTML": (lambda answer: Answer(200, HTML, "text/html"), "Sign in"),
    "empty": (body(b""), "truncated: b''"),
    "no content": (lambda answer: Answer(204), "truncated: b''"),
    "null": (body(b"null"), "got `null`"),
    "a list": (body(b"[]"), "got `array`"),
    "nodes missing": (body(b'{"bodes": []}'), "missing required field `nodes`"),
    "nodes null": (body(b'{"nodes": null}'), "got `null` - at `$.nodes`"),
    "a number of nodes": (body(b'{"nodes": 3}'), "got `int` - at `$.nodes`"),
    "cut off": (lambda answer: replace(answer, body=answer.body[:-20]), "truncated"),
    "nested": (body(b"[" * 100_000), "not understood"),
}
NO_NODES: Final = {
    "a node that is none": (body(b'{"nodes": [7]}'), "got `int`"),
    "not UTF-8": (body(b'{"nodes": [{"uuid": "\xe9"}]}'), "not understood"),
}


@pytest.mark.parametrize(
    ("what", "at"),
    [
        *product(NONSENSE, [CHECK, LAST, PAGES[0], PAGES[1], PAGES[3]]),
        *product(NO_NODES, [LAST, PAGES[0], PAGES[1], PAGES[3]]),  # before, nodes do not count
    ],
)
def test_an_answer_that_is_none_is_told(still: Listed, what: str, at: int) -> None:
    change, part = (NONSENSE | NO_NODES)[what]
    still.between.replace(at, change)
    told = still.fails()
    assert told.startswith(f"driver metal: {OPERATIONS[at]} failed: an answer that is not underst")
    assert part in told
    assert len(told) < 700


#: Nodes that are none.
BAD_NODES: Final[dict[str, tuple[Callable[[Answer], Answer], str]]] = {
    "no uuid": (first(lambda node: node.pop("uuid")), "missing required field `uuid`"),
    "uuid null": (first(lambda node: node.update(uuid=None)), "got `null` - at `$.uuid`"),
    "no uuid at all": (first(lambda node: node.update(uuid="../x")), "'../x'"),
    "no traits": (first(lambda node: node.pop("traits")), "missing required field `traits`"),
    "traits in a word": (first(lambda node: node.update(traits="A")), "at `$.traits`"),
    "a trait that is none": (first(lambda node: node.update(traits=[1])), "at `$.traits[0]`"),
    "a state that is none": (first(lambda node: node.update(provision_state=1)), "provision_state"),
    "maintenance in words": (first(lambda node: node.update(maintenance="no")), "maintenance"),
    "no fault": (first(lambda node: node.pop("fault")), "missing required field `fault`"),
}


@pytest.mark.parametrize("what", BAD_NODES)
def test_a_node_that_is_none_is_told(still: Listed, what: str) -> None:
    change, part = BAD_NODES[what]
    still.between.replace(PAGES[1], change)
    told = still.fails()
    assert told.startswith("driver metal: listing the nodes failed: ")
    assert part in told
    assert len(told) < 700


# What Ironic, proxies and networks say.


def ironics(status: int, message: str) -> Fault:
    error = json.dumps({"faultcode": "Client", "faultstring": message})
    content = json.dumps({"error_message": error}).encode()
    return Fault(str(status), message.lower(), answer=lambda _: Answer(status, content))


ERRORS: Final[dict[str, Fault]] = {
    **{name: FAULTS[name] for name in ("401", "404 page", "429", "500", "503")},
    "400": BAD_REQUEST,
    "502": Fault("502", "http 502", answer=lambda _: Answer(502, HTML, "text/html")),
    "500 of Ironic": ironics(500, "Unable to acquire lock"),
    "401 of Ironic": ironics(401, "Authentication required"),
    "404 of Ironic": ironics(404, "Node 7 could not be found"),
    "406 of Ironic": ironics(406, "Request not acceptable"),
    "refused": FAULTS["refused"],
    "reset": FAULTS["reset"],
    "reset when done": FAULTS["reset when done"],
    "cut off when done": FAULTS["cut off when done"],
    "late": FAULTS["late"],
}
#: What is told where it is not what the fault says.
TOLD: Final = {"406 of Ironic": "api 1.61 is needed"}


@pytest.mark.parametrize("at", [CHECK, LAST, PAGES[1], PAGES[3]])
@pytest.mark.parametrize("what", ERRORS)
def test_an_error_is_told(still: Listed, what: str, at: int) -> None:
    fault = ERRORS[what]
    still.between.expect(at, fault)
    told = still.fails()
    assert told.startswith(f"driver metal: {OPERATIONS[at]} failed: ")
    assert TOLD.get(what, fault.told) in told.lower()
    assert still.between.url in told or "406" in what
    assert ("credentials in [metal]" in told) == what.startswith("401")
    assert len(told) < 1200


def test_an_error_without_end_is_told_in_short(still: Listed) -> None:
    still.between.expect(PAGES[0], ironics(500, "no " * 100_000))
    assert len(still.fails()) < 1200


def test_credentials_that_may_not_list_all_are_told_what_would_do(
    lab: Lab, between: Between, tmp_path: Path
) -> None:
    between.expect(CHECK, FAULTS["403"])
    fleet = Fleet(asks(tmp_path, between.url), "metal")
    with pytest.raises(BackendError, match=r"may not list all nodes, .*reader role.*node_owner"):
        fleet.refresh()
    assert fleet.nodes == {}


# Redirects.

#: How many keystoneauth follows.
MOST_REDIRECTS: Final = 30


def goes_to(status: int, *location: str) -> Callable[[Answer], Answer]:
    headers = tuple(("Location", one) for one in location)
    return lambda _answer: Answer(status, b"", headers=headers)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_followed(still: Listed, status: int) -> None:
    still.between.expect()
    still.fleet.refresh()
    path = still.between.asked[PAGES[1]].path
    still.between.replace(PAGES[1], goes_to(status, f"{still.lab.url}{path}"))
    still.fleet.refresh()
    assert list(still.fleet.nodes) == still.uuids


def test_a_redirect_that_loses_the_query_is_told(still: Listed) -> None:
    still.between.replace(PAGES[1], goes_to(302, f"{still.lab.url}/v1/nodes"))
    assert "listing the nodes failed" in still.fails()


@pytest.mark.parametrize("location", [[], ["/v1/nodes"]])
@pytest.mark.parametrize("at", [CHECK, PAGES[1]])
def test_a_redirect_to_nowhere_is_told(still: Listed, at: int, location: list[str]) -> None:
    still.between.replace(at, goes_to(302, *location))
    told = still.fails()
    assert told.startswith(f"driver metal: {OPERATIONS[at]} failed: ")
    assert still.between.url in told


# Versions.


@pytest.fixture(scope="module")
def old() -> Iterator[Lab]:
    """An Ironic whose newest API is 1.81."""
    with Lab({"DEFAULT": {"pin_release_version": "21.3"}}) as lab:
        lab.create_node(None)
        yield lab


def test_an_option_that_is_too_new_is_told(old: Lab, tmp_path: Path) -> None:
    fleet = Fleet(asks(tmp_path, old.url, shard="a"), "metal")
    with pytest.raises(BackendError) as caught:
        fleet.refresh()
    told = str(caught.value)
    assert "[metal] shard" in told
    assert "1.82" in told
    assert "1.1 to 1.81" in told
    with pytest.raises(BackendError, match=r"\[metal\] shard"):
        fleet.begin_following()


def test_all_else_is_there(old: Lab, tmp_path: Path) -> None:
    fleet = Fleet(asks(tmp_path, old.url, conductor_group=""), "metal")
    fleet.begin_following()
    fleet.refresh()
    assert len(fleet.nodes) == 1


def test_an_ironic_that_is_too_old_is_told(tmp_path: Path) -> None:
    with Lab({"DEFAULT": {"pin_release_version": "13.0"}}) as lab:
        lab.create_node(None)
        fleet = Fleet(asks(tmp_path, lab.url), "metal")
        with pytest.raises(BackendError, match=r"1\.61 is needed.* 1\.1 to 1\.58"):
            fleet.refresh()
        assert fleet.nodes == {}


# Nobody there.


def test_an_ironic_that_is_not_there_is_told(tmp_path: Path) -> None:
    with Lab() as lab:
        uuid = lab.create_node(None)
        fleet = Fleet(asks(tmp_path, lab.url), "metal")
        fleet.refresh()
        lab.stop()
        with pytest.raises(BackendError, match=r"Unable to establish connection to http://127"):
            fleet.refresh()
        assert set(fleet.nodes) == {uuid}
        lab.start_again()
        fleet.refresh()
        assert set(fleet.nodes) == {uuid}
