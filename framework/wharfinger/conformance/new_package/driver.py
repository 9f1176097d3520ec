"""The fleet driver publishes the machines of an inventory service.

The service answers one GET with all machines, as JSON::

    {"machines": [
      {"name": "node-1", "slots": 8, "free_slots": 3, "traits": ["CUSTOM_FAST"], "busy": null},
      {"name": "node-2", "slots": 8, "free_slots": 8, "traits": [], "busy": "repair"}
    ]}
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import requests
from oslo_config import cfg

from wharfinger.driver import Allocations, Capabilities, ComputeDriver, unsupported
from wharfinger.exceptions import BackendError
from wharfinger.objects import Migration
from wharfinger.providers import Inventory, ProviderTree

OPTIONS = [
    cfg.URIOpt("url", required=True, help="URL of the service's list of machines."),
    cfg.FloatOpt(
        "timeout", default=10, min=0.1, help="Seconds to wait for an answer of the service."
    ),
]


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return the options for generated configuration samples."""
    return [("fleet", OPTIONS)]


@dataclass(frozen=True)
class Machine:
    """One machine. ``busy`` is the reason why it cannot be used, or None."""

    name: str
    slots: int
    traits: Sequence[str]
    busy: str | None

    @classmethod
    def read(cls, entry: dict[str, Any]) -> "Machine":
        """Read one machine of the service's answer. Raises KeyError and TypeError."""
        return cls(entry["name"], entry["slots"], entry["traits"], entry["busy"])


class FleetDriver(ComputeDriver):
    """Publishes one provider for each machine, and reserves busy machines."""

    default_owner = "CUSTOM_OWNER_FLEET"
    capabilities = Capabilities(
        nested_providers=unsupported("a machine is one provider"),
        reshape=unsupported("inventory never moves to another provider"),
        change_feed=unsupported("the service lists machines, not changes"),
        programming=unsupported("a machine is not programmable"),
        cleans_after_release=unsupported("the service cleans no machine after its release"),
    )

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        """Read the configuration. Do not connect to the service here."""
        super().__init__(conf, host, name)
        conf.register_opts(OPTIONS, name)
        self._url: str = conf[name].url
        self._timeout: float = conf[name].timeout
        self._machines: dict[str, Machine] = {}

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        """Return the names of all machines; with ``refresh``, ask the service first.

        Never return an incomplete list: the framework removes the machines that the list lacks.
        """
        if refresh:
            self._machines = {machine.name: machine for machine in self._fetch()}
        return [*self._machines]

    def update_provider_tree(
        self,
        provider_tree: ProviderTree,
        nodename: str,
        allocations: Allocations | None = None,
        migrations: Sequence[Migration] | None = None,
    ) -> None:
        """Describe one machine, without a request to the service.

        The total counts all slots: Placement itself subtracts the allocations.
        """
        machine = self._machines[nodename]
        inventory = Inventory(total=machine.slots, max_unit=machine.slots)
        provider_tree.update_inventory(nodename, {"CUSTOM_SLOT": inventory})
        provider_tree.update_traits(nodename, machine.traits)
        if machine.busy is not None:
            provider_tree.reserve(nodename, machine.busy)

    def _fetch(self) -> list[Machine]:
        try:
            answer = requests.get(self._url, timeout=self._timeout)
            answer.raise_for_status()
            return [Machine.read(entry) for entry in answer.json()["machines"]]
        except (requests.RequestException, KeyError, TypeError) as error:
            raise BackendError(
                driver=self.name, operation=f"GET {self._url}", reason=repr(error)
            ) from error
