"""Wheels of every distribution in the tree, built as a release would build them."""

import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.packaging import environment
from tests.packaging.distribution import Distribution

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy what git would commit: a build in the tree picks up what earlier ones left."""
    target = tmp_path_factory.mktemp("source")
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in filter(None, listing.stdout.split("\0")):
        if (REPOSITORY / name).is_file():  # listed, but deleted since
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, target / name)
    return target


@pytest.fixture(scope="session")
def distributions(source: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Distribution]:
    """Build a wheel of each distribution."""
    drivers = sorted(path.parent for path in source.glob("drivers/*/setup.cfg"))
    roots = [source, *drivers, source / "harnesses"]
    wheels = tmp_path_factory.mktemp("wheels")
    build_wheels(roots, wheels)
    return [Distribution(root, wheels) for root in roots]


@pytest.fixture(scope="session")
def installed(distributions: list[Distribution], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the bin directory of an environment with the wheels in it."""
    directory = environment.make(tmp_path_factory.mktemp("environment"))
    environment.install(directory, [distribution.wheel for distribution in distributions])
    return directory


def build_wheels(sources: Iterable[Path], wheels: Path) -> None:
    """Build a wheel from each source directory."""
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [*command, "--no-cache-dir", "--wheel-dir", str(wheels), *map(str, sources)],
        check=True,
    )
