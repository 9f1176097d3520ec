"""Find the settings in configuration files, known and unknown."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from oslo_config import cfg

from wharfinger.exceptions import ConfigurationFileError
from wharfinger.masking import MASK, masked

DEFAULT: Final = "DEFAULT"


@dataclass(frozen=True, slots=True)
class Setting:
    """A key and its value, from a configuration file or the environment."""

    file: str
    section: str
    key: str
    value: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Value:
    """The value of an option with its source; secrets are masked."""

    section: str
    key: str
    text: str
    source: str


class Options(cfg.ConfigOpts):
    """A ConfigOpts that knows the settings in its files."""

    def __init__(self) -> None:
        self._by_section: Final[dict[str, list[cfg.Opt]]] = {}
        #: Names of files for messages, if they differ from those of the files that are read.
        self.file_names: Final[dict[str, str]] = {}
        super().__init__()
        self._by_section.clear()  # drop the options that oslo.config has registered

    def register_opt(
        self, opt: cfg.Opt, group: str | cfg.OptGroup | None = None, *args: Any, **kwargs: Any
    ) -> bool:
        """Register an option; return False if it was registered before."""
        is_new: bool = super().register_opt(opt, group, *args, **kwargs)
        name = group.name if isinstance(group, cfg.OptGroup) else group
        if is_new and not kwargs.get("cli"):  # oslo.config registers those for itself
            self._by_section.setdefault(name or DEFAULT, []).append(opt)
        return is_new

    @property
    def files(self) -> list[str]:
        """The configuration files, in the order of reading."""
        directories = [
            sorted(Path(name).expanduser().glob("*.conf")) for name in self.config_dir or ()
        ]
        return [*self.config_file, *(str(file) for files in directories for file in files)]

    def settings(self) -> Iterator[Setting]:
        """Yield the settings in the configuration files."""
        for file in self.files:
            name = self.file_names.get(file, file)
            sections: dict[str, dict[str, list[str]]] = {}
            cfg.ConfigParser(str(Path(file).expanduser()), sections).parse()
            for section, lines in sections.items():
                for key, values in lines.items():
                    yield from (Setting(name, section, key, value) for value in values)

    def setting(self, section: str, opt: cfg.Opt) -> Setting | None:
        """Return the setting that determines an option, or None."""
        names = set(_names(opt))
        variable = f"OS_{section}__{opt.dest}".upper()
        if variable in os.environ:
            return Setting(f"environment: {variable}", section, opt.dest, os.environ[variable])
        found = None
        for setting in self.settings():
            if _is_same_section(setting.section, section) and setting.key in names:
                found = setting
        return found

    def has_others(self, section: str, options: Iterable[cfg.Opt]) -> bool:
        """Return whether other options are set in a section."""
        known = {name for opt in options for name in _names(opt)}
        prefix = f"OS_{section}__".upper()
        variables = {prefix + name.upper() for name in known}
        return any(
            _is_same_section(setting.section, section) and setting.key not in known
            for setting in self.settings()
        ) or any(name.startswith(prefix) and name not in variables for name in os.environ)

    def unknown(self, section: str) -> Iterator[ConfigurationFileError]:
        """Yield an error for each setting of an unknown option in a section."""
        known = {name for opt in self._by_section.get(section, ()) for name in _names(opt)}
        shown = sorted({opt.dest for opt in self._by_section.get(section, ())})
        for setting in self.settings():
            if _is_same_section(setting.section, section) and setting.key not in known:
                close = get_close_matches(setting.key, shown, n=1)
                yield ConfigurationFileError(
                    problem=f"{setting.file}: option {setting.key} of section [{setting.section}] "
                    "is unknown.",
                    remedy=f"Did you mean {close[0]}?"
                    if close
                    else f"Known options: {', '.join(shown)}.",
                )

    def effective(self, section: str) -> Iterator[Value]:
        """Yield the values of the registered options of a section."""
        group = None if section == DEFAULT else section
        for opt in sorted(self._by_section.get(section, ()), key=lambda opt: str(opt.dest)):
            try:
                value = self[opt.dest] if group is None else self[group][opt.dest]
                source = _source(self.get_location(opt.dest, group))
            except (cfg.Error, ValueError):
                setting = self.setting(section, opt)
                value = f"{setting.value if setting else ''} (cannot be used)"
                source = setting.file if setting else ""
            text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            shown = MASK if opt.secret else masked(text)
            yield Value(section, opt.dest, "" if value is None else shown, source)


def _names(opt: cfg.Opt) -> Iterator[str]:
    yield opt.dest
    yield from (old.name for old in opt.deprecated_opts if old.name)


def _is_same_section(section: str, other: str) -> bool:
    # Only the name DEFAULT is case-sensitive.
    return section == other or (section.lower() == other.lower() and other != DEFAULT)


def _source(location: Any) -> str:
    if location is None:
        return ""
    match location.location:
        case cfg.Locations.user:
            return str(location.detail)
        case cfg.Locations.environment:
            return f"environment: {location.detail}"
        case _:
            return "default"
