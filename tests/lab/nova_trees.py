"""Compare Wharfinger's nova driver with nova, for each compute driver of ``nova.virt.fake``.

The program prints, as JSON by the name of the compute driver, the tree that it describes in nova's
ProviderTree, and the tree that the nova driver describes with it. It also prints whether nova has
patched sockets, threads or imports in this process.
"""

import json
import socket
import sys
import threading
from inspect import isclass
from pathlib import Path
from typing import Any

from tests.lab.nova_program import HOST
from wharfinger.conf import parse
from wharfinger.objects import Service
from wharfinger.providers import Provider, ProviderTree
from wharfinger_nova.driver import NovaDriver

ROOT = "8c9e0d3a-5a6f-4a86-9a39-0c1d4a1f7a10"


def compare(directory: Path) -> dict[str, Any]:
    """Return both trees of each compute driver, and whether the process was patched."""
    (directory / "nova.conf").write_text(f"[DEFAULT]\nstate_path = {directory}\n")
    before = (socket.socket, threading.Thread, sys.meta_path[:])
    # nova is imported by the first of these drivers, which configures it.
    found = {"FakeDriver": _compare(directory, "FakeDriver")}
    from nova.virt import driver, fake  # noqa: PLC0415

    kinds = [kind for kind in vars(fake).values() if isclass(kind)]
    for kind in kinds:
        if issubclass(kind, driver.ComputeDriver) and kind.__module__ == fake.__name__:
            found[kind.__name__] = _compare(directory, kind.__name__)
    return {
        "trees": found,
        "patched": before != (socket.socket, threading.Thread, sys.meta_path[:]),
    }


def _compare(directory: Path, name: str) -> dict[str, Any]:
    config = directory / "wharfinger.conf"
    config.write_text(
        f"[it]\ncompute_driver = fake.{name}\nnova_config = {directory / 'nova.conf'}\n"
    )
    ours = NovaDriver(parse([str(config)], []), HOST, "it")
    ours.init_host(Service(host=HOST))
    (node,) = ours.get_available_nodes(refresh=True)
    tree = ProviderTree.from_providers([Provider(uuid=ROOT, name=node, root_uuid=ROOT)])
    ours.update_provider_tree(tree, node)
    return {"ours": _dump(tree), "nova": _dump(_nova_tree(name, node))}


def _nova_tree(name: str, node: str) -> Any:
    """Return nova's tree as the compute driver edits it, without code of Wharfinger."""
    from nova.compute import provider_tree  # noqa: PLC0415
    from nova.virt import fake, virtapi  # noqa: PLC0415

    driver = getattr(fake, name)(virtapi.VirtAPI())
    driver.init_host(HOST)
    tree = provider_tree.ProviderTree()
    tree.new_root(node, ROOT)
    driver.update_provider_tree(tree, node)
    return tree


def _dump(tree: Any) -> dict[str, Any]:
    found = {}
    for uuid in tree.get_provider_uuids():
        data = tree.data(uuid)
        parent = data.parent_uuid and tree.data(data.parent_uuid).name
        inventory = {kind: dict(record) for kind, record in data.inventory.items()}
        found[data.name] = [parent, inventory, sorted({*data.traits} - {"OWNER_NOVA"})]
    return found


if __name__ == "__main__":
    print(json.dumps(compare(Path(sys.argv[1]))))
