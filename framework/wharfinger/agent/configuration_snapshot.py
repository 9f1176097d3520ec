"""Copies of the configuration files, which show what a reload changes."""

import os
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from wharfinger import conf as configuration
from wharfinger.conf import Options, agent, database, placement
from wharfinger.conf.unread_keys import DEFAULT
from wharfinger.exceptions import ConfigurationFileError, ConfigurationRefused

#: Options that the agent reads only when it starts, by section.
FIXED: Final[Mapping[str, Sequence[str]]] = {
    DEFAULT: ("host", "state_path", "service_down_time"),
    database.GROUP: tuple(option.dest for option in database.OPTIONS),
    agent.GROUP: ("isolation", "health_socket", "health_address"),
    placement.GROUP: ("embedded", "embedded_database"),
}
#: Options whose change does not affect driver instances.
_AGENT_ONLY: Final = frozenset(
    {
        (DEFAULT, "enabled_drivers"),
        # Their text may differ although their values are the same.
        *((section, key) for section, keys in FIXED.items() for key in keys),
    }
)

#: Values of options in the files, by section and option.
_Values = dict[tuple[str, str], list[str]]


class Snapshot:
    """Copy of the configuration files in memory.

    Raises ConfigurationError and ConfigurationFileError.
    """

    def __init__(
        self, files: Sequence[str] | None = None, directories: Sequence[str] | None = None
    ) -> None:
        read = configuration.load(files, directories)  # its errors name the files
        self.files: Final = tuple(read.files)
        #: For messages.
        self.name: Final = " or ".join(self.files)
        try:
            text = "\n".join(Path(file).expanduser().read_text() for file in self.files)
            self.descriptor: Final = os.memfd_create("wharfinger-configuration")
            weakref.finalize(self, os.close, self.descriptor)
            Path(self.path).write_text(text)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationFileError(
                problem=f"the agent cannot copy {self.name} into memory: {error}.",
                remedy="Remove the cause, and start or reload the agent again.",
            ) from error
        self.conf: Final[Options] = configuration.load([self.path])
        self.conf.file_names[self.path] = self.name

    @property
    def path(self) -> str:
        """Return the path of the copy, for processes that have its descriptor."""
        return f"/proc/self/fd/{self.descriptor}"

    def changed_instances(self, new: "Snapshot", names: Sequence[str]) -> list[str]:
        """Return the driver instances among ``names`` for which own or shared options change."""
        instances = self._instance_names() | new._instance_names()
        return [
            name
            for name in names
            if self._values_for(name, instances) != new._values_for(name, instances)
        ]

    def check_successor(self, new: "Snapshot") -> None:
        """Raise WharfingerError if a running agent cannot change to configuration ``new``."""
        configuration.DefaultSection.read(new.conf).require_instances()
        before, after = self._fixed(), new._fixed()
        changed = [name for name in before if before[name] != after[name]]
        if changed:
            raise ConfigurationRefused(
                reason=f"the values of {', '.join(changed)} have changed, but the agent reads "
                "these options only at its start. Restart the agent"
            )

    def _instance_names(self) -> set[str]:
        return {
            *(one.section.lower() for one in self.conf.settings() if one.key == "driver"),
            *configuration.DefaultSection.read(self.conf).enabled_drivers,
        }

    def _values_for(self, name: str, instances: set[str]) -> _Values:
        values: _Values = {}
        for one in self.conf.settings():
            section = one.section if one.section == DEFAULT else one.section.lower()
            is_others = section.partition(":")[0] in instances - {name}
            if not is_others and (section, one.key) not in _AGENT_ONLY:
                values.setdefault((section, one.key), []).append(one.value)
        return values

    def _fixed(self) -> dict[str, object]:
        return {
            f"[{section}] {key}": (self.conf if section == DEFAULT else self.conf[section])[key]
            for section, keys in FIXED.items()
            for key in keys
        }
