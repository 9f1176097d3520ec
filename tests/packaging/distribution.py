"""A distribution as its sources declare it, and the wheel built from the sources."""

import re
from configparser import ConfigParser
from functools import cached_property
from pathlib import Path
from zipfile import ZipFile

#: Files that cannot be imported alone: alembic runs env.py, and the interpreter __main__.py. A
#: harness starts _service.py as a program, which imports _hardware.py.
_NOT_MODULES = ("migrations/env.py", "__main__.py", "_service.py", "_hardware.py")

EntryPoints = dict[str, dict[str, str]]


class Distribution:
    """A directory with a setup.cfg, and its wheel in the directory of wheels."""

    def __init__(self, root: Path, wheels: Path) -> None:
        self.setup = _parser()
        self.setup.read(root / "setup.cfg")
        self.package: str = self.setup["metadata"]["name"].replace("-", "_")
        self.package_dir = root / self.setup["options"]["package_dir"].strip(" \n=")
        (self.wheel,) = wheels.glob(f"{self.package}-[0-9]*.whl")

    @cached_property
    def source_files(self) -> set[str]:
        """Return all files of the package in the sources."""
        found = (self.package_dir / self.package).rglob("*")
        return {str(path.relative_to(self.package_dir)) for path in found if path.is_file()}

    @property
    def modules(self) -> list[str]:
        names = (name for name in sorted(self.source_files) if name.endswith(".py"))
        return [
            name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            for name in names
            if not name.endswith(_NOT_MODULES)
        ]

    @property
    def source_entry_points(self) -> EntryPoints:
        """Return the entry points that setup.cfg declares."""
        declared = self.setup["options.entry_points"]
        return {group: _entries(text) for group, text in declared.items()}

    @cached_property
    def wheel_files(self) -> set[str]:
        """Return all files of the package in the wheel, without metadata and operators' files."""
        with ZipFile(self.wheel) as archive:
            names = archive.namelist()
        return {name for name in names if not re.search(r"^[^/]+\.(dist-info|data)/", name)}

    @cached_property
    def wheel_operator_files(self) -> dict[str, bytes]:
        """Return the files that are installed beside the package, by path below the prefix."""
        with ZipFile(self.wheel) as archive:
            found = {name: name.partition(".data/data/") for name in archive.namelist()}
            return {path: archive.read(name) for name, (_, data, path) in found.items() if data}

    @property
    def wheel_entry_points(self) -> EntryPoints:
        """Return the entry points that an installation registers."""
        with ZipFile(self.wheel) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith("/entry_points.txt"))
            parser = _parser()
            parser.read_string(archive.read(name).decode())
        return {group: dict(parser[group]) for group in parser.sections()}


def _parser() -> ConfigParser:
    parser = ConfigParser(delimiters=("=",), interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    return parser


def _entries(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.strip().splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}
