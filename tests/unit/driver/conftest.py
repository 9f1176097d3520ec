from pathlib import Path

import pytest

from tests.unit.driver.packages import Packages


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Packages:
    """A directory on the import path into which tests install driver packages."""
    return Packages(tmp_path, monkeypatch)
