"""Read and check the configuration."""

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from oslo_config import cfg

from wharfinger.conf import (
    accelerator,
    agent,
    database,
    default,
    driver_instance,
    logging_options,
    placement,
    scheduling,
)
from wharfinger.conf.accelerator import AcceleratorSection
from wharfinger.conf.agent import AgentSection
from wharfinger.conf.database import DatabaseSection
from wharfinger.conf.default import DefaultSection
from wharfinger.conf.driver_instance import InstanceSection
from wharfinger.conf.logging_options import LoggingSection
from wharfinger.conf.placement import PlacementSection
from wharfinger.conf.scheduling import SchedulingSection
from wharfinger.conf.unread_keys import DEFAULT, Options, Value
from wharfinger.exceptions import ConfigurationFileError, WharfingerError
from wharfinger.masking import learn_option

__all__ = [
    "AcceleratorSection",
    "AgentSection",
    "DatabaseSection",
    "DefaultSection",
    "InstanceSection",
    "Options",
    "PlacementSection",
    "SchedulingSection",
    "Value",
    "list_opts",
    "load",
    "parse",
    "problems",
    "register_services",
]

_PROJECT: Final = "wharfinger"
#: The sections with only our options, and the sections that also have options of a service.
OWN: Final = (DEFAULT, database.GROUP, scheduling.GROUP, agent.GROUP)
SERVICES: Final[dict[str, type[PlacementSection | AcceleratorSection]]] = {
    placement.GROUP: PlacementSection,
    accelerator.GROUP: AcceleratorSection,
}
#: The end of oslo.config's message: the line that it could not parse.
_LINE: Final = re.compile(r""": (['"]).*\1\Z""", re.DOTALL)


def load(
    config_files: Sequence[str] | None = None, config_dirs: Sequence[str] | None = None
) -> Options:
    """Read the configuration, and check the framework's sections.

    Without arguments, oslo.config looks for the files. Raises ConfigurationError and
    ConfigurationFileError.
    """
    conf = parse(config_files, config_dirs)
    for problem in problems(conf):
        raise problem
    return conf


def parse(
    config_files: Sequence[str] | None = None, config_dirs: Sequence[str] | None = None
) -> Options:
    """Read the configuration files without checking the values. Raises ConfigurationFileError."""
    conf = Options()
    conf.register_opts(default.OPTIONS)
    conf.register_opts(logging_options.OPTIONS)
    conf.register_opts(database.OPTIONS, database.GROUP)
    conf.register_opts(scheduling.OPTIONS, scheduling.GROUP)
    conf.register_opts(agent.OPTIONS, agent.GROUP)
    placement.register(conf)
    accelerator.register(conf)
    files = config_files
    if files is None:
        files = list(dict.fromkeys(cfg.find_config_files(_PROJECT, _PROJECT)))
    dirs = config_dirs
    if dirs is None:
        dirs = cfg.find_config_dirs(_PROJECT, _PROJECT) if config_files is None else []
    for file in files:
        _check_file(Path(file))
    for directory in dict.fromkeys(dirs):
        if not Path(directory).is_dir():
            raise _unreadable(f"there is no directory {directory}")
        for path in sorted(Path(directory).glob("*.conf")):
            _check_file(path)
    try:
        conf(
            [],
            project=_PROJECT,
            default_config_files=list(files),
            default_config_dirs=list(dict.fromkeys(dirs)),
        )
    except cfg.ConfigFileParseError as error:
        # Do not repeat the line, which may contain a password.
        raise _unreadable(_LINE.sub("", str(error))) from None
    except (cfg.Error, OSError) as error:
        raise _unreadable(str(error)) from error
    for line in conf.settings():
        # Mask secrets in all output, also those of sections whose drivers are not loaded yet.
        learn_option(line.key, line.value)
    for service in (placement, accelerator):
        if conf.has_others(service.GROUP, service.OPTIONS):
            service.register_service(conf)
    return conf


def register_services(conf: Options) -> None:
    """Register keystoneauth's options in the sections of services."""
    for service in (placement, accelerator):
        service.register_service(conf)


def _check_file(path: Path) -> None:
    if path.exists() and not path.is_file():
        raise _unreadable(f"{path} is not a regular file")
    try:
        path.read_text()
    except UnicodeDecodeError as error:
        raise _unreadable(f"{path}: {error}") from error
    except OSError:
        return  # oslo.config reports it


def problems(conf: Options) -> Iterator[WharfingerError]:
    """Yield the errors in the configuration, except in the sections of driver instances."""
    instances: tuple[str, ...] | None = None
    try:
        instances = DefaultSection.read(conf).enabled_drivers
    except WharfingerError as error:
        yield error
    for kind in (LoggingSection, DatabaseSection, SchedulingSection, AgentSection):
        try:
            kind.read(conf)
        except WharfingerError as error:
            yield error
    for section in OWN:
        yield from conf.unknown(section)
    read = list(OWN)
    for group in SERVICES:
        try:
            sections = service_sections(conf, group)
        except WharfingerError as error:
            yield error
            read.append(group)
        else:
            for section in sections:
                if section not in read:  # two services may share their credentials
                    read.append(section)
                    yield from conf.unknown(section)
    # The section of a driver instance may name another section in auth_section.
    read += [one.value for one in conf.settings() if one.key == "auth_section"]
    if instances is not None:
        yield from _unknown_sections(conf, read, instances)


def service_sections(conf: Options, section: str) -> list[str]:
    """Return the sections with a service's options and credentials. Raises ConfigurationError."""
    credentials = SERVICES[section].read(conf).credentials
    return list(dict.fromkeys((section, credentials or section)))


def _unknown_sections(
    conf: Options, sections: Sequence[str], instances: Sequence[str]
) -> Iterator[ConfigurationFileError]:
    disabled = {one.section.lower() for one in conf.settings() if one.key == "driver"}
    read = {one.lower() for one in sections if one != DEFAULT}  # the name DEFAULT is case-sensitive
    for section in conf.list_all_sections():
        instance = section.lower().partition(":")[0]
        if section == DEFAULT or section.lower() in read or instance in {*instances, *disabled}:
            continue
        known = {name.lower(): name for name in (*OWN, *SERVICES, *instances)}
        close = get_close_matches(section.lower(), known, n=1)
        hint = (
            f"Did you mean [{known[close[0]]}]?"
            if close
            else f"Known sections: {', '.join(known.values())}."
        )
        yield ConfigurationFileError(
            problem=f"section [{section}] is unknown.",
            remedy=f"{hint} If this is the section of a driver instance, add the instance to "
            "enabled_drivers; if the instance is to stay disabled, set the option driver in the "
            "section.",
        )


def _unreadable(problem: str) -> ConfigurationFileError:
    return ConfigurationFileError(
        problem=f"{problem}.",
        remedy="Correct the file or directory, or name another one with "
        "--config-file or --config-dir.",
    )


def list_opts() -> list[tuple[str, Sequence[cfg.Opt]]]:
    """Return the options by section, for oslo-config-generator."""
    return [
        (DEFAULT, [*default.OPTIONS, *logging_options.OPTIONS]),
        (database.GROUP, database.OPTIONS),
        (placement.GROUP, placement.sample_options()),
        (scheduling.GROUP, scheduling.OPTIONS),
        (agent.GROUP, agent.OPTIONS),
        (accelerator.GROUP, accelerator.sample_options()),
        ("<instance>", driver_instance.OPTIONS),
    ]
