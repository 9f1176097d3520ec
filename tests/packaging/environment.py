"""A virtual environment into which tests install wheels."""

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterable
from pathlib import Path


def make(directory: Path) -> Path:
    """Create an environment; return its bin directory.

    It uses the requirements in the environment that runs the tests, but not the editable
    installations there, whose path files work only in their own directory.
    """
    venv.create(directory)
    paths = {"base": str(directory), "platbase": str(directory)}
    (Path(sysconfig.get_path("purelib", "venv", paths)) / "requirements.pth").write_text(
        "".join(f"{path}\n" for path in requirements())
    )
    return directory / "bin"


def requirements() -> list[str]:
    """Return the directories of the packages in the environment that runs the tests."""
    return [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]


def install(directory: Path, wheels: Iterable[Path]) -> None:
    """Install only these wheels into the environment of the bin directory."""
    pip = [sys.executable, "-m", "pip", "--python", str(directory / "python")]
    options = ["--quiet", "--no-deps", "--no-index", "--no-compile"]
    run([*pip, "install", *options, *map(str, wheels)])


def run(command: Iterable[object], code: int = 0, cwd: Path = Path("/")) -> str:
    """Run a command in another directory, with bytecode files; return its output."""
    environment = {**os.environ}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, cwd=cwd, env=environment, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout
