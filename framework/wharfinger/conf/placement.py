"""[placement]: which Placement, and how to reach it.

Besides the options here it takes keystoneauth's: auth_type and what that asks for,
endpoint_override, region_name, cafile, timeout and so on.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from keystoneauth1 import loading
from oslo_config import cfg

from wharfinger.conf.reading import read_path, reading
from wharfinger.exceptions import ConfigurationError

GROUP: Final = "placement"

OPTIONS: Final = (
    cfg.BoolOpt(
        "embedded",
        default=True,
        help="Run the real Placement inside this process, on SQLite: for trying things out, for "
        "tests, and for a single host. False: use the service that the other options of this "
        "section lead to.",
    ),
    cfg.StrOpt(
        "embedded_database",
        default="$state_path/placement.sqlite",
        help="The file that the embedded Placement keeps its data in.",
    ),
    cfg.IntOpt(
        "connections",
        default=8,
        min=1,
        max=10,
        help="How many requests are sent at the same time while trees are published.",
    ),
)


@dataclass(frozen=True, slots=True)
class PlacementSection:
    """[placement], validated, less keystoneauth's own options."""

    embedded: bool
    embedded_database: Path
    connections: int

    @classmethod
    @reading(GROUP)
    def read(cls, conf: cfg.ConfigOpts) -> Self:
        """Read the section; raises ConfigurationError."""
        section = conf[GROUP]
        for key in ("auth_type", "auth_section", "endpoint_override"):
            if section.embedded and (value := section[key]):
                raise ConfigurationError(
                    section=GROUP,
                    key=key,
                    value=value,
                    problem="this leads to a service, but embedded = true.",
                    remedy="Set embedded = false, or remove this option.",
                )
        if not section.embedded and not (section.auth_type or section.auth_section):
            raise ConfigurationError(
                section=GROUP,
                key="auth_type",
                value="",
                problem="embedded = false, but nothing says how to authenticate.",
                remedy="Set auth_type (password, v3applicationcredential, ...) and its options.",
            )
        database = read_path(GROUP, "embedded_database", section.embedded_database)
        return cls(section.embedded, database, section.connections)


def register(conf: cfg.ConfigOpts) -> None:
    """Register the section's options, keystoneauth's too."""
    conf.register_opts(OPTIONS, GROUP)
    loading.register_auth_conf_options(conf, GROUP)
    loading.register_session_conf_options(conf, GROUP)
    loading.register_adapter_conf_options(conf, GROUP)
    conf.set_default("service_type", "placement", GROUP)
    # keystoneauth would wait for ever.
    conf.set_default("timeout", 60, GROUP)


def sample_options() -> list[cfg.Opt]:
    """All options of the section, for the configuration sample."""
    return [
        *OPTIONS,
        *loading.get_auth_common_conf_options(),
        *loading.get_auth_plugin_conf_options("password"),
        *loading.get_session_conf_options(),
        *loading.get_adapter_conf_options(include_deprecated=False),
    ]
