"""Fixtures for tests of the Cyborg driver: a clock that stands still, and driver instances."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.lab.accelerators import Cards, Clock
from tests.lab.background import InBackground
from tests.lab.cyborg_harness import Harness, SecondPlacement

Publish = Callable[..., Cards]


@pytest.fixture(scope="package", autouse=True)
def _start_all(second_placement_starting: InBackground[SecondPlacement]) -> None:
    """Start the other services while the first tests run."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock.stopped(monkeypatch)


@pytest.fixture
def publish(harness: Harness, clock: Clock, tmp_path: Path) -> Iterator[Publish]:
    """A function that creates a driver instance for Cyborg's contents since ``begin``."""
    with ExitStack() as stack:

        def publish(url: str | None = None, **options: Any) -> Cards:
            state = tmp_path / uuid4().hex
            cards = Cards(harness.placement, url or harness.url, state, **options)
            return stack.enter_context(cards)

        yield publish
