"""A real Ironic that is down or restarts: Placement does not change meanwhile.

The other tests use the same Ironic. So one test has a restart, and another an interrupted listing.
"""

import signal

import pytest

from tests.lab.bare_metal import GOLD, Metal, free, reserved
from tests.lab.cycles import everything
from wharfinger.exceptions import BackendError
from wharfinger_harnesses.ironic import Ironic
from wharfinger_ironic import client
from wharfinger_ironic.node import Node
from wharfinger_ironic.states import PROVISION_STATES

PAGE = 10


def fails(metal: Metal, cycle: str) -> str:
    """Return the error of a cycle; assert that the cycle changes nothing."""
    before = everything()
    writes = len(metal.placement.requests.writes)
    with pytest.raises(BackendError) as caught:
        getattr(metal.cycle, cycle)()
    assert len(metal.placement.requests.writes) == writes
    assert everything() == before
    return str(caught.value)


def test_outage_of_ironic_changes_nothing_and_all_changes_are_seen_afterwards(
    metal: Metal, ironic: Ironic
) -> None:
    nodes = [metal.available() for _ in range(4)]
    cut_short, waiting = metal.available(clean="hold"), metal.available(clean="wait")
    metal.sync()
    ironic.set_maintenance(nodes[3], "rack 7 moves")
    metal.goes(cut_short, "manage", "manageable")
    metal.goes(waiting, "manage", "manageable")
    metal.goes(cut_short, "provide", "cleaning")
    metal.goes(waiting, "provide", "clean wait")
    waits = reserved(str(PROVISION_STATES["clean wait"]))
    ironic.set_maintenance(nodes[0], "before it went down")

    ironic.stop()
    for _ in range(2):
        assert "Unable to establish connection to http://127" in fails(metal, "poll")
    metal.write(nodes[1], maintenance=True, maintenance_reason="while it was down")
    for cycle in ("poll", "sync", "poll"):
        fails(metal, cycle)
    metal.restarted()  # a new process, which has not listed any node
    for cycle in ("poll", "sync", "poll"):
        fails(metal, cycle)
    assert metal.shows(cut_short) == reserved("cleaning")
    assert metal.shows(waiting) == waits
    ironic.start_again()
    ironic.end_maintenance(nodes[3])
    ironic.wait_for(cut_short, "clean failed")

    metal.poll()

    assert metal.shows(nodes[0]) == reserved("maintenance: before it went down")
    assert metal.shows(nodes[1]) == reserved("maintenance: while it was down")
    assert metal.shows(nodes[2]) == metal.shows(nodes[3]) == free()
    assert metal.shows(waiting) == waits
    metal.goes_on(waiting, "available")
    assert metal.shows(waiting) == free()
    figures, [failed] = metal.shows(cut_short)
    assert figures == {GOLD: (1, 1)}
    assert failed.startswith(f"{PROVISION_STATES['clean failed']}: ")
    metal.told(cut_short)
    metal.goes(cut_short, "manage", "manageable")
    metal.goes(cut_short, "provide", "available")
    assert metal.shows(cut_short) == free()


def test_listing_interrupted_by_a_restart_is_an_error(
    metal: Metal, ironic: Ironic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ironic restarts after the first page of the listing."""
    monkeypatch.setattr(client, "PAGE", PAGE)
    nodes = ironic.insert_nodes(PAGE + 5, owner=metal.owner, updated_at=None)
    metal.sync()
    assert all(metal.shows(node) == free() for node in nodes)
    new = metal.available()
    metal.write(nodes[0], maintenance=True)
    metal.write(nodes[-1], maintenance=True)
    pages = []
    page = client.Ironic.page

    def page_and_stop(self: client.Ironic, after: str | None) -> list[Node]:
        pages.append(after)
        found = page(self, after)
        ironic.stop(signal.SIGTERM)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(client.Ironic, "page", page_and_stop)
        fails(metal, "sync")
    assert len(pages) == 2

    ironic.start_again()
    metal.sync()
    assert metal.shows(nodes[0]) == metal.shows(nodes[-1]) == reserved("maintenance")
    assert all(metal.shows(node) == free() for node in (*nodes[1:-1], new))
