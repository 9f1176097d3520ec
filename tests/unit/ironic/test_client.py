"""The Ironic client with wrong answers over real sockets: each wrong answer is an error."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from tests.lab.between import edited
from tests.lab.faults import BAD_REQUEST, FAULTS, Answer, Fault
from tests.lab.samples import uuid
from tests.lab.stub_service import HTML, Change, StubService, body
from tests.unit.ironic.samples import node
from wharfinger.conf import parse
from wharfinger.exceptions import BackendError
from wharfinger_ironic.client import Ironic
from wharfinger_ironic.config import FleetSection
from wharfinger_ironic.fleet import Fleet

PAGE: Final = 10
UUIDS: Final = [uuid(f"node {number}") for number in range(25)]
STAMP: Final = "2026-01-01T00:00:00+00:00"
NODES: Final = [
    {**msgspec.to_builtins(node(uuid=one)), "updated_at": STAMP, "driver": "lab"} for one in UUIDS
]
#: The requests of a listing in order, and the operation that an error of each names.
CHECK, LAST, *PAGES = range(6)
OPERATIONS: Final = {
    CHECK: "checking that all nodes are listed",
    LAST: "looking for the last node",
    PAGES[0]: "listing the nodes",
    PAGES[1]: "listing the nodes",
}


def refusal(status: int, message: str) -> Answer:
    """Return an error in Ironic's format: JSON in a text of a JSON document."""
    error = json.dumps({"faultcode": "Client", "faultstring": message})
    return Answer(status, json.dumps({"error_message": error}).encode())


def serve(path: str, query: dict[str, str]) -> tuple[int, Any]:
    """Return Ironic's answer to this path, with at most 10 nodes on a page."""
    if path == "/v1/nodes/detail":
        return 200, {"nodes": NODES[: int(query["limit"])], "next": "more"}
    if path != "/v1/nodes":
        one = path.removeprefix("/v1/nodes/")
        if one in UUIDS:
            return 200, {"uuid": one}
        return 404, json.loads(refusal(404, f"Node {one} could not be found.").body)
    if "project" in query:
        return 200, {"nodes": []}
    if query.get("sort_dir") == "desc":
        return 200, {"nodes": [{"uuid": UUIDS[-1]}]}
    first = UUIDS.index(query["marker"]) + 1 if "marker" in query else 0
    return 200, {"nodes": NODES[first : first + PAGE]}


@pytest.fixture
def service() -> Iterator[StubService]:
    with StubService(serve) as service:
        yield service


@pytest.fixture
def ironic(service: StubService, tmp_path: Path) -> Ironic:
    path = tmp_path / "metal.conf"
    path.write_text(f"[metal]\nauth_type = none\nendpoint = {service.url}\ntimeout = 3\n")
    conf = parse([str(path)])
    return Ironic.connect(conf, FleetSection.read(conf, "metal"))


@pytest.fixture
def fleet(ironic: Ironic) -> Fleet:
    fleet = Fleet(ironic, "metal")
    fleet.refresh()
    return fleet


def fails(fleet: Fleet, at: int) -> str:
    """Return the error of a listing; assert that the fleet is unchanged."""
    before = dict(fleet.nodes)
    with pytest.raises(BackendError) as caught:
        fleet.refresh()
    assert (caught.value.driver, caught.value.operation) == ("metal", OPERATIONS[at])
    assert fleet.nodes == before
    assert len(str(caught.value)) < 1300
    return str(caught.value)


def in_turn(names: Any, *places: int) -> list[tuple[str, int]]:
    """Return cases: each name with one of the requests, in turn."""
    return [*zip(names, cycle(places or OPERATIONS), strict=False)]


def test_listing_and_feed_read_ironics_answers(
    service: StubService, fleet: Fleet, ironic: Ironic
) -> None:
    assert list(fleet.nodes) == UUIDS
    assert fleet.nodes[UUIDS[0]] == node(uuid=UUIDS[0])
    assert len(service.seen) == len([CHECK, LAST, *PAGES])
    latest = ironic.latest(3)
    assert [one.uuid for one in latest.nodes] == UUIDS[:3]
    assert set(latest.updated) == {datetime(2026, 1, 1, tzinfo=UTC)} == {latest.answered}
    assert latest.has_more

    service.replace(0, lambda answer: replace(answer, headers=()))
    assert ironic.latest(3).answered is None
    service.replace(0, edited(lambda content: content.pop("next")))
    assert not ironic.latest(3).has_more


# Answers that the client does not understand.


def first(change: Callable[[dict[str, Any]], object]) -> Change:
    return edited(lambda content: change(content["nodes"][0]))


#: By name: the change of the answer, and words of the error.
NONSENSE: Final[dict[str, tuple[Change, str]]] = {
    "HTML": (lambda answer: Answer(200, HTML, "text/html"), "Sign in"),
    "empty": (body(b""), "truncated: b''"),
    "no content": (lambda answer: Answer(204), "truncated: b''"),
    "null": (body(b"null"), "got `null`"),
    "a list": (body(b"[]"), "got `array`"),
    "nodes missing": (body(b'{"bodes": []}'), "missing required field `nodes`"),
    "nodes null": (body(b'{"nodes": null}'), "got `null` - at `$.nodes`"),
    "a number of nodes": (body(b'{"nodes": 3}'), "got `int` - at `$.nodes`"),
    "cut off": (lambda answer: replace(answer, body=answer.body[:-5]), "truncated"),
    "nested": (body(b"[" * 100_000), "not understood"),
}
NO_NODES: Final = {
    "a number for a node": (body(b'{"nodes": [7]}'), "got `int`"),
    "not UTF-8": (body(b'{"nodes": [{"uuid": "\xe9"}]}'), "not understood"),
}
BAD_NODES: Final[dict[str, tuple[Change, str]]] = {
    "no uuid": (first(lambda one: one.pop("uuid")), "missing required field `uuid`"),
    "uuid null": (first(lambda one: one.update(uuid=None)), "got `null` - at `$.uuid`"),
    "no uuid at all": (first(lambda one: one.update(uuid="../x")), "'../x'"),
    "no traits": (first(lambda one: one.pop("traits")), "missing required field `traits`"),
    "traits in a word": (first(lambda one: one.update(traits="A")), "at `$.traits`"),
    "a number for a trait": (first(lambda one: one.update(traits=[1])), "at `$.traits[0]`"),
    "a number for a state": (first(lambda one: one.update(provision_state=1)), "provision_state"),
    "maintenance in words": (first(lambda one: one.update(maintenance="no")), "maintenance"),
    "no fault": (first(lambda one: one.pop("fault")), "missing required field `fault`"),
}
WRONG: Final = NONSENSE | NO_NODES | BAD_NODES


@pytest.mark.parametrize(
    ("what", "at"),
    [
        *in_turn(NONSENSE),
        *in_turn(NO_NODES, LAST, PAGES[1]),  # the first request of a listing does not read nodes
        *in_turn(BAD_NODES, PAGES[1]),
    ],
)
def test_unreadable_answer_is_an_error(
    service: StubService, fleet: Fleet, what: str, at: int
) -> None:
    change, part = WRONG[what]
    service.replace(at, change)
    told = fails(fleet, at)
    assert part in told
    assert what in BAD_NODES or service.url in told
    service.expect()
    fleet.refresh()


def test_page_without_an_end_marker_needs_one_more_request(
    service: StubService, fleet: Fleet
) -> None:
    service.replace(PAGES[0], edited(lambda content: content["nodes"].pop()))
    fleet.refresh()
    assert list(fleet.nodes) == UUIDS


# Errors of Ironic, proxies and networks.


def ironics(status: int, message: str) -> Fault:
    answer = refusal(status, message)
    return Fault(str(status), message.lower(), answer=lambda _: answer)


ERRORS: Final[dict[str, Fault]] = {
    **{name: FAULTS[name] for name in ("401", "404 page", "429", "500", "503")},
    "400": BAD_REQUEST,
    "502": Fault("502", "http 502", answer=lambda _: Answer(502, HTML, "text/html")),
    "500 of Ironic": ironics(500, "Unable to acquire lock"),
    "401 of Ironic": ironics(401, "Authentication required"),
    "404 of Ironic": ironics(404, "Node 7 could not be found"),
    **{name: FAULTS[name] for name in ("refused", "reset", "reset when done", "late")},
    "cut off when done": FAULTS["cut off when done"],
    "endless": Fault("500", "no no no", answer=lambda _: refusal(500, "no " * 100_000)),
}


@pytest.mark.parametrize(("what", "at"), in_turn(ERRORS))
def test_error_names_the_url_and_the_remedy(
    service: StubService, fleet: Fleet, what: str, at: int
) -> None:
    fault = ERRORS[what]
    service.expect(at, fault)
    told = fails(fleet, at)
    assert fault.told[:1000] in told.lower()
    assert service.url in told
    assert ("credentials in [metal]" in told) == what.startswith("401")


def test_credentials_that_may_not_list_all_nodes_get_the_remedy(
    service: StubService, fleet: Fleet
) -> None:
    service.expect(CHECK, FAULTS["403"])
    told = fails(fleet, CHECK)
    for part in ("may not list all nodes", "reader role", "node_owner"):
        assert part in told


def goes_to(status: int, *location: str) -> Change:
    headers = tuple(("Location", one) for one in location)
    return lambda _answer: Answer(status, b"", headers=headers)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirect_is_followed(service: StubService, fleet: Fleet, status: int) -> None:
    service.expect()
    fleet.refresh()
    path = service.seen[PAGES[1]].partition(" ")[2]
    service.replace(PAGES[1], goes_to(status, f"{service.url}{path}"))
    fleet.refresh()
    assert list(fleet.nodes) == UUIDS


@pytest.mark.parametrize("location", [[], ["/v1/nodes"]])
@pytest.mark.parametrize("at", [CHECK, PAGES[1]])
def test_redirect_to_nowhere_is_an_error(
    service: StubService, fleet: Fleet, at: int, location: list[str]
) -> None:
    service.replace(at, goes_to(302, *location))
    assert service.url in fails(fleet, at)


# One node.

#: Answers that do not tell whether Ironic has the node.
NEITHER: Final[dict[str, Answer]] = {
    "a page of a proxy": Answer(404, f"<p>no {UUIDS[0]} here".encode(), "text/html"),
    "no such path": refusal(404, "The resource could not be found."),
    "an empty 404": Answer(404),
    "another 404": Answer(404, json.dumps([UUIDS[0]]).encode()),
    "a page": Answer(200, f"<p>{UUIDS[0]}".encode(), "text/html"),
    "another node": Answer(200, json.dumps({"uuid": UUIDS[1]}).encode()),
    "nothing": Answer(200, b"{}"),
    "forbidden": Answer(403),
    "an error": Answer(500),
    "gone away": Answer(503),
}


@pytest.mark.parametrize("what", NEITHER)
def test_question_for_one_node_with_an_unclear_answer_is_an_error(
    service: StubService, ironic: Ironic, what: str
) -> None:
    service.replace(0, lambda _: NEITHER[what])
    with pytest.raises(BackendError) as caught:
        ironic.has(UUIDS[0])
    assert caught.value.operation == f"asking for node {UUIDS[0]}"
    assert service.struck
    assert ironic.has(UUIDS[0])
    assert not ironic.has(uuid("another"))
