"""``wharfinger migration``: moves with their sources and destinations."""

from pathlib import Path
from typing import Any

import pytest

from tests.functional.cli.outcomes import failed, shown
from tests.lab import inprocess, samples
from tests.lab.objects import KeptInFile
from tests.lab.program import Program
from wharfinger.objects import Flavor, Migration


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def has_migration(kept: KeptInFile, number: int = 0, **values: Any) -> Migration:
    migration = samples.migration(kept.context, number, **values)
    migration.create()
    return migration


def numbers(program: Program, *arguments: str) -> list[int]:
    """Run ``migration list``; return the numbers of the moves that it prints."""
    of = {samples.uuid(f"migration {number}"): number for number in range(10)}
    return [of[row["UUID"]] for row in shown(program, "migration", "list", *arguments)]


def test_migration_list_shows_source_and_destination(program: Program, kept: KeptInFile) -> None:
    migration = has_migration(kept, dest_compute="host-2", dest_node="node-2", status="queued")

    assert shown(program, "migration", "list") == [
        {
            "UUID": samples.uuid("migration 0"),
            "Instance": samples.uuid("instance 0"),
            "Type": "resize",
            "Status": "queued",
            "Source Host": "host-1",
            "Source Node": "node-1",
            "Destination Host": "host-2",
            "Destination Node": "node-2",
            "Created At": migration.created_at.isoformat(),
            "Updated At": None,
        }
    ]


def test_migration_list_of_host_or_node_matches_either_end(
    program: Program, kept: KeptInFile
) -> None:
    has_migration(kept, 1, source_compute="a", source_node="n")
    has_migration(kept, 2, source_compute="b", dest_compute="a", dest_node="m")
    has_migration(kept, 3, source_compute="b", source_node="m")

    assert numbers(program, "--host", "a") == [1, 2]
    assert numbers(program, "--node", "m") == [2, 3]
    assert numbers(program, "--host", "a", "--node", "m") == [2]
    assert numbers(program, "--host", "c") == []


def test_migration_list_filters_by_instance_status_or_type(
    program: Program, kept: KeptInFile
) -> None:
    has_migration(kept, 1, status="done")
    has_migration(kept, 2, status="queued", migration_type="live-migration")
    has_migration(kept, 3, migration_type="live-migration")

    assert numbers(program, "--instance", samples.uuid("instance 2")) == [2]
    assert numbers(program, "--instance", samples.uuid("instance 2").upper()) == [2]
    assert numbers(program, "--status", "done") == [1]
    assert numbers(program, "--type", "live-migration") == [2, 3]
    assert numbers(program, "--type", "live-migration", "--status", "accepted") == [3]


def test_migration_list_in_progress_omits_moves_that_have_ended(
    program: Program, kept: KeptInFile
) -> None:
    for number, status in enumerate(["accepted", "done", "finished", "error", "running"]):
        has_migration(kept, number, status=status)

    assert numbers(program, "--in-progress") == [0, 2, 4]
    assert numbers(program, "--in-progress", "--status", "finished") == [2]
    assert numbers(program, "--in-progress", "--status", "done") == []


def test_damaged_migration_is_listed_with_the_others(program: Program, kept: KeptInFile) -> None:
    for number in (1, 2):
        has_migration(kept, number)
    damage = {"status": "adrift", "dest_node": "", "old_flavor": "{"}
    kept.write("migrations", damage, uuid=samples.uuid("migration 1"))

    done = inprocess.run(program, "migration", "list", "-f", "json")

    assert done.code == 0
    first, second = done.json()
    assert (first["Status"], first["Destination Node"], second["Status"]) == ("?", "?", "accepted")
    assert "Traceback" not in done.err


def test_migration_show_has_all_fields(program: Program, kept: KeptInFile) -> None:
    flavors = [
        samples.flavor(kept.context, number, extra_specs={"resources:VGPU": str(number)})
        for number in (1, 2)
    ]
    for one in flavors:
        one.create()
    migration = has_migration(kept, old_flavor=flavors[0], new_flavor=flavors[1])

    data = shown(program, "migration", "show", migration.uuid)

    assert data.keys() == Migration.fields.keys()
    assert data["created_at"] == migration.created_at.isoformat()
    assert data["new_flavor"].keys() == Flavor.fields.keys()
    assert data["new_flavor"]["extra_specs"] == {"resources:VGPU": "2"}
    assert data["old_flavor"]["name"] == "flavor-1"


def test_migration_show_with_damaged_flavor_reports_it_and_shows_the_rest(
    program: Program, kept: KeptInFile
) -> None:
    migration = has_migration(kept)
    kept.write("migrations", {"old_flavor": "what is this?"})

    done = inprocess.run(program, "migration", "show", migration.uuid, "-f", "json")

    assert done.code == 0
    assert done.json()["old_flavor"] == "?"
    assert done.json()["new_flavor"]["name"] == "flavor-2"
    assert "old_flavor has no value: the value of migrations.old_flavor" in done.err


def test_migration_show_of_missing_migration_fails(program: Program, kept: KeptInFile) -> None:
    done = inprocess.run(program, "migration", "show", samples.uuid("migration 1"))

    failed(done, f"there is no Migration {samples.uuid('migration 1')}")
