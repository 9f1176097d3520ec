"""[placement]: which Placement, and how to reach it.

Besides the options here it takes keystoneauth's: auth_type and what that asks for,
endpoint_override, region_name, cafile, timeout and so on.
"""

from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final, Self

from keystoneauth1 import loading
from keystoneauth1.exceptions import NoMatchingPlugin
from oslo_config import cfg

from wharfinger.conf.reading import read_options, read_path
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

_AUTH_OPTIONS: Final[tuple[cfg.Opt, ...]] = tuple(loading.get_auth_common_conf_options())
_KEYSTONE_OPTIONS: Final[tuple[cfg.Opt, ...]] = (
    *_AUTH_OPTIONS,
    *loading.get_session_conf_options(),
    *loading.get_adapter_conf_options(include_deprecated=False),
)


@dataclass(frozen=True, slots=True)
class PlacementSection:
    """[placement], validated, less keystoneauth's own options.

    ``credentials`` is the section that says how to authenticate: this one, or what
    auth_section names.
    """

    embedded: bool
    embedded_database: Path
    connections: int
    credentials: str

    @classmethod
    def read(cls, conf: cfg.ConfigOpts) -> Self:
        """Read the section; raises ConfigurationError."""
        values = read_options(conf, GROUP, [*OPTIONS, *_KEYSTONE_OPTIONS])
        credentials = values["auth_section"] or GROUP
        auth_type = read_options(conf, credentials, _AUTH_OPTIONS)["auth_type"]
        if auth_type:
            read_options(conf, credentials, _plugin_options(credentials, auth_type))
        for key in ("auth_type", "auth_section", "endpoint_override"):
            if values["embedded"] and (value := values[key]):
                raise ConfigurationError(
                    section=GROUP,
                    key=key,
                    value=value,
                    problem="this leads to a service, but embedded = true.",
                    remedy="Set embedded = false, or remove this option.",
                )
        if not values["embedded"] and not auth_type:
            raise ConfigurationError(
                section=credentials,
                key="auth_type",
                value="",
                problem="embedded = false, but nothing says how to authenticate.",
                remedy="Set auth_type (password, v3applicationcredential, ...) and its options.",
            )
        database = read_path(GROUP, "embedded_database", values["embedded_database"])
        return cls(values["embedded"], database, values["connections"], credentials)


def register(conf: cfg.ConfigOpts) -> None:
    """Register the section's options, keystoneauth's too."""
    conf.register_opts([*OPTIONS, *_KEYSTONE_OPTIONS], GROUP)
    conf.set_default("service_type", "placement", GROUP)
    # keystoneauth would wait for ever.
    conf.set_default("timeout", 60, GROUP)


def sample_options() -> list[cfg.Opt]:
    """All options of the section, for the configuration sample."""
    return [*OPTIONS, *_KEYSTONE_OPTIONS, *loading.get_auth_plugin_conf_options("password")]


def _plugin_options(section: str, kind: str) -> list[cfg.Opt]:
    """What a way to authenticate takes; raises ConfigurationError."""
    known = entry_points(group=loading.PLUGIN_NAMESPACE).names
    try:
        if kind not in known:
            raise NoMatchingPlugin(kind)
        options: list[cfg.Opt] = loading.get_auth_plugin_conf_options(kind)
    except NoMatchingPlugin as error:
        raise ConfigurationError(
            section=section,
            key="auth_type",
            value=kind,
            problem="keystoneauth has no such way to authenticate, or cannot load it.",
            remedy=f"There are {', '.join(sorted(known))}.",
        ) from error
    return options
