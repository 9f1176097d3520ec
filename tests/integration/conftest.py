"""What integration tests need of this process."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def _without_sync(without_sync: None) -> None:
    """In all of these."""
