"""The keystoneauth adapter for Placement, from the configuration."""

from keystoneauth1.adapter import Adapter
from oslo_config import cfg

from wharfinger.conf import PlacementSection
from wharfinger.conf.placement import GROUP


def check(conf: cfg.ConfigOpts) -> None:
    """Raise ConfigurationError if the configuration leads to no adapter.

    It sends nothing, and neither starts nor imports the embedded Placement.
    """
    if PlacementSection.read(conf).embedded:
        from wharfinger.placement.embedded import check_installed  # noqa: PLC0415

        check_installed()
    else:
        make_adapter(conf)


def make_adapter(conf: cfg.ConfigOpts) -> Adapter:
    """Return the adapter for the Placement of the configuration; raises ConfigurationError."""
    section = PlacementSection.read(conf)
    if section.embedded:
        # The embedded service is an extra.
        from wharfinger.placement.embedded import EmbeddedPlacement  # noqa: PLC0415

        return EmbeddedPlacement(section.embedded_database).adapter
    from wharfinger.conf import keystone  # noqa: PLC0415 - takes long

    return keystone.load_adapter(conf, GROUP)
