"""The configuration as the agent has validated it.

Processes of driver instances read this copy. So a file that was changed reaches them only after the
agent has validated and taken it.
"""

import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from wharfinger import conf as configuration
from wharfinger.conf import Options
from wharfinger.exceptions import WharfingerError

#: Options that the agent reads once, at its start, by section; None: all of the section.
FIXED: Final[Mapping[str, frozenset[str] | None]] = {
    "DEFAULT": frozenset({"host", "state_path", "service_down_time"}),
    "database": None,
    "agent": frozenset({"isolation", "health_socket", "health_address"}),
    "placement": frozenset({"embedded", "embedded_database"}),
}
#: Options that no instance reads.
_AGENT_ONLY: Final = frozenset({("DEFAULT", "enabled_drivers")})

_Line = tuple[str, str, str]


class Snapshot:
    """Copy of configuration files, in memory. ``conf`` is the configuration of the copy.

    ``files`` are the names of those files. If none is given, and no directory either, the usual
    ones are read. Raises ConfigurationError and ConfigurationFileError.
    """

    def __init__(
        self, files: Sequence[str] | None = None, directories: Sequence[str] | None = None
    ) -> None:
        read = configuration.load(files, directories)  # its errors name the files
        self.files: Final = tuple(read.files)
        text = "\n".join(Path(file).expanduser().read_text() for file in self.files)
        self.descriptor: Final = os.memfd_create("wharfinger-configuration")
        weakref.finalize(self, os.close, self.descriptor)
        Path(self.path).write_text(text)
        self.conf: Final[Options] = configuration.load([self.path])

    @property
    def path(self) -> str:
        """The path of the copy, for this process and for those that inherit the descriptor."""
        return f"/proc/self/fd/{self.descriptor}"

    def changed_instances(self, new: "Snapshot", names: Sequence[str]) -> list[str]:
        """Return those of these instances that another configuration changes."""
        before, after = self._lines(), new._lines()
        instances = self._instances() | new._instances()
        return [
            name
            for name in names
            if _read_by(name, before, instances) != _read_by(name, after, instances)
        ]

    def check_successor(self, new: "Snapshot") -> None:
        """Raise WharfingerError if a running agent cannot use the new configuration."""
        configuration.DefaultSection.read(new.conf).require_instances()
        changed = sorted({f"[{section}] {key}" for section, key, _ in self._fixed() ^ new._fixed()})
        if changed:
            raise WharfingerError(
                reason=f"{', '.join(changed)} changed, which the agent reads only at its start. "
                "Restart the agent to use the new value"
            )

    def _lines(self) -> list[_Line]:
        return [(one.section, one.key, one.value) for one in self.conf.settings()]

    def _instances(self) -> set[str]:
        return {section.lower() for section, key, _value in self._lines() if key == "driver"} | {
            *configuration.DefaultSection.read(self.conf).enabled_drivers
        }

    def _fixed(self) -> set[_Line]:
        return {
            (section, key, value)
            for section, key, value in self._lines()
            if section in FIXED and (FIXED[section] is None or key in (FIXED[section] or ()))
        }


def _read_by(name: str, lines: Sequence[_Line], instances: set[str]) -> list[_Line]:
    """Return the lines that an instance may read: all but those of other instances."""
    return list(_lines_without(lines, instances - {name}))


def _lines_without(lines: Sequence[_Line], others: set[str]) -> Iterator[_Line]:
    for section, key, value in lines:
        if section.lower().partition(":")[0] not in others and (section, key) not in _AGENT_ONLY:
            yield section, key, value
