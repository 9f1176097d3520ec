"""Fixtures for tests that program devices of the shared Cyborg."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.lab.cyborg_harness import Harness
from tests.lab.programming import Programming
from wharfinger_harnesses.cyborg import Part

Begin = Callable[..., Programming]


@pytest.fixture
def begin(harness: Harness) -> Iterator[Begin]:
    """A function that resets Cyborg to these devices, without jobs."""
    with ExitStack() as stack:

        def begin(*devices: Part, **how: Any) -> Programming:
            return stack.enter_context(Programming(harness, *devices, **how))

        yield begin
