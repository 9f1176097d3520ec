"""Look-ups of single providers that fail, and nodes that are identified by their uuids."""

import uuid

import pytest

from tests.lab.cycles import Publishing, allocate, contents
from tests.lab.drivers import does_not_answer, flat, with_children
from tests.lab.placement import PlacementFixture
from wharfinger.exceptions import BackendError, PlacementError
from wharfinger.objects import ComputeNode

pytestmark = pytest.mark.usefixtures("no_waiting")

FIRST, SECOND, THIRD = (
    str(uuid.uuid5(uuid.NAMESPACE_OID, name)) for name in ("first", "second", "third")
)


def gold(placement: PlacementFixture) -> dict[str, int]:
    """Return the amount of CUSTOM_GOLD by provider uuid; each node has another amount."""
    return {
        one["uuid"]: one["inventories"]["CUSTOM_GOLD"][0] for one in contents(placement).values()
    }


# Look-ups that fail.


def lost_and_new(publishing: Publishing) -> None:
    """Let node a lose one device, which is due for removal, and gain another; change node b."""
    nodes = publishing.driver.nodes
    nodes["a"] = with_children({"CUSTOM_GOLD": 1}, {"lost": {"VGPU": 4}})
    nodes["b"] = flat(CUSTOM_GOLD=1)
    publishing.cycle.sync()
    nodes["a"] = with_children({"CUSTOM_GOLD": 1}, {})
    publishing.cycle.sync()
    nodes["a"] = with_children({"CUSTOM_GOLD": 1}, {"new": {"VGPU": 4}})
    nodes["b"] = flat(CUSTOM_GOLD=2)


LOOK_UPS = {
    "allocations of what is due": "/resource_providers/{lost}/allocations",
    "children of what is due": "/resource_providers?in_tree={a}",
    "the name of a new one": "/resource_providers?name=new",
}


@pytest.mark.parametrize("what", LOOK_UPS)
def test_failed_look_up_keeps_its_tree_and_syncs_the_others(
    publishing: Publishing, placement: PlacementFixture, what: str
) -> None:
    lost_and_new(publishing)
    before = contents(placement)
    look_up = LOOK_UPS[what].format(**{name: one["uuid"] for name, one in before.items()})
    error = PlacementError(request=f"GET {look_up}", status=500, code="", detail="no idea")

    def fail(method: str, path: str) -> None:
        if (method, path) == ("GET", look_up):
            raise error

    placement.adapter.before = fail
    outcome = publishing.cycle.sync()
    placement.adapter.before = lambda method, path: None

    after = contents(placement)
    assert outcome.problems == (error,)
    assert after.pop("b")["inventories"] == {"CUSTOM_GOLD": (2, 0)}
    assert after == {name: before[name] for name in ("a", "lost")}
    again = publishing.cycle.sync()
    assert (again.problems, again.pending) == ((), ())
    assert set(contents(placement)) == {"a", "b", "new"}


def _deletes(placement: PlacementFixture, provider: str, look_up: str) -> list[str]:
    """Let another client delete the provider just before we send this GET; return the GETs seen."""
    return placement.adapter.once_before(
        lambda *request: request == ("GET", look_up),
        lambda: placement.client.delete_provider(provider),
    )


def test_provider_due_for_removal_that_is_deleted_before_its_look_up_counts_as_removed(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    lost_and_new(publishing)
    lost = contents(placement)["lost"]["uuid"]
    struck = _deletes(placement, lost, f"/resource_providers/{lost}/allocations")

    outcome = publishing.cycle.sync()

    assert len(struck) == 1
    assert (outcome.problems, outcome.pending) == ((), ())
    found = contents(placement)
    assert set(found) == {"a", "b", "new"}
    assert found["b"]["inventories"] == {"CUSTOM_GOLD": (2, 0)}
    assert lost not in publishing.store.records


def test_provider_with_the_name_of_a_new_one_deleted_before_its_look_up_is_no_conflict(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    lost_and_new(publishing)
    theirs = placement.client.create_provider(str(uuid.uuid4()), "new", None).uuid
    struck = _deletes(placement, theirs, f"/resource_providers/{theirs}/traits")

    outcome = publishing.cycle.sync()

    assert len(struck) == 1
    assert outcome.problems == ()
    found = contents(placement)
    assert (found["new"]["parent"], found["new"]["inventories"]) == ("a", {"VGPU": (4, 0)})
    assert found["b"]["inventories"] == {"CUSTOM_GOLD": (2, 0)}


# A uuid identifies a node.


class Backend:
    """The uuids of a driver's nodes, by name; the nodes in ``broken`` cannot be described."""

    def __init__(self) -> None:
        self.uuids: dict[str, str] = {}
        self.unreadable: set[str] = set()

    def describe(self, node: str) -> ComputeNode:
        if node in self.unreadable:
            raise OSError("no answer")
        return ComputeNode(
            host="test-host", hypervisor_hostname=node, uuid=self.uuids.get(node, FIRST)
        )


@pytest.fixture
def backend(publishing: Publishing, monkeypatch: pytest.MonkeyPatch) -> Backend:
    backend = Backend()
    monkeypatch.setattr(publishing.driver, "get_available_resource", backend.describe)
    return backend


def set_nodes(publishing: Publishing, backend: Backend, **nodes: tuple[str, int]) -> None:
    """Set the backend's nodes: uuid and amount of CUSTOM_GOLD by name."""
    backend.uuids = {name: its_uuid for name, (its_uuid, _gold) in nodes.items()}
    publishing.driver.nodes = {name: flat(CUSTOM_GOLD=total) for name, (_, total) in nodes.items()}


def test_renamed_node_that_cannot_be_read_keeps_its_root(
    publishing: Publishing, placement: PlacementFixture, backend: Backend
) -> None:
    set_nodes(publishing, backend, old=(FIRST, 1), other=(SECOND, 2))
    publishing.cycle.sync()
    allocate(placement, str(uuid.uuid4()), old={"CUSTOM_GOLD": 1})
    before = contents(placement)
    set_nodes(publishing, backend, new=(FIRST, 1), other=(SECOND, 2))
    backend.unreadable = {"new"}

    for _ in range(3):
        outcome = publishing.restarted().sync()

        assert [type(one) for one in outcome.problems] == [BackendError]
        assert not outcome.steps
        assert [(one.name, "could not be read" in one.reason) for one in outcome.pending] == [
            ("old", True)
        ]
        assert contents(placement) == before

    backend.unreadable.clear()
    outcome = publishing.cycle.sync()

    assert (outcome.problems, outcome.pending) == ((), ())
    found = contents(placement)
    assert set(found) == {"new", "other"}
    assert found["new"]["uuid"] == FIRST
    assert found["new"]["inventories"] == {"CUSTOM_GOLD": (1, 0)}


def test_absent_node_is_removed_although_another_one_cannot_be_read(
    publishing: Publishing, placement: PlacementFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def describe(node: str) -> ComputeNode:
        if node == "b":
            raise OSError("no answer")
        return ComputeNode(host="test-host", hypervisor_hostname=node)

    publishing.driver.nodes = {name: flat(CUSTOM_GOLD=1) for name in "abc"}
    publishing.cycle.sync()
    del publishing.driver.nodes["a"]
    monkeypatch.setattr(publishing.driver, "get_available_resource", describe)

    publishing.cycle.sync()
    publishing.cycle.sync()

    assert set(contents(placement)) == {"b", "c"}


def test_node_may_take_the_name_of_an_absent_one(
    publishing: Publishing, placement: PlacementFixture, backend: Backend
) -> None:
    set_nodes(publishing, backend, a=(FIRST, 1), b=(SECOND, 2))
    publishing.cycle.sync()
    set_nodes(publishing, backend, a=(SECOND, 20))

    for _ in range(4):
        outcome = publishing.restarted().sync()
        assert gold(placement).get(FIRST, 1) == 1
        assert gold(placement)[SECOND] in (2, 20)

    assert (outcome.problems, outcome.pending) == ((), ())
    assert contents(placement).keys() == {"a"}
    assert gold(placement) == {SECOND: 20}


# A root that another program has moved below another provider.


def test_failing_node_whose_root_was_moved_keeps_its_tree(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    nodes = publishing.driver.nodes
    nodes["a"] = with_children({"CUSTOM_GOLD": 1}, {"gpu": {"VGPU": 4}})
    nodes["b"] = flat(CUSTOM_GOLD=1)
    publishing.cycle.sync()
    client = placement.client
    rack = client.create_provider(str(uuid.uuid4()), "rack", None).uuid
    client.update_provider(contents(placement)["a"]["uuid"], "a", rack)
    before, nodes["a"] = contents(placement), does_not_answer

    for _ in range(3):
        outcome = publishing.restarted().sync()

        assert [type(one) for one in outcome.problems] == [BackendError]
        assert (outcome.steps, outcome.pending) == ((), ())
        assert contents(placement) == before
