"""A clean environment to install wheels into."""

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterable
from pathlib import Path


def make(directory: Path) -> Path:
    """Make an environment and return its bin directory.

    What its wheels require is what the environment that runs the tests has. Of the
    editable installations there it sees nothing: path files work only where they are.
    """
    venv.create(directory)
    paths = {"base": str(directory), "platbase": str(directory)}
    required = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (Path(sysconfig.get_path("purelib", "venv", paths)) / "requirements.pth").write_text(
        "".join(f"{path}\n" for path in required)
    )
    return directory / "bin"


def install(directory: Path, wheels: Iterable[Path]) -> None:
    """Install wheels into the environment of a bin directory, and nothing else."""
    pip = [sys.executable, "-m", "pip", "--python", str(directory / "python")]
    options = ["--quiet", "--no-deps", "--no-index", "--no-compile"]
    run([*pip, "install", *options, *map(str, wheels)])


def run(command: Iterable[object], code: int = 0, cwd: Path = Path("/")) -> str:
    """Run a command outside the tree; what it compiles is kept. Return what it prints."""
    environment = {**os.environ}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, cwd=cwd, env=environment, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout
