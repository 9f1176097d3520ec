"""Configuration: one module per section, each read once into a frozen dataclass.

A private ConfigOpts is made by ``load`` and handed down; there is no global one.
"""

from collections.abc import Sequence
from pathlib import Path

from oslo_config import cfg

from wharfinger.conf import default, instance, placement
from wharfinger.conf.default import DefaultSection
from wharfinger.conf.instance import InstanceSection
from wharfinger.conf.placement import PlacementSection
from wharfinger.exceptions import ConfigurationFileError

__all__ = [
    "DefaultSection",
    "InstanceSection",
    "PlacementSection",
    "list_opts",
    "load",
]


def load(
    config_files: Sequence[str] | None = None, config_dirs: Sequence[str] | None = None
) -> cfg.ConfigOpts:
    """Read the configuration files.

    Without any named, those that oslo.config finds: wharfinger.conf in ~/.wharfinger, ~,
    /etc/wharfinger or /etc, and the directories wharfinger.conf.d beside them. Raises
    ConfigurationFileError.
    """
    conf = cfg.ConfigOpts()
    conf.register_opts(default.OPTIONS)
    placement.register(conf)
    files = None if config_files is None else list(config_files)
    dirs = None if config_dirs is None else list(config_dirs)
    for directory in dirs or ():
        if not Path(directory).is_dir():
            raise _unreadable(f"there is no directory {directory}")
    try:
        conf(
            [],
            project="wharfinger",
            default_config_files=files,
            default_config_dirs=[] if files is not None and dirs is None else dirs,
        )
    except (cfg.Error, OSError) as error:
        raise _unreadable(str(error)) from error
    except UnicodeDecodeError as error:
        named = ", ".join((*(files or ()), *(dirs or ())))
        raise _unreadable(f"{named}: {error}") from error
    return conf


def _unreadable(problem: str) -> ConfigurationFileError:
    return ConfigurationFileError(
        problem=f"{problem}.", remedy="Correct it, or name another with --config-file."
    )


def list_opts() -> list[tuple[str, Sequence[cfg.Opt]]]:
    """The options by section, for oslo-config-generator."""
    return [
        ("DEFAULT", default.OPTIONS),
        (placement.GROUP, placement.sample_options()),
        ("<instance>", instance.OPTIONS),
    ]
