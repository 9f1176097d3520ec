"""Find the entry points of installed drivers and request filters, without loading them."""

import os
import sys
from functools import lru_cache
from importlib import metadata
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Final

from stevedore import DriverManager

#: Suffixes of the directories with metadata of packages.
_METADATA_SUFFIXES: Final = (".dist-info", ".egg-info")
#: A file's path, inode, modification time and size. They are equal if the file has not changed.
_FileState = tuple[str, int, int, int]


class PluginManager(DriverManager[Any]):
    """Manager of stevedore that also finds plugins that were installed a moment ago."""

    def list_entry_points(self) -> list[EntryPoint]:
        """Return the entry points of the group, without stevedore's cache."""
        return entry_points(group=self.namespace)


def entry_points(group: str) -> list[EntryPoint]:
    """Return the entry points that installed packages have in a group."""
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
