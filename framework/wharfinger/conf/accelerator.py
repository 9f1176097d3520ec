"""Options in [accelerator]: where to read device profiles."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from oslo_config import cfg

from wharfinger.conf.option_reading import read_options, read_path
from wharfinger.exceptions import ConfigurationError

GROUP: Final = "accelerator"
_SERVICE_TYPE: Final = "accelerator"

OPTIONS: Final = (
    cfg.StrOpt(
        "device_profiles",
        help="A JSON file from which device profiles are read, in the format of Cyborg's answer "
        "to GET /v2/device_profiles. Of each profile, only the name and the groups are required. "
        "Default: no file; device profiles are read from Cyborg, with auth_type and the other "
        "options of this section. Do not set both device_profiles and auth_type.",
    ),
)


@dataclass(frozen=True, slots=True)
class AcceleratorSection:
    """The validated options in [accelerator]."""

    #: None for Cyborg.
    device_profiles: Path | None
    #: The name of the section with the credentials for Cyborg, if any.
    credentials: str | None

    @classmethod
    def read(cls, conf: cfg.ConfigOpts) -> Self:
        """Read and check the section. Raises ConfigurationError."""
        values = read_options(conf, GROUP, OPTIONS)
        credentials, auth_type = GROUP, None
        if "auth_type" in conf[GROUP]:
            from wharfinger.conf import keystone  # noqa: PLC0415 - takes long

            credentials, auth_type = keystone.read_credentials(conf, GROUP)
        file = values["device_profiles"]
        if file is not None and auth_type:
            raise ConfigurationError(
                section=GROUP,
                key="device_profiles",
                value=file,
                problem="both device_profiles (a file) and auth_type (Cyborg) are set, but device "
                "profiles have only one source.",
                remedy="Remove device_profiles, or auth_type and auth_section.",
            )
        path = None if file is None else read_path(GROUP, "device_profiles", file)
        return cls(path, credentials if auth_type else None)


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
