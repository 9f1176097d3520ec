"""The machines of a rack, as a JSON file describes them."""

import json
from pathlib import Path

from oslo_config import cfg

from wharfinger.driver import Capabilities, ComputeDriver, unsupported
from wharfinger.providers import Inventory

NO = unsupported("the file lists whole machines, and nothing else")


class RackDriver(ComputeDriver):
    default_owner = "CUSTOM_OWNER_LAB"
    capabilities = Capabilities(
        nested_providers=NO, reshape=NO, change_feed=NO, programming=NO, cleans_after_release=NO
    )

    def __init__(self, conf, host, name):
        super().__init__(conf, host, name)
        conf.register_opts([cfg.StrOpt("file", default="/etc/wharfinger/rack.json")], name)

    def get_available_nodes(self, refresh=False):
        if refresh:
            self._machines = json.loads(Path(self.conf[self.name].file).read_text())
        return list(self._machines)

    def get_inventory(self, nodename):
        return {self._machines[nodename]["class"]: Inventory(total=1, max_unit=1)}

    def update_provider_tree(self, provider_tree, nodename, allocations=None, migrations=None):
        super().update_provider_tree(provider_tree, nodename, allocations, migrations)
        if reason := self._machines[nodename].get("busy"):
            provider_tree.reserve(nodename, reason)
