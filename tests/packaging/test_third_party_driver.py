"""A driver of another author: installed by pip, and enabled only by configuration."""

import json
from pathlib import Path

from tests.packaging.environment import run

_CONFIGURATION = """
[DEFAULT]
enabled_drivers = few, many
host = rack-7
state_path = {state}

[few]
driver = shelf
boxes = 2

[many]
driver = shelf
boxes = 40
owner = OWNER_CYBORG
"""


def test_third_party_driver_is_found_checked_and_published_by_configuration(
    installed: Path, tmp_path: Path
) -> None:
    configuration = tmp_path / "wharfinger.conf"
    configuration.write_text(_CONFIGURATION.format(state=tmp_path / "state"))
    program = [installed / "wharfinger", "--config-file", configuration]

    drivers = json.loads(run([*program, "driver", "list", "-f", "json"]))
    assert [row for row in drivers if row["Driver"] == "shelf"] == [
        {
            "Driver": "shelf",
            "Class": "acme_shelf:ShelfDriver",
            "Package": "acme-drivers 3.1",
            "Instances": "few, many",
            "State": "ready",
        }
    ]

    run([*program, "driver", "check", "many"])
    run([*program, "sync"])

    tree = json.loads(run([*program, "provider", "tree", "--inventory", "-f", "json"]))
    assert {
        root["name"]: (root["owners"], root["inventories"]["CUSTOM_BOX"]["total"]) for root in tree
    } == {
        "rack-7-few": (["CUSTOM_OWNER_ACME"], 2),
        "rack-7-many": (["OWNER_CYBORG"], 40),
    }
