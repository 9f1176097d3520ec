"""What is installed, by the group of its entry points: as it is now, and quickly when asked again.

Drivers and request filters are found here; what is done with them may not come in.
"""

import os
import sys
from functools import lru_cache
from importlib import metadata
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Final

from stevedore import DriverManager

#: How the directories that describe installed packages end.
_INFORMATION: Final = (".dist-info", ".egg-info")
#: A file's path, and what tells it from one that was there before: inode, time, size.
_Seen = tuple[str, int, int, int]


class PluginManager(DriverManager[Any]):
    """stevedore's, of a plugin in any group that was installed a moment ago, too."""

    def list_entry_points(self) -> list[EntryPoint]:
        """As they are now.

        stevedore's own list comes from files that know times to 128 seconds: a package that was
        installed a moment ago might not be on it.
        """
        return entry_points(group=self.namespace)


def entry_points(group: str) -> list[EntryPoint]:
    """Those of a group, as they are now.

    All metadata are read again when a package has come, gone or changed since they last were;
    to see that nothing has takes a tenth of the time.
    """
    return list(_read(group, tuple(seen for path in sys.path for seen in _of_path(path))))


@lru_cache(maxsize=16)
def _read(group: str, _seen: tuple[_Seen, ...]) -> tuple[EntryPoint, ...]:
    return tuple(metadata.entry_points(group=group))


def _of_path(path: str) -> list[_Seen]:
    """An entry of ``sys.path``, and the entry points of each package that is in it."""
    try:
        with os.scandir(path or os.curdir) as found:
            packages = sorted(one.path for one in found if one.name.endswith(_INFORMATION))
    except OSError:  # it is not there, or no directory
        packages = []
    return [_of_file(Path(path)), *(_of_file(Path(one, "entry_points.txt")) for one in packages)]


def _of_file(file: Path) -> _Seen:
    try:
        status = file.stat()
    except OSError:
        return str(file), 0, 0, 0
    return str(file), status.st_ino, status.st_mtime_ns, status.st_size
