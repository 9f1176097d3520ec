"""Real services of nova, and the wharfinger program beside them."""

# ruff: noqa: PLC0415 - other tests here need no packages beyond those that nova requires

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.lab.beside_nova import Wharfinger
    from tests.lab.nova_services import Nova


@pytest.fixture
def nova() -> Iterator["Nova"]:
    """nova's services, with a nova-compute of one host."""
    for name in ("nova", "oslotest"):  # nova does not install the packages that its tests require
        pytest.importorskip(name, reason="only the tox environment nova has nova and its tests")
    from tests.lab.beside_nova import HOST
    from tests.lab.nova_services import Nova

    with Nova() as nova:
        nova.start_compute(HOST)
        yield nova


@pytest.fixture
def cards(nova: "Nova") -> Iterator["Wharfinger"]:
    """The program, which has published two cards below nova's root."""
    from tests.lab.beside_nova import Wharfinger

    with Wharfinger(nova.url) as program:
        program.sync()
        yield program


@pytest.fixture
def gpus(nova: "Nova") -> Iterator["Wharfinger"]:
    """The program, which has published two GPUs of the class VGPU below nova's root."""
    from tests.lab.beside_nova import Wharfinger

    with Wharfinger(nova.url, "gpus") as program:
        program.sync()
        yield program
