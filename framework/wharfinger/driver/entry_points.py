"""Find installed drivers and request filters by their entry points."""

import os
import sys
from functools import lru_cache
from importlib import metadata
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Final

from stevedore import DriverManager

_METADATA_SUFFIXES: Final = (".dist-info", ".egg-info")
#: A file's path, inode, modification time in ns, and size.
_FileState = tuple[str, int, int, int]


class PluginManager(DriverManager[Any]):
    """A stevedore manager that finds newly installed plugins, too."""

    def list_entry_points(self) -> list[EntryPoint]:
        """Return the entry points of the manager's group."""
        return entry_points(group=self.namespace)


def entry_points(group: str) -> list[EntryPoint]:
    """Return the entry points of a group in all installed packages."""
    return list(_read(group, tuple(seen for path in sys.path for seen in _path_state(path))))


@lru_cache(maxsize=16)
def _read(group: str, _seen: tuple[_FileState, ...]) -> tuple[EntryPoint, ...]:
    return tuple(metadata.entry_points(group=group))


def _path_state(path: str) -> list[_FileState]:
    try:
        with os.scandir(path or os.curdir) as found:
            packages = sorted(one.path for one in found if one.name.endswith(_METADATA_SUFFIXES))
    except OSError:  # the path does not exist, or is not a directory
        packages = []
    return [
        _file_state(Path(path)),
        *(_file_state(Path(one, "entry_points.txt")) for one in packages),
    ]


def _file_state(file: Path) -> _FileState:
    try:
        status = file.stat()
    except OSError:
        return str(file), 0, 0, 0
    return str(file), status.st_ino, status.st_mtime_ns, status.st_size
