"""Wheels of all distributions, and of another author's driver, in one environment."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging import authors, environment
from tests.packaging.distribution import Distribution

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the files that git would commit, because a build would reuse files of earlier builds."""
    target = tmp_path_factory.mktemp("source")
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in filter(None, listing.stdout.split("\0")):
        if (REPOSITORY / name).is_file():  # git also lists deleted files
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, target / name)
    return target


@pytest.fixture(scope="session")
def wheels(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build all wheels; return their directory."""
    theirs = authors.write(tmp_path_factory.mktemp("authors") / authors.NAME)
    wheels = tmp_path_factory.mktemp("wheels")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [
            *command,
            "--no-cache-dir",
            "--wheel-dir",
            str(wheels),
            *map(str, [*_roots(source), theirs]),
        ],
        check=True,
    )
    return wheels


@pytest.fixture(scope="session")
def distributions(source: Path, wheels: Path) -> list[Distribution]:
    """Return the distributions of the repository."""
    return [Distribution(root, wheels) for root in _roots(source)]


@pytest.fixture(scope="session")
def installed(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheels into an environment; return its bin directory."""
    directory = environment.make(tmp_path_factory.mktemp("environment"))
    environment.install(directory, wheels.glob("*.whl"))
    return directory


def _roots(source: Path) -> list[Path]:
    drivers = sorted(path.parent for path in source.glob("drivers/*/setup.cfg"))
    return [source, *drivers, source / "harnesses"]
