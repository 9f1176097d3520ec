"""From configuration to a keystoneauth adapter for Placement."""

from keystoneauth1 import exceptions as keystone_exceptions
from keystoneauth1 import loading
from keystoneauth1.adapter import Adapter
from oslo_config import cfg

from wharfinger.conf import PlacementSection
from wharfinger.conf.placement import GROUP
from wharfinger.exceptions import ConfigurationError


def check(conf: cfg.ConfigOpts) -> None:
    """See that an adapter can be made for the configuration; raises ConfigurationError.

    Nothing is started, neither is the embedded Placement.
    """
    if not PlacementSection.read(conf).embedded:
        make_adapter(conf)


def make_adapter(conf: cfg.ConfigOpts) -> Adapter:
    """The adapter for the Placement that the configuration names, embedded or not.

    Nothing is sent yet. Raises ConfigurationError.
    """
    section = PlacementSection.read(conf)
    if section.embedded:
        # The service is an extra: it is imported where it is wanted.
        from wharfinger.placement.embedded import EmbeddedPlacement  # noqa: PLC0415

        return EmbeddedPlacement(section.embedded_database).adapter
    return load_adapter(conf, GROUP)


def load_adapter(conf: cfg.ConfigOpts, section: str) -> Adapter:
    """The adapter for the service that keystoneauth's options in a section lead to.

    Nothing is sent yet. Raises ConfigurationError.
    """
    try:
        auth = loading.load_auth_from_conf_options(conf, section)
        session = loading.load_session_from_conf_options(conf, section, auth=auth)
        adapter: Adapter = loading.load_adapter_from_conf_options(
            conf, section, session=session, auth=auth
        )
    except (keystone_exceptions.ClientException, cfg.Error) as error:
        raise ConfigurationError(
            section=section,
            key="auth_type",
            value=conf[section].auth_type,
            problem=f"{error}.",
            remedy="See keystoneauth's documentation for the options that this type takes.",
        ) from error
    return adapter
