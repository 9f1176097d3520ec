"""The kit, to be run."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.conformance.running import Authors, HereAndQuick, Kit
from wharfinger.placement.embedded import EmbeddedPlacement


@pytest.fixture
def kit(
    pytester: pytest.Pytester,
    tmp_path_factory: pytest.TempPathFactory,
    placement_service: EmbeddedPlacement,
    no_waiting: None,
) -> Iterator[Kit]:
    """In an empty directory, with the authors' package installed."""
    with (
        HereAndQuick(placement_service),
        Authors(tmp_path_factory.mktemp("authors")) as authors,
    ):
        yield Kit(pytester, authors)


@pytest.fixture
def processes(pytester: pytest.Pytester, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kit]:
    """The same, for processes of their own."""
    with Authors(tmp_path_factory.mktemp("authors")) as authors:
        yield Kit(pytester, authors)
