"""Base class of all commands, and JSON cells of tables."""

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cliff.columns import FormattableColumn
from cliff.command import Command

from wharfinger.cli.app import WharfingerApp

if TYPE_CHECKING:
    from wharfinger.conf import Options
    from wharfinger.placement.client import PlacementClient


class Json(FormattableColumn[Any]):
    """A value that a table shows as JSON."""

    def human_readable(self) -> str:
        return json.dumps(self._value, indent=2)


class WharfingerCommand(Command):
    """Base class of commands, with the configuration and a Placement client."""

    app: WharfingerApp

    def get_epilog(self) -> str:
        # cliff would name the distribution here, for which it reads the metadata of all
        # distributions.
        return self._epilog or ""

    @property
    def conf(self) -> "Options":
        """The configuration. Raises ConfigurationError and ConfigurationFileError."""
        return self.app.conf

    @cached_property
    def placement(self) -> "PlacementClient":
        """The Placement client. Raises ConfigurationError."""
        from wharfinger.conf import PlacementSection
        from wharfinger.placement.client import PlacementClient
        from wharfinger.placement.session import make_adapter

        section = PlacementSection.read(self.conf)
        return PlacementClient(make_adapter(self.conf), section.connections)
