"""From configuration to a keystoneauth adapter for Placement."""

from keystoneauth1.adapter import Adapter
from oslo_config import cfg

from wharfinger.conf import PlacementSection
from wharfinger.conf.placement import GROUP


def check(conf: cfg.ConfigOpts) -> None:
    """Check that an adapter can be made for the configuration; raises ConfigurationError.

    Nothing is sent, and the embedded Placement is neither started nor imported.
    """
    if PlacementSection.read(conf).embedded:
        from wharfinger.placement.embedded import check_installed  # noqa: PLC0415

        check_installed()
    else:
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
    from wharfinger.conf import keystone  # noqa: PLC0415 - takes long

    return keystone.load_adapter(conf, GROUP)
