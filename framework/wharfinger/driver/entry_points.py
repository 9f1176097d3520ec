"""Find the entry points of installed drivers and request filters, without loading them.

The result is cached until a package is installed, changed or removed.
"""

import os
import sys
from functools import lru_cache
from importlib import metadata
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Final

from stevedore import DriverManager

#: Suffixes of the directories with metadata of packages.
_INFORMATION: Final = (".dist-info", ".egg-info")
#: A file's path, inode, modification time and size. They are equal if the file has not changed.
_Seen = tuple[str, int, int, int]


class PluginManager(DriverManager[Any]):
    """Manager of stevedore that also finds plugins that were installed a moment ago."""

    def list_entry_points(self) -> list[EntryPoint]:
        """Return the entry points of the group, without stevedore's cache.

        stevedore's cache compares times at a resolution of 128 seconds, so it may lack a package
        that was installed a moment ago.
        """
        return entry_points(group=self.namespace)


def entry_points(group: str) -> list[EntryPoint]:
    """Return the entry points that installed packages have in a group.

    It reads the metadata of all packages again only if a package was added, removed or changed. To
    check that takes a tenth of the time.
    """
    return list(_read(group, tuple(seen for path in sys.path for seen in _of_path(path))))


@lru_cache(maxsize=16)
def _read(group: str, _seen: tuple[_Seen, ...]) -> tuple[EntryPoint, ...]:
    return tuple(metadata.entry_points(group=group))


def _of_path(path: str) -> list[_Seen]:
    """Return the file states of a directory in ``sys.path`` and of its packages' entry points."""
    try:
        with os.scandir(path or os.curdir) as found:
            packages = sorted(one.path for one in found if one.name.endswith(_INFORMATION))
    except OSError:  # the path does not exist, or is not a directory
        packages = []
    return [_of_file(Path(path)), *(_of_file(Path(one, "entry_points.txt")) for one in packages)]


def _of_file(file: Path) -> _Seen:
    try:
        status = file.stat()
    except OSError:
        return str(file), 0, 0, 0
    return str(file), status.st_ino, status.st_mtime_ns, status.st_size
