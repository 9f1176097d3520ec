"""A driver of somebody else's: installed by pip, chosen by configuration, and nothing else."""

import json
from pathlib import Path

import pytest

from tests.packaging import environment
from tests.packaging.conftest import build_wheels
from tests.packaging.environment import run

_PYPROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "acme-cards"
version = "3.1"

[project.entry-points."wharfinger.drivers"]
acme = "acme_cards:CardDriver"

[tool.setuptools]
py-modules = ["acme_cards"]
"""

_DRIVER = """
from oslo_config import cfg

from wharfinger.driver import Capabilities, ComputeDriver, unsupported
from wharfinger.providers import Inventory

NONE = unsupported("cards have no such thing")


class CardDriver(ComputeDriver):
    capabilities = Capabilities(
        nested_providers=NONE, reshape=NONE, change_feed=NONE, programming=NONE,
        cleans_after_release=NONE,
    )
    default_owner = "CUSTOM_OWNER_ACME"

    def __init__(self, conf, host, name):
        super().__init__(conf, host, name)
        conf.register_opts([cfg.IntOpt("cards", min=1)], name)

    def get_available_nodes(self, refresh=False):
        return [f"{self.host}-{self.name}"]

    def get_inventory(self, nodename):
        return {"CUSTOM_CARD": Inventory(total=self.conf[self.name].cards)}
"""

_CONFIGURATION = """
[DEFAULT]
enabled_drivers = few, many
host = rack-7
state_path = {state}

[few]
driver = acme
cards = 2

[many]
driver = acme
cards = 40
owner = OWNER_CYBORG
"""


@pytest.fixture
def program(installed: Path, tmp_path: Path) -> list[str]:
    """Install the driver beside Wharfinger; return the command with its configuration."""
    source = tmp_path / "acme-cards"
    source.mkdir()
    (source / "pyproject.toml").write_text(_PYPROJECT)
    (source / "acme_cards.py").write_text(_DRIVER)
    wheels = tmp_path / "wheels"
    build_wheels([source], wheels)
    environment.install(installed, wheels.glob("*.whl"))
    configuration = tmp_path / "wharfinger.conf"
    configuration.write_text(_CONFIGURATION.format(state=tmp_path / "state"))
    return [str(installed / "wharfinger"), "--config-file", str(configuration)]


def test_it_is_found_checked_and_published_by_configuration_alone(program: list[str]) -> None:
    (row,) = (
        row
        for row in json.loads(run([*program, "driver", "list", "-f", "json"]))
        if row["Driver"] == "acme"
    )
    assert row == {
        "Driver": "acme",
        "Class": "acme_cards:CardDriver",
        "Package": "acme-cards 3.1",
        "Instances": "few, many",
        "State": "ready",
    }

    run([*program, "driver", "check", "many"])
    run([*program, "sync"])

    tree = json.loads(run([*program, "provider", "tree", "--inventory", "-f", "json"]))
    assert {
        root["name"]: (root["owners"], root["inventories"]["CUSTOM_CARD"]["total"]) for root in tree
    } == {
        "rack-7-few": (["CUSTOM_OWNER_ACME"], 2),
        "rack-7-many": (["OWNER_CYBORG"], 40),
    }
    run([*program, "sync", "--dry-run"], code=0)
