"""Machines that an inventory service lists over HTTP; each is a node with one user at a time."""

import json
from collections.abc import Sequence
from typing import Any
from urllib.request import urlopen

from oslo_config import cfg

from wharfinger.driver import Allocations, Capabilities, ComputeDriver, unsupported
from wharfinger.exceptions import BackendError
from wharfinger.objects import Migration
from wharfinger.providers import Inventory, ProviderTree

OPTIONS = [
    cfg.URIOpt("url", required=True, help="Where the machines are listed, as JSON."),
    cfg.FloatOpt("timeout", default=10, help="Seconds to wait for the list."),
]


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """For generated samples of the configuration."""
    return [("machines", OPTIONS)]


class MachinesDriver(ComputeDriver):
    default_owner = "CUSTOM_OWNER_MACHINES"
    capabilities = Capabilities(
        nested_providers=unsupported("a machine is one provider"),
        reshape=unsupported("there is nothing that inventory could move to"),
        change_feed=unsupported("the service says what there is, and not what has changed"),
        programming=unsupported("there is nothing to program"),
        cleans_after_release=unsupported("machines are cleaned by those who use them"),
    )

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        conf.register_opts(OPTIONS, name)
        self._url: str = conf[name].url
        self._timeout: float = conf[name].timeout
        self._machines: dict[str, dict[str, Any]] = {}

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        if refresh:
            try:
                with urlopen(self._url, timeout=self._timeout) as answer:
                    self._machines = json.load(answer)
            except (OSError, ValueError) as error:
                raise BackendError(
                    driver=self.name, operation=f"GET {self._url}", reason=str(error)
                ) from error
        return [*self._machines]

    def update_provider_tree(
        self,
        provider_tree: ProviderTree,
        nodename: str,
        allocations: Allocations | None = None,
        migrations: Sequence[Migration] | None = None,
    ) -> None:
        machine = self._machines[nodename]
        provider_tree.update_inventory(nodename, {"CUSTOM_MACHINE": Inventory(total=1, max_unit=1)})
        provider_tree.update_traits(nodename, machine.get("traits", []))
        if reason := machine.get("busy"):
            provider_tree.reserve(nodename, reason)
