"""Accelerator cards of one host, below the root provider that nova-compute publishes."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oslo_config import cfg

from wharfinger.driver import SUPPORTED, Allocations, Capabilities, ComputeDriver, unsupported
from wharfinger.exceptions import BackendError
from wharfinger.objects import Migration
from wharfinger.providers import Inventory, ProviderTree, PublishingMode

OPTIONS = [cfg.StrOpt("file", default="/etc/wharfinger/cards.json", help="What lists the cards.")]


class CardsDriver(ComputeDriver):
    """One node, this host; one child provider for each card."""

    default_owner = "OWNER_NOVA"
    capabilities = Capabilities(
        nested_providers=SUPPORTED,
        reshape=unsupported("inventory never moves from one card to another"),
        change_feed=SUPPORTED,
        programming=unsupported("another program loads the images"),
        cleans_after_release=unsupported("a card keeps no data of its last user"),
    )

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        conf.register_opts(OPTIONS, name)
        self._file = Path(conf[name].file)
        self._cards: dict[str, dict[str, Any]] = {}

    def _read(self) -> None:
        try:
            self._cards = json.loads(self._file.read_text())
        except (OSError, ValueError) as error:
            raise BackendError(
                driver=self.name, operation=f"reading {self._file}", reason=str(error)
            ) from error

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        if refresh:
            self._read()
        return [self.host]

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        mark = str(self._file.stat().st_mtime_ns)
        if since in (None, mark):
            return set(), mark
        self._read()
        return {self.host}, mark

    def update_provider_tree(
        self,
        provider_tree: ProviderTree,
        nodename: str,
        allocations: Allocations | None = None,
        migrations: Sequence[Migration] | None = None,
    ) -> None:
        provider_tree.set_publishing_mode(nodename, PublishingMode.OVERLAY)
        for slot, card in self._cards.items():
            name = f"{nodename}_card_{slot}"
            if not provider_tree.exists(name):
                provider_tree.new_child(name, nodename)
            units = card["units"]
            inventory = Inventory(total=units, max_unit=units)
            provider_tree.update_inventory(name, {"CUSTOM_CARD_UNIT": inventory})
            provider_tree.update_traits(name, card.get("traits", []))
            if card.get("programming"):
                provider_tree.reserve(name, "programming")
        provider_tree.remove_unreported_children(nodename)
