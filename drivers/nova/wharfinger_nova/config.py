"""Options of a nova driver instance."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from oslo_config import cfg

from wharfinger.conf.option_reading import read_options
from wharfinger.exceptions import ConfigurationError

OPTIONS: Final = (
    cfg.StrOpt(
        "compute_driver",
        help="The compute driver, named as in nova's own compute_driver, such as "
        "ironic.IronicDriver; or the full path of a class that is not in nova.virt, such as "
        "acme_nova.driver.AcmeDriver. Default: compute_driver in the files of nova_config.",
    ),
    cfg.ListOpt(
        "nova_config",
        default=[],
        help="The absolute paths of nova's configuration files, in the order in which nova reads "
        "them. All instances of this driver in one process need the same files. Default: no file, "
        "so that each option of nova has its default.",
    ),
)


@dataclass(frozen=True, slots=True)
class NovaSection:
    """The validated options of a driver instance."""

    name: str
    #: None if nova's configuration names the compute driver.
    compute_driver: str | None
    nova_config: tuple[str, ...]

    @classmethod
    def read(cls, conf: cfg.ConfigOpts, instance: str) -> Self:
        """Read the section of a driver instance. Raises ConfigurationError."""
        values = read_options(conf, instance, OPTIONS)
        files = tuple(values["nova_config"])
        for file in files:
            if not Path(file).is_absolute():
                raise ConfigurationError(
                    section=instance,
                    key="nova_config",
                    value=", ".join(files),
                    problem=f"{file} is a relative path.",
                    remedy="Use absolute paths.",
                )
        named = values["compute_driver"]
        if named is not None and "." not in named:
            raise ConfigurationError(
                section=instance,
                key="compute_driver",
                value=named,
                problem="the value has no dot, but must name a module and a class in the module.",
                remedy="Set MODULE.CLASS, such as ironic.IronicDriver.",
            )
        return cls(instance, named, files)


def list_opts() -> list[tuple[str, Sequence[cfg.Opt]]]:
    """Return the options by section, for oslo-config-generator."""
    return [("<instance with driver = nova>", OPTIONS)]
