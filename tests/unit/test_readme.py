"""Load the drivers that README.md and docs/ show and check the providers that they publish."""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from stevedore import ExtensionManager

from wharfinger.conf import InstanceSection, load
from wharfinger.driver import ComputeDriver, loader
from wharfinger.providers import DesiredProvider, Inventory, Provider, ProviderTree, PublishingMode

REPOSITORY = Path(__file__).resolve().parents[2]
ROOT = "8c9e0d3a-5a6f-4a86-9a39-0c1d4a1f7a10"
GONE = "8c9e0d3a-5a6f-4a86-9a39-0c1d4a1f7a11"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a directory where packages can be installed during a test."""
    monkeypatch.syspath_prepend(str(tmp_path))
    # stevedore caches the entry points of a process.
    monkeypatch.setattr(ExtensionManager, "ENTRY_POINT_CACHE", {})
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def rack(site: Path) -> Path:
    """Install the package of README.md's driver and return the path of its configuration."""
    (site / "wharfinger_rack.py").write_text(_block("wharfinger_rack.py"))
    for name in ("pyproject.toml", "rack.json", "wharfinger.conf"):
        (site / name).write_text((REPOSITORY / "docs" / "examples" / "rack" / name).read_text())
    project = tomllib.loads((site / "pyproject.toml").read_text())["project"]
    (entry_points,) = project["entry-points"].items()
    _install(site, project["name"], entry_points)
    configuration = site / "wharfinger.conf"
    there = "/etc/wharfinger/rack.json"
    assert there in configuration.read_text()
    configuration.write_text(configuration.read_text().replace(there, str(site / "rack.json")))
    return configuration


def test_readme_driver_loaded_fits_the_contract(rack: Path) -> None:
    conf = load([str(rack)])
    (instance,) = conf.enabled_drivers
    assert loader.check(InstanceSection.read(conf, instance).driver) == []


def test_readme_driver_with_busy_machine_reserves_it(rack: Path) -> None:
    conf = load([str(rack)])
    (instance,) = conf.enabled_drivers
    driver = loader.load(InstanceSection.read(conf, instance).driver)(conf, "host", instance)

    free, busy = (_publish(driver, node)[node] for node in driver.get_available_nodes(refresh=True))

    machine = {"CUSTOM_BAREMETAL_GOLD": Inventory(total=1, max_unit=1)}
    assert (free.provider.inventories, free.reservations) == (machine, ())
    assert (busy.provider.inventories, busy.reservations) == (machine, ("cleaning",))


def test_cards_driver_with_foreign_root_edits_only_its_cards(site: Path) -> None:
    name = "wharfinger_cards"
    (site / f"{name}.py").write_text((REPOSITORY / "docs" / "examples" / f"{name}.py").read_text())
    _install(site, name, ("wharfinger.drivers", {"cards": f"{name}:CardsDriver"}))
    (site / "cards.json").write_text('{"a": {"units": 2, "programming": true}}')
    configuration = site / "wharfinger.conf"
    configuration.write_text(
        f"[DEFAULT]\nenabled_drivers = cards\n[cards]\nfile = {site / 'cards.json'}\n"
    )
    assert loader.check("cards") == []
    driver = loader.load("cards")(load([str(configuration)]), "host", "cards")
    (node,) = driver.get_available_nodes(refresh=True)

    found = _publish(
        driver,
        node,
        Provider(uuid=ROOT, name=node, root_uuid=ROOT, traits=frozenset({"OWNER_NOVA"})),
        Provider(uuid=GONE, name="host_card_b", root_uuid=ROOT, parent_uuid=ROOT),
    )

    assert found.keys() == {"host", "host_card_a"}
    assert found["host"].mode is PublishingMode.OVERLAY
    card = found["host_card_a"]
    assert card.provider.inventories == {"CUSTOM_CARD_UNIT": Inventory(total=2, max_unit=2)}
    assert card.reservations == ("programming",)


def _block(name: str) -> str:
    """Return the contents that README.md shows below a file name."""
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(rf"^`{re.escape(name)}`:\n\n```\w+\n(.*?)^```$", text, re.M | re.S)
    return str(block)


def _install(site: Path, name: str, entry_points: tuple[str, dict[str, str]]) -> None:
    """Write the metadata of an installed package."""
    group, entries = entry_points
    information = site / f"{name.replace('-', '_')}-0.1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
    lines = [f"[{group}]", *(f"{entry} = {target}" for entry, target in entries.items())]
    (information / "entry_points.txt").write_text("\n".join(lines) + "\n")


def _publish(driver: ComputeDriver, node: str, *live: Provider) -> dict[str, DesiredProvider]:
    """Return the providers of a node's tree after the driver's update, by name."""
    tree = ProviderTree.from_providers(live)
    if not live:
        tree.new_root(node)
    driver.update_provider_tree(tree, node)
    return {desired.provider.name: desired for desired in tree.desired()}
