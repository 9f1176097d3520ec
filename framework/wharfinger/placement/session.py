"""Configuration check and keystoneauth adapter for Placement."""

from keystoneauth1.adapter import Adapter
from oslo_config import cfg

from wharfinger.conf import PlacementSection
from wharfinger.conf.placement import GROUP


def check(conf: cfg.ConfigOpts) -> None:
    """Raise ConfigurationError for a fault in [placement] that shows without a request."""
    if PlacementSection.read(conf).embedded:
        from wharfinger.placement.embedded import check_installed  # noqa: PLC0415

        check_installed()
    else:
        make_adapter(conf)


def make_adapter(conf: cfg.ConfigOpts) -> Adapter:
    """Return the adapter for the configured Placement; start Placement if it is embedded.

    Raises ConfigurationError and StateError.
    """
    section = PlacementSection.read(conf)
    if section.embedded:
        # Only the extra "embedded" installs what this import needs.
        from wharfinger.placement.embedded import EmbeddedPlacement  # noqa: PLC0415

        return EmbeddedPlacement(section.embedded_database).adapter
    from wharfinger.conf import keystone  # noqa: PLC0415 - takes long

    return keystone.load_adapter(conf, GROUP)
