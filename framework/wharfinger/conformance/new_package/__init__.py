"""Write the package of a new driver, from the files of a driver named fleet."""

import re
from collections.abc import Iterator
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from wharfinger.conf.default import is_instance_name
from wharfinger.exceptions import CommandFailed, shown

#: A driver's name that can also be a part of a distribution's name.
_NAME: Final = re.compile(r"[a-z][a-z0-9]*(?:[_-][a-z0-9]+)*")
#: The template of each file in the new package.
_FILES: Final = {
    "README.md": "README.md",
    "pyproject.toml": "pyproject.toml",
    "wharfinger_fleet/__init__.py": None,
    "wharfinger_fleet/driver.py": "driver.py",
    "wharfinger_fleet/harness.py": "harness.py",
}


def check_name(name: str) -> str:
    """Return the name if a new driver can have it. Raises ValueError."""
    if not _NAME.fullmatch(name) or not is_instance_name(name):
        raise ValueError(
            f"{shown(name)} cannot name a driver: use up to 64 lower-case letters and digits, "
            "joined by single - or _, a letter first, and not the name of a section of Wharfinger"
        )
    return name


def write(name: str, directory: Path) -> list[Path]:
    """Write a new driver's package; return the written files. Raises CommandFailed."""
    package = _replace_fleet("wharfinger_fleet", name)
    if find_spec(package) is not None:
        raise CommandFailed(
            reason=f"a Python package {package} is installed already. Choose another name for the "
            f"driver, or uninstall the package: python -m pip uninstall {package.replace('_', '-')}"
        )
    try:
        if directory.exists() and any(directory.iterdir()):
            raise CommandFailed(
                reason=f"{directory} is not empty, and nothing was written. Choose another "
                "directory: --directory DIR"
            )
        return [*_write(name, directory)]
    except OSError as error:
        raise CommandFailed(
            reason=f"the package cannot be written to {directory}: {error.strerror}. Choose "
            "another directory: --directory DIR"
        ) from error


def render(name: str) -> dict[str, str]:
    """Return the text of each file by its path in the new package."""
    templates = files(__name__)
    return {
        _replace_fleet(path, name): _replace_fleet(
            templates.joinpath(source).read_text("utf-8"), name
        )
        if source
        else f'"""The {name} driver of Wharfinger."""\n'
        for path, source in _FILES.items()
    }


def _write(name: str, directory: Path) -> Iterator[Path]:
    for path, text in render(name).items():
        file = directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text)
        yield file


def _replace_fleet(text: str, name: str) -> str:
    module = name.replace("-", "_")
    title = "".join(part.capitalize() for part in module.split("_"))
    for form, replacement in (
        ("wharfinger_fleet", f"wharfinger_{module}"),
        ("FLEET", module.upper()),
        ("Fleet", title),
        ("fleet", name),
    ):
        text = text.replace(form, replacement)
    return text
