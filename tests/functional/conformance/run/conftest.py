"""Fixtures that run the whole conformance kit."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.conformance.running import Authors, HereAndQuick, Kit, Processes
from wharfinger.placement.embedded import EmbeddedPlacement


@pytest.fixture
def kit(
    pytester: pytest.Pytester,
    tmp_path_factory: pytest.TempPathFactory,
    placement_service: EmbeddedPlacement,
    no_waiting: None,
) -> Iterator[Kit]:
    """The kit in an empty directory, with a package of test drivers installed."""
    with (
        HereAndQuick(placement_service),
        Authors(tmp_path_factory.mktemp("authors")) as authors,
    ):
        yield Kit(pytester, authors)


@pytest.fixture
def processes(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """The kit for runs in other processes, with a package of test drivers installed."""
    with Authors(tmp_path_factory.mktemp("authors")) as authors:
        yield Processes(tmp_path, authors)


@pytest.fixture
def authors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Authors]:
    """An installed package of test drivers, for rules that start processes."""
    directory = tmp_path_factory.mktemp("authors")
    with Authors(directory) as authors, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", authors.environment["PYTHONPATH"])
        patch.syspath_prepend(str(Path(__file__).parents[4]))
        yield authors
