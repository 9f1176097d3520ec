"""Fixtures for all tests: the real Placement of this process, and attempts without waits.

The hooks draw the cases of a run and assign tests to worker processes.
"""

# ruff: noqa: PLC0415 - unit tests need no Placement, and are faster without its import

import gc
import os
from collections.abc import Generator, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from tests.lab import drawing

if TYPE_CHECKING:
    from tests.lab.placement import PlacementFixture
    from wharfinger.placement.embedded import EmbeddedPlacement

# Hypothesis sets no deadline, because an example may take long on a busy machine.
settings.register_profile("wharfinger", deadline=None)
settings.load_profile("wharfinger")

# Libraries import eventlet where it is installed. Its resolver is not used here, but takes an
# eighth of the time in which a process starts.
os.environ.setdefault("EVENTLET_NO_GREENDNS", "yes")

# With Python's default thresholds, the search for garbage takes a third of the time in which tests
# are collected, and a tenth of that in which they run.
gc.set_threshold(100_000, 50, 50)


def pytest_addoption(parser: pytest.Parser) -> None:
    drawing.add_options(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    drawing.configure(config)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Send the seed to a worker process of xdist."""
    node.workerinput["seed"] = node.config.option.seed


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let tests that share their set-up run in one worker process."""
    if config.option.dist != "loadfile":
        return None
    from tests.lab import workers

    config.option.loadscopereorder = False
    return workers.ByFileOrService(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    drawing.select(config, items)
    if hasattr(config, "workerinput"):  # a worker process of xdist
        from tests.lab import workers

        workers.put_longest_first(items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        drawing.explain(item, report)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    drawing.report(terminalreporter.config, terminalreporter.write_line)


@pytest.fixture
def draw(request: pytest.FixtureRequest) -> drawing.Draw:
    """Draws some of the cases of a test by the seed of the run."""
    return drawing.Draw(drawing.seed_of(request.config), request.node.nodeid)


@pytest.fixture(scope="session")
def placement_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator["EmbeddedPlacement"]:
    from tests.lab import placement as lab

    with lab.started(tmp_path_factory.mktemp("placement")) as service:
        yield service


@pytest.fixture(scope="session")
def without_sync() -> Iterator[None]:
    from tests.lab.sqlite import WithoutSync

    with WithoutSync():
        yield


@pytest.fixture
def placement(placement_service: "EmbeddedPlacement") -> Iterator["PlacementFixture"]:
    from tests.lab import placement as lab

    with lab.PlacementFixture(placement_service) as fixture:
        yield fixture


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the waits between attempts."""
    monkeypatch.setattr("tenacity.nap.time", SimpleNamespace(sleep=lambda seconds: None))


@pytest.fixture(autouse=True)
def _no_known_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start each test without the secrets that earlier tests of this process have configured."""
    monkeypatch.setattr("wharfinger.masking._known", frozenset())
    monkeypatch.setattr("wharfinger.masking._known_pattern", None)
