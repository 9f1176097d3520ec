"""Options of a Cyborg driver instance."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from oslo_config import cfg

from wharfinger.conf import keystone
from wharfinger.conf.option_reading import read_options
from wharfinger.exceptions import ConfigurationError
from wharfinger.providers import PublishingMode

_SERVICE_TYPE: Final = "accelerator"

OPTIONS: Final = (
    cfg.StrOpt(
        "publish",
        default=str(PublishingMode.OVERLAY),
        choices=[
            (
                "overlay",
                "Cyborg's conductor does. The driver adds the owner trait, "
                "reservations and the trait of the function that a device was programmed with.",
            ),
            ("own", "The driver does. Use it only if no other program publishes them."),
        ],
        help="Which program creates and removes the providers of the accelerators: Cyborg's "
        "conductor (overlay) or this driver (own).",
    ),
    cfg.IntOpt(
        "program_timeout",
        default=900,
        min=1,
        help="Seconds that Cyborg may take to program a device. After that, the result counts as "
        "unknown, and the device stays reserved. Also set Cyborg's own rpc_response_timeout longer "
        "than programming takes; otherwise Cyborg gives up sooner.",
    ),
)


@dataclass(frozen=True, slots=True)
class CyborgSection:
    """The validated options of a driver instance, without those of keystoneauth."""

    name: str
    publish: PublishingMode
    #: In seconds.
    program_timeout: int
    #: The name of the section with the credentials.
    credentials: str

    @classmethod
    def read(cls, conf: cfg.ConfigOpts, instance: str) -> Self:
        """Read the section of a driver instance. Raises ConfigurationError."""
        keystone.register(conf, instance, _SERVICE_TYPE)
        values = read_options(conf, instance, OPTIONS)
        credentials, auth_type = keystone.read_credentials(conf, instance)
        if not auth_type:
            raise ConfigurationError(
                section=credentials,
                key="auth_type",
                value="",
                problem="no authentication for Cyborg is configured.",
                remedy="Set auth_type (password, v3applicationcredential, ...) and its options; "
                "for a Cyborg without Keystone, set auth_type = none and endpoint.",
            )
        return cls(
            instance, PublishingMode(values["publish"]), values["program_timeout"], credentials
        )


def list_opts() -> list[tuple[str, Sequence[cfg.Opt]]]:
    """Return the options by section, for oslo-config-generator."""
    section = "<instance with driver = cyborg>"
    return [(section, [*OPTIONS, *keystone.sample_options(_SERVICE_TYPE)])]
