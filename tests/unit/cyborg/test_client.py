"""The Cyborg client with wrong answers over real sockets: each wrong answer is an error."""

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from tests.lab.between import edited
from tests.lab.faults import FAULTS, Answer, Fault
from tests.lab.samples import uuid
from tests.lab.stub_service import HTML, Change, StubService, body
from tests.unit.cyborg.samples import HOST, deployable, request
from wharfinger.conf import parse
from wharfinger.exceptions import BackendError, ProgrammingFailed, ProgrammingRefused
from wharfinger_cyborg.accelerators import Accelerators
from wharfinger_cyborg.client import Cyborg
from wharfinger_cyborg.config import CyborgSection

LISTED: Final = [deployable(0), deployable(1)]
IMAGE: Final = uuid("image")
SECRET: Final = "s3cret"
#: The requests of a listing in order, and the operation that an error of each names.
DEPLOYABLES, REQUESTS, HOSTS = range(3)
OPERATIONS: Final = {
    DEPLOYABLES: "listing the deployables",
    REQUESTS: "listing the accelerator requests",
    HOSTS: "listing the devices",
}
LISTING: Final = ("/v2/deployables", "/v2/accelerator_requests", "/v2/devices")
#: The key of the list in the answer to each request.
LISTS: Final = {DEPLOYABLES: "deployables", REQUESTS: "arqs", HOSTS: "devices"}


def refusal(status: int, message: str) -> Answer:
    """Return an error in Cyborg's format: JSON in a text of a JSON document."""
    error = json.dumps({"faultcode": "Client", "faultstring": message})
    return Answer(status, json.dumps({"error_message": error}).encode())


def serve(path: str, query: dict[str, str]) -> tuple[int, Any]:
    """Return Cyborg's answer to this path."""
    if path == "/v2":
        links = [{"rel": "self", "href": path}]
        return 200, {"versions": [{"id": "v2.0", "status": "CURRENT", "links": links}]}
    if path == LISTING[DEPLOYABLES]:
        return 200, {"deployables": msgspec.to_builtins(LISTED)}
    if path == LISTING[REQUESTS]:
        bound = request(1, state="Bound")
        return 200, {"arqs": msgspec.to_builtins([request(), bound])}
    if path == LISTING[HOSTS]:
        return 200, {"devices": [{"hostname": HOST, "id": 1}]}
    its = path.removeprefix("/v2/deployables/").removesuffix("/program")
    for one in LISTED:
        if one.uuid == its:
            return 200, msgspec.to_builtins(one)
    return 404, json.loads(refusal(404, f"Deployable {its} could not be found.").body)


@pytest.fixture
def service() -> Iterator[StubService]:
    with StubService(serve) as service:
        yield service


@pytest.fixture
def cyborg(service: StubService, tmp_path: Path) -> Cyborg:
    url = service.url.replace("http://", f"http://admin:{SECRET}@")
    path = tmp_path / "fpga.conf"
    path.write_text(f"[fpga]\nauth_type = none\nendpoint = {url}/v2\ntimeout = 1\n")
    conf = parse([str(path)])
    return Cyborg.connect(conf, CyborgSection.read(conf, "fpga"))


@pytest.fixture
def accelerators(cyborg: Cyborg) -> Accelerators:
    accelerators = Accelerators(cyborg, "fpga")
    accelerators.refresh()
    return accelerators


def fails(service: StubService, accelerators: Accelerators, at: int) -> str:
    """Return the error of a listing; assert that the snapshot stays and the next one succeeds."""
    before = accelerators.snapshot
    with pytest.raises(BackendError) as caught:
        accelerators.refresh()
    assert (caught.value.driver, caught.value.operation) == ("fpga", OPERATIONS[at])
    assert accelerators.snapshot is before
    told = str(caught.value)
    assert SECRET not in told
    assert len(told) < 1300
    service.expect()
    accelerators.refresh()
    assert accelerators.snapshot == before
    return told


def in_turn(names: Iterable[str]) -> list[tuple[str, int]]:
    """Return cases: each name with one of the requests, in turn."""
    return [*zip(names, cycle(OPERATIONS), strict=False)]


def test_listing_reads_cyborgs_answers(service: StubService, accelerators: Accelerators) -> None:
    assert service.seen[-3:] == [f"GET {path}" for path in LISTING]
    snapshot = accelerators.snapshot
    assert snapshot.hosts == {HOST}
    assert snapshot.deployables == {one.rp_uuid: one for one in LISTED}
    assert snapshot.binding == {uuid("provider 0"): {request().uuid}}


# Answers that the client does not understand.


#: By name, for any request: the change of the answer, and words of the error.
NONSENSE: Final[dict[str, tuple[Change, str]]] = {
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
def test_unreadable_answer_is_an_error(
    service: StubService, accelerators: Accelerators, what: str, at: int
) -> None:
    change, part = NONSENSE[what]
    service.replace(at, change)
    told = fails(service, accelerators, at)
    assert part in told
    assert LISTING[at] in told


def always(answer: Answer) -> Change:
    return lambda _answer: answer


def having(**values: Any) -> Callable[[dict[str, Any]], object]:
    return lambda entry: entry.update(values)


def without(key: str) -> Callable[[dict[str, Any]], object]:
    return lambda entry: entry.pop(key)


#: By name: the change of the first entry of a list, and words of the error.
BAD: Final[dict[str, tuple[int, Callable[[dict[str, Any]], object], str]]] = {
    **{
        f"no {key}": (DEPLOYABLES, without(key), f"missing required field `{key}`")
        for key in ("uuid", "name", "num_accelerators", "device_id", "rp_uuid", "attributes_list")
    },
    "no driver_name": (DEPLOYABLES, without("driver_name"), "`driver_name`"),
    "a number in words": (DEPLOYABLES, having(num_accelerators="2"), "num_accelerators"),
    "half of one": (DEPLOYABLES, having(num_accelerators=1.5), "num_accelerators"),
    "name null": (DEPLOYABLES, having(name=None), "`$.deployables[0].name`"),
    "attributes in JSON": (DEPLOYABLES, having(attributes_list=[]), "attributes_list"),
    "rp_uuid none": (DEPLOYABLES, having(rp_uuid="../x"), "rp_uuid '../x'"),
    "rp_uuid empty": (DEPLOYABLES, having(rp_uuid=""), "rp_uuid ''"),
    "uuid none": (DEPLOYABLES, having(uuid="../x"), "uuid '../x'"),
    "no hostname": (HOSTS, without("hostname"), "missing required field `hostname`"),
    "hostname null": (HOSTS, having(hostname=None), "`$.devices[0].hostname`"),
    "no request uuid": (REQUESTS, without("uuid"), "missing required field `uuid`"),
    "a request's uuid": (REQUESTS, having(uuid=1), "`$.arqs[0].uuid`"),
    "no state": (REQUESTS, without("state"), "missing required field `state`"),
    "state null": (REQUESTS, having(state=None), "`$.arqs[0].state`"),
    "a number for a provider": (REQUESTS, having(device_rp_uuid=7), "device_rp_uuid"),
}


@pytest.mark.parametrize("what", BAD)
def test_invalid_entry_is_an_error(
    service: StubService, accelerators: Accelerators, what: str
) -> None:
    at, change, part = BAD[what]
    service.replace(at, edited(lambda content: change(content[LISTS[at]][0])))
    assert part in fails(service, accelerators, at)


# Errors of Cyborg, proxies and networks; 409 and 429 do not occur for Cyborg's GET.

ERRORS: Final[dict[str, Fault]] = {
    name: FAULTS[name]
    for name in (
        *("refused", "reset", "reset when done", "cut off when done", "lost"),
        *("401", "403", "404", "404 page", "500", "503"),
    )
}
ERRORS["endless"] = Fault("500", "no no no", answer=lambda _: refusal(500, "no " * 100_000))


@pytest.mark.parametrize(("what", "at"), in_turn(ERRORS))
def test_error_names_the_url_and_the_remedy(
    service: StubService, accelerators: Accelerators, what: str, at: int
) -> None:
    service.expect(at, ERRORS[what])
    told = fails(service, accelerators, at)
    assert ERRORS[what].told in told.lower()
    assert service.url.removeprefix("http://") in told
    assert ("credentials in [fpga]" in told) == (what == "401")
    assert ("the admin role" in told) == (what == "403")


# One deployable.


def test_find_with_an_unclear_404_is_an_error(service: StubService, cyborg: Cyborg) -> None:
    missing = uuid("another")
    assert cyborg.find(LISTED[0].uuid) == cyborg.deployable(LISTED[0].uuid) == LISTED[0]
    assert cyborg.find(missing) is None
    for unclear in (
        Answer(404, f"<p>no {missing} here".encode(), "text/html"),
        Answer(404),
        refusal(404, "The resource could not be found."),
        Answer(200, b"{}"),
        Answer(503),
    ):
        service.replace(0, always(unclear))
        with pytest.raises(BackendError, match=f"asking for deployable {missing} failed"):
            cyborg.find(missing)


#: Cyborg's answers to a request to program a device, and the error of each.
PROGRAMMED: Final[dict[str, tuple[Answer, type[Exception]]]] = {
    **{str(status): (refusal(status, "no"), ProgrammingRefused) for status in (400, 403, 404, 409)},
    "408": (refusal(408, "late"), BackendError),
    "no driver": (refusal(500, "Not find the FPGA driver for it"), ProgrammingRefused),
    "the device refused": (refusal(500, "FPGA programming failed"), ProgrammingFailed),
    "500": (refusal(500, "No reply"), BackendError),
    "503": (Answer(503), BackendError),
    "202": (Answer(202, b"{}"), BackendError),
    "nonsense": (Answer(200, b"nonsense"), BackendError),
}


@pytest.mark.parametrize("what", PROGRAMMED)
def test_failed_programming_is_refused_failed_or_unknown(
    service: StubService, cyborg: Cyborg, what: str
) -> None:
    answer, expected = PROGRAMMED[what]
    service.replace(0, lambda _: answer)
    with pytest.raises(expected) as caught:
        cyborg.program(LISTED[0], IMAGE)
    assert type(caught.value) is expected
    assert LISTED[0].name in str(caught.value)
    assert service.struck == 1


def test_programming_sends_the_image_for_one_deployable(
    service: StubService, cyborg: Cyborg
) -> None:
    cyborg.program(LISTED[0], IMAGE)
    assert service.seen[-1:] == [f"PATCH /v2/deployables/{LISTED[0].uuid}/program"]
