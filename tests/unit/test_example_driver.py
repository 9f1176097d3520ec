"""The driver of cards that the documentation shows, and the providers that it publishes."""

import sys
from pathlib import Path

import pytest
from stevedore import ExtensionManager

from wharfinger.conf import load
from wharfinger.driver import loader
from wharfinger.providers import Inventory, Provider, ProviderTree, PublishingMode

CODE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "wharfinger_cards.py"
ROOT = "8c9e0d3a-5a6f-4a86-9a39-0c1d4a1f7a10"
GONE = "8c9e0d3a-5a6f-4a86-9a39-0c1d4a1f7a11"


@pytest.fixture
def configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install the driver; return its configuration."""
    monkeypatch.syspath_prepend(str(tmp_path))
    # Clear the entry points that stevedore keeps in this process.
    monkeypatch.setattr(ExtensionManager, "ENTRY_POINT_CACHE", {})
    monkeypatch.delitem(sys.modules, CODE.stem, raising=False)
    (tmp_path / CODE.name).write_text(CODE.read_text())
    information = tmp_path / "cards-0.1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: cards\nVersion: 0.1\n")
    (information / "entry_points.txt").write_text(
        f"[wharfinger.drivers]\ncards = {CODE.stem}:CardsDriver\n"
    )
    cards = tmp_path / "cards.json"
    cards.write_text('{"a": {"units": 2, "programming": true}}')
    file = tmp_path / "wharfinger.conf"
    file.write_text(f"[DEFAULT]\nenabled_drivers = cards\n[cards]\nfile = {cards}\n")
    return file


def test_cards_driver_with_foreign_root_edits_only_its_cards(configuration: Path) -> None:
    assert loader.check("cards") == []
    driver = loader.load("cards")(load([str(configuration)]), "host", "cards")
    (node,) = driver.get_available_nodes(refresh=True)
    tree = ProviderTree.from_providers(
        [
            Provider(uuid=ROOT, name=node, root_uuid=ROOT, traits=frozenset({"OWNER_NOVA"})),
            Provider(uuid=GONE, name="host_card_b", root_uuid=ROOT, parent_uuid=ROOT),
        ]
    )

    driver.update_provider_tree(tree, node)

    found = {desired.provider.name: desired for desired in tree.desired()}
    assert found.keys() == {"host", "host_card_a"}
    assert found["host"].mode is PublishingMode.OVERLAY
    card = found["host_card_a"]
    assert card.provider.inventories == {"CUSTOM_CARD_UNIT": Inventory(total=2, max_unit=2)}
    assert card.reservations == ("programming",)
