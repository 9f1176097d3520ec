"""Distribute tests to xdist's worker processes, and order them.

The tests of a file share their set-up, so one worker runs all of them. The integration tests of a
directory share a real service, which one worker starts once. All packaging tests share the wheels.
"""

from pathlib import PurePosixPath
from typing import Final

import pytest
from xdist.scheduler.loadscope import LoadScopeScheduling

#: The levels with the longest tests first, so that no worker is idle at the end.
_ORDER: Final = ("integration", "packaging", "functional", "unit")


class ByFileOrService(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Lets one worker run all tests of a file, or of a directory of integration tests."""

    def _split_scope(self, nodeid: str) -> str:
        return shared_by(nodeid)


def shared_by(nodeid: str) -> str:
    """Return the file or directory of a test, whose tests all run in one process."""
    path = PurePosixPath(nodeid.partition("::")[0])
    is_shared = "integration" in path.parts[:-2] or "packaging" in path.parts
    return str(path.parent if is_shared else path)


def put_longest_first(items: list[pytest.Item]) -> None:
    """Order the tests by their level, integration tests first. Keep the order within a level."""

    def rank(item: pytest.Item) -> int:
        return next((at for at, name in enumerate(_ORDER) if f"/{name}/" in item.nodeid), -1)

    items.sort(key=rank)
