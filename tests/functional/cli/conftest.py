"""Fixtures that run the wharfinger program, with a Placement over HTTP or with the embedded one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functional.scheduling.hosts import publish_owners
from tests.lab.cycles import make_state
from tests.lab.objects import KeptInFile
from tests.lab.placement import Requests
from tests.lab.program import Program
from tests.lab.sqlite import StayingOpen
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.placement.embedded import EmbeddedPlacement


@pytest.fixture(scope="module", autouse=True)
def files_stay_open() -> Iterator[None]:
    """Keep SQLite files open between transactions; a program in another process opens them anew."""
    with StayingOpen():
        yield


@pytest.fixture
def program(tmp_path: Path, placement_url: tuple[str, Requests]) -> Program:
    return Program(tmp_path, placement_url[0])


@pytest.fixture
def requests(placement_url: tuple[str, Requests]) -> Requests:
    return placement_url[1]


@pytest.fixture
def kept(program: Program) -> Iterator[KeptInFile]:
    """Access to the objects in the program's state directory."""
    make_state(program.directory)
    with KeptInFile(program.directory) as kept:
        yield kept


@pytest.fixture
def client(placement_url: object, placement_service: EmbeddedPlacement) -> WritingClient:
    """A client that has created the ``publish_owners`` providers; its requests are not counted."""
    client = WritingClient(placement_service.adapter)
    publish_owners(client)
    return client


@pytest.fixture
def hosts(client: WritingClient, program: Program) -> Program:
    """The program, with the providers of ``publish_owners`` in Placement."""
    return program
