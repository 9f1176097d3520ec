"""Listings of a real Cyborg that are not what they should be: an error, and nothing is written."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import pytest

from tests.lab.accelerators import Cards, figures
from tests.lab.between import edited
from tests.lab.cyborg_harness import LISTING, Harness
from tests.lab.cycles import everything
from tests.lab.faults import FAULTS, Answer, Fault
from wharfinger.exceptions import BackendError
from wharfinger.placement.embedded import EmbeddedPlacement
from wharfinger_cyborg.driver import CyborgDriver
from wharfinger_harnesses.cyborg import deployable, device

HOST: Final = "fpga-host-1"
DEVICES: Final = (
    device("0c", deployable(accelerators=2), deployable("r1")),
    device("1c", deployable(resource_class="PGPU"), kind="GPU"),
)
#: The requests of a listing, in their order, and what is being done then, as an error says it.
DEPLOYABLES, REQUESTS, HOSTS = range(3)
OPERATIONS: Final = {
    DEPLOYABLES: "listing the deployables",
    REQUESTS: "listing the accelerator requests",
    HOSTS: "listing the devices",
}
#: What each list is called in its answer.
LISTS: Final = {DEPLOYABLES: "deployables", REQUESTS: "arqs", HOSTS: "devices"}
#: Not for anybody's eyes.
SECRETS: Final = ("s3cret", "t0ken")


@dataclass(frozen=True)
class Published:
    """An instance that has published what a Cyborg has, whose answers are not the same again."""

    harness: Harness
    cards: Cards

    def fails(self) -> str:
        """What is said by a cycle when a listing fails; nothing is written."""
        driver = self.cards.driver
        assert isinstance(driver, CyborgDriver)
        before = driver.get_available_nodes()
        there, requests = everything(), len(self.cards.placement.requests)
        with pytest.raises(BackendError) as caught:
            self.cards.cycle.sync()
        assert driver.get_available_nodes() == before
        assert everything() == there
        assert len(self.cards.placement.requests) == requests
        told = str(caught.value)
        assert not [secret for secret in SECRETS if secret in told]
        assert len(told) < 1300
        self.harness.between.expect()
        return told

    def is_well(self) -> None:
        """See that the next listing that is good is believed."""
        self.harness.between.expect()
        assert not self.cards.sync().steps
        assert [one.path for one in self.harness.between.asked] == [*LISTING]
        assert figures(self.harness.name("0c")) == {"FPGA": (2, 0)}


@pytest.fixture(scope="module")
def harness(placement_service: EmbeddedPlacement) -> Iterator[Harness]:
    with Harness(placement_service, HOST) as harness:
        yield harness


@pytest.fixture(scope="module")
def published(harness: Harness, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Published]:
    """Of what nobody changes."""
    harness.begin(*DEVICES)
    state = tmp_path_factory.mktemp("state")
    with Cards(harness.placement, harness.url, state, timeout="3") as cards:
        cards.sync()
        yield Published(harness, cards)


def body(content: bytes) -> Callable[[Answer], Answer]:
    return lambda answer: replace(answer, body=content)


def emptied(at: int) -> Callable[[Answer], Answer]:
    return edited(lambda content: content.update({LISTS[at]: []}))


@pytest.mark.parametrize("at", [DEPLOYABLES, HOSTS])
def test_an_empty_list_is_not_believed(published: Published, at: int) -> None:
    for _ in range(3):  # however often
        published.harness.between.replace(at, emptied(at))
        told = published.fails()
        assert told.startswith("driver fpga: listing the accelerators failed: it lists none")
        assert "enabled_drivers" in told
    published.is_well()


def test_no_accelerator_requests_are_none(published: Published) -> None:
    published.harness.between.replace(REQUESTS, emptied(REQUESTS))
    assert not published.cards.sync().steps


def without(at: int, key: str) -> Callable[[Answer], Answer]:
    """The first of a list lacks a key."""
    return edited(lambda content: content[LISTS[at]][0].pop(key))


def having(at: int, **values: Any) -> Callable[[Answer], Answer]:
    """The first of a list has these values."""
    return edited(lambda content: content[LISTS[at]][0].update(values))


def same(content: Any) -> None:
    one, other, *_ = content["deployables"]
    other["rp_uuid"] = one["rp_uuid"]


def in_turn(names: Iterable[str]) -> list[tuple[str, int]]:
    """Each of these with one of the requests: one is read as the others are."""
    return [*zip(names, cycle(OPERATIONS), strict=False)]


HTML: Final = b"<html><body><h1>Sign in</h1></body></html>"
#: Answers that are none, to any of the requests: what is sent, and what is told of it.
NONSENSE: Final[dict[str, tuple[Callable[[Answer], Answer], str]]] = {
    "HTML": (lambda answer: Answer(200, HTML, "text/html"), "Sign in"),
    "empty": (body(b""), "truncated"),
    "no content": (lambda answer: Answer(204), "answers 204"),
    "null": (body(b"null"), "got `null`"),
    "a list": (body(b"[]"), "got `array`"),
    "another object": (body(b'{"bodes": []}'), "missing required field"),
    "a number": (body(b'{"deployables": 3, "arqs": 3, "devices": 3}'), "got `int`"),
    "of numbers": (body(b'{"deployables": [3], "arqs": [3], "devices": [3]}'), "got `int`"),
    "cut off": (lambda answer: replace(answer, body=answer.body[:-2]), "truncated"),
    "nested": (body(b"[" * 100_000), "not understood"),
    "not UTF-8": (body(b'{"deployables": "\xe9", "arqs": "\xe9", "devices": "\xe9"}'), "not under"),
}


@pytest.mark.parametrize(("what", "at"), in_turn(NONSENSE))
def test_an_answer_that_is_none_is_told(published: Published, what: str, at: int) -> None:
    change, part = NONSENSE[what]
    published.harness.between.replace(at, change)
    told = published.fails()
    assert told.startswith(f"driver fpga: {OPERATIONS[at]} failed: ")
    assert part in told
    assert f"{published.harness.between.url}{LISTING[at]}" in told
    published.is_well()


#: Entries of lists that are none.
BAD: Final[dict[str, tuple[int, Callable[[Answer], Answer], str]]] = {
    **{
        f"no {key}": (DEPLOYABLES, without(DEPLOYABLES, key), f"missing required field `{key}`")
        for key in ("uuid", "name", "num_accelerators", "device_id", "rp_uuid", "attributes_list")
    },
    "no driver_name": (DEPLOYABLES, without(DEPLOYABLES, "driver_name"), "`driver_name`"),
    "a number in words": (DEPLOYABLES, having(DEPLOYABLES, num_accelerators="2"), "num_accel"),
    "half of one": (DEPLOYABLES, having(DEPLOYABLES, num_accelerators=1.5), "num_accelerators"),
    "name null": (DEPLOYABLES, having(DEPLOYABLES, name=None), "`$.deployables[0].name`"),
    "attributes in JSON": (DEPLOYABLES, having(DEPLOYABLES, attributes_list=[]), "attributes_li"),
    "rp_uuid none": (DEPLOYABLES, having(DEPLOYABLES, rp_uuid="../x"), "rp_uuid '../x'"),
    "rp_uuid empty": (DEPLOYABLES, having(DEPLOYABLES, rp_uuid=""), "rp_uuid ''"),
    "uuid none": (DEPLOYABLES, having(DEPLOYABLES, uuid="../x"), "uuid '../x'"),
    "no hostname": (HOSTS, without(HOSTS, "hostname"), "missing required field `hostname`"),
    "hostname null": (HOSTS, having(HOSTS, hostname=None), "`$.devices[0].hostname`"),
}


@pytest.mark.parametrize("what", BAD)
def test_an_entry_that_is_none_is_told(published: Published, what: str) -> None:
    at, change, part = BAD[what]
    published.harness.between.replace(at, change)
    told = published.fails()
    assert told.startswith(f"driver fpga: {OPERATIONS[at]} failed: ")
    assert part in told
    published.is_well()


@pytest.mark.parametrize(
    "arq",
    [
        {"state": "BindStarted"},
        {"uuid": 1, "state": "BindStarted"},
        {"uuid": "a"},
        {"uuid": "a", "state": None},
        {"uuid": "a", "state": "BindStarted", "device_rp_uuid": 7},
    ],
)
def test_a_request_that_is_none_is_told(published: Published, arq: object) -> None:
    add = edited(lambda content: content["arqs"].append(arq))
    published.harness.between.replace(REQUESTS, add)
    assert published.fails().startswith("driver fpga: listing the accelerator requests failed: ")
    published.is_well()


def test_a_provider_of_two_deployables_is_told(published: Published) -> None:
    uuid = published.harness.cyborg.deployables()[0]["rp_uuid"]
    published.harness.between.replace(DEPLOYABLES, edited(same))
    told = published.fails()
    assert "are one provider's" in told
    assert uuid in told
    for one in published.harness.cyborg.deployables()[:2]:
        assert one["uuid"] in told
    published.is_well()


#: What a proxy, or Cyborg, may say; 409 and 429 are nothing to a GET of Cyborg's.
ERRORS: Final[dict[str, Fault]] = {
    name: FAULTS[name]
    for name in ("refused", "reset", "reset when done", "cut off when done", "lost", "401", "403")
} | {name: FAULTS[name] for name in ("404", "404 page", "500", "503")}


@pytest.mark.parametrize(("what", "at"), in_turn(ERRORS))
def test_an_error_is_told(published: Published, what: str, at: int) -> None:
    fault = ERRORS[what]
    published.harness.between.expect(at, fault)
    told = published.fails()
    assert told.startswith(f"driver fpga: {OPERATIONS[at]} failed: ")
    assert fault.told in told.lower()
    assert published.harness.between.url in told
    assert ("credentials in [fpga]" in told) == (what == "401")
    assert ("the admin role" in told) == (what == "403")
    published.is_well()


def test_an_error_without_end_is_told_in_short(published: Published) -> None:
    page = Answer(500, b'{"error_message": "{\\"faultstring\\": \\"' + b"no " * 100_000 + b'\\"}"}')
    published.harness.between.replace(DEPLOYABLES, lambda _answer: page)
    assert "no no no" in published.fails()


def test_what_cyborg_itself_says_is_told(published: Published) -> None:
    published.harness.cyborg.execute("ALTER TABLE deployables RENAME TO away")
    try:
        told = published.fails()
    finally:
        published.harness.cyborg.execute("ALTER TABLE away RENAME TO deployables")
    assert "answers 500" in told
    assert "deployables" in told
    published.is_well()


# What changes more than an answer.


def test_a_cyborg_that_has_lost_all_is_not_believed(published: Published) -> None:
    cyborg = published.harness.cyborg
    cyborg.set_hardware()
    cyborg.discover()
    assert "it lists none" in published.fails()
    cyborg.set_hardware(*DEVICES)
    cyborg.discover()
    assert len(published.cards.sync().steps) == 3


def test_no_secret_is_told(harness: Harness, tmp_path: Path) -> None:
    harness.begin(*DEVICES)
    secret = harness.url.replace("http://", "http://admin:s3cret@")
    with Cards(
        harness.placement,
        secret,
        tmp_path,
        auth_type="admin_token",
        token="t0ken",
    ) as cards:
        cards.sync()
        published = Published(harness, cards)
        for at in OPERATIONS:
            for what in ("refused", "reset", "401", "500", "page"):
                harness.between.expect(at, FAULTS[what])
                assert f"{harness.between.url.removeprefix('http://')}" in published.fails()
        harness.between.expect()


def test_a_cyborg_that_is_away_is_told_and_then_back(harness: Harness, tmp_path: Path) -> None:
    harness.begin(*DEVICES)
    with Cards(harness.placement, harness.cyborg.url, tmp_path) as cards:
        cards.sync()
        harness.cyborg.stop()
        try:
            told = Published(harness, cards).fails()
        finally:
            harness.cyborg.start_again()
        assert told.startswith("driver fpga: listing the deployables failed: Unable to establish")
        assert not cards.sync().steps
