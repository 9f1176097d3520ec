"""A reconciler whose objects another process stores opens no database."""

from pathlib import Path

import pytest

from tests.functional.reconcile.places import ANYWHERE
from tests.lab.cycles import Publishing, allocate, contents
from tests.lab.drivers import flat, moves_vgpus
from tests.lab.objects import questions, statements
from tests.lab.placement import PlacementFixture
from wharfinger.db.database import FILE_NAME
from wharfinger.db.tables import METADATA
from wharfinger.exceptions import RemoteError, StateError
from wharfinger.tracker import service_record

pytestmark = ANYWHERE

CONSUMER = "6f9de2f4-9d0c-4d0f-a4a6-0c2c5b1f7d31"


def tables_of_wharfinger(said: list[str]) -> set[str]:
    """Return the tables of Wharfinger that the statements name."""
    words = {word for statement in said for word in statement.replace('"', " ").split()}
    return METADATA.tables.keys() & {word.partition(".")[0] for word in words}


def run_syncs(publishing: Publishing, placement: PlacementFixture) -> None:
    """Run a first sync, a reshape, a removal, and a sync after a restart."""
    publishing.driver.nodes |= {"cn": flat(VCPU=8, VGPU=4), "gone": flat(VCPU=8)}
    publishing.cycle.sync()
    allocate(placement, CONSUMER, cn={"VCPU": 2, "VGPU": 1})
    publishing.driver.nodes = {"cn": moves_vgpus}
    for _ in range(3):
        assert not publishing.cycle.sync().problems
    assert not publishing.restarted().sync().steps
    service_record.report(publishing.context, "test-host", {"OWNER_NOVA"}, complete=True)
    assert contents(placement).keys() == {"cn", "gpu"}


def test_remote_objects_are_read_only_through_json_requests(
    where: str, publishing: Publishing, placement: PlacementFixture
) -> None:
    # The requests are decoded, so they are JSON.
    with statements() as here, statements(publishing.state_path) as anywhere, questions() as asked:
        run_syncs(publishing, placement)

    assert tables_of_wharfinger(anywhere) > {"compute_nodes", "provider_records", "services"}
    assert tables_of_wharfinger(here) == (
        tables_of_wharfinger(anywhere) if where == "here" else set()
    )
    assert (publishing.context.database is None) == (where == "elsewhere")
    actions = {question["action"] for question in asked}
    assert actions == (set() if where == "here" else {"class", "object"})


def test_unopenable_state_directory_fails_at_the_start(
    publishing: Publishing, tmp_path: Path
) -> None:
    publishing.state_path = tmp_path / "spoilt"
    publishing.state_path.mkdir()
    (publishing.state_path / FILE_NAME).write_text("this is no database, and never was")
    with pytest.raises((StateError, RemoteError), match=FILE_NAME):
        publishing.restarted().sync()
