"""Options in [placement]: which Placement to use."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from oslo_config import cfg

from wharfinger.conf.option_reading import read_options, read_path
from wharfinger.exceptions import ConfigurationError

GROUP: Final = "placement"
_SERVICE_TYPE: Final = "placement"

OPTIONS: Final = (
    cfg.BoolOpt(
        "embedded",
        default=True,
        help="Run OpenStack Placement inside Wharfinger's own processes, with the SQLite file "
        "embedded_database: for a first try, for tests, and for a single host. False: use the "
        "Placement service that auth_type and the other options of this section configure.",
    ),
    cfg.StrOpt(
        "embedded_database",
        default="$state_path/placement.sqlite",
        help="The SQLite file of the embedded Placement. No effect with embedded = false.",
    ),
    cfg.IntOpt(
        "connections",
        default=8,
        min=1,
        max=10,
        help="The largest number of requests that a cycle of a driver instance sends to Placement "
        "at the same time.",
    ),
)


@dataclass(frozen=True, slots=True)
class PlacementSection:
    """The validated options in [placement]."""

    embedded: bool
    embedded_database: Path
    connections: int
    #: The name of the section with the credentials.
    credentials: str

    @classmethod
    def read(cls, conf: cfg.ConfigOpts) -> Self:
        """Read and check the section. Raises ConfigurationError."""
        values = read_options(conf, GROUP, OPTIONS)
        credentials, auth_type = GROUP, None
        if "auth_type" in conf[GROUP]:
            from wharfinger.conf import keystone  # noqa: PLC0415 - takes long

            values |= read_options(conf, GROUP, keystone.OPTIONS)
            credentials, auth_type = keystone.read_credentials(conf, GROUP)
        for key in ("auth_type", "auth_section", "endpoint_override"):
            if values["embedded"] and (value := values.get(key)):
                raise ConfigurationError(
                    section=GROUP,
                    key=key,
                    value=value,
                    problem="this option is for a Placement service, but embedded = true.",
                    remedy="Set embedded = false to use the service, or remove this option.",
                )
        if not values["embedded"] and not auth_type:
            raise ConfigurationError(
                section=credentials,
                key="auth_type",
                value="",
                problem="embedded = false needs a Placement service, but no auth_type is set.",
                remedy="Set auth_type (password, v3applicationcredential, ...) and the options of "
                "this auth_type; or set embedded = true.",
            )
        database = read_path(GROUP, "embedded_database", values["embedded_database"])
        return cls(values["embedded"], database, values["connections"], credentials)


def register(conf: cfg.ConfigOpts) -> None:
    """Register OPTIONS in the section."""
    conf.register_opts(list(OPTIONS), GROUP)


def register_service(conf: cfg.ConfigOpts) -> None:
    """Register keystoneauth's options in the section."""
    from wharfinger.conf import keystone  # noqa: PLC0415 - takes long

    keystone.register(conf, GROUP, _SERVICE_TYPE)


def sample_options() -> list[cfg.Opt]:
    """Return the options for the configuration sample."""
    from wharfinger.conf import keystone  # noqa: PLC0415 - takes long

    return [*OPTIONS, *keystone.sample_options(_SERVICE_TYPE)]
