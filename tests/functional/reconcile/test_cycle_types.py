"""The three types of cycle (full, drift and poll): the requests and writes of each type."""

import uuid
from collections.abc import Sequence

import pytest

from tests.functional.reconcile.places import ANYWHERE
from tests.lab.cycles import Publishing, allocate, contents
from tests.lab.drivers import (
    Edit,
    FeedingDriver,
    also,
    does_not_answer,
    flat,
    with_children,
    with_device,
)
from tests.lab.objects import statements
from tests.lab.placement import PlacementFixture
from wharfinger.exceptions import (
    BackendError,
    OwnershipConflict,
    PlacementUnavailable,
)
from wharfinger.objects import AGENT_BINARY, ComputeNode, ComputeNodeList, Service
from wharfinger.providers import ProviderTree
from wharfinger.reconcile.cycle_result import CycleResult
from wharfinger.tracker import service_record

LIST = "GET /resource_providers?required=CUSTOM_WHARFINGER_SCRIPTED"


@pytest.fixture
def feed(publishing: Publishing, monkeypatch: pytest.MonkeyPatch) -> FeedingDriver:
    """A driver with a change feed, which has published three nodes."""
    publishing.driver = driver = FeedingDriver()
    driver.nodes |= {name: flat(CUSTOM_GOLD=1) for name in ("a", "b", "c")}
    publishing.restarted()
    assert not publishing.cycle.sync().problems
    publishing.placement.requests.clear()
    return driver


def reserved(name: str) -> Edit:
    """Return an edit of the node that also reserves it."""

    def reserve(tree: ProviderTree) -> None:
        tree.reserve(name, "cleaning")

    return also(reserve)(flat(CUSTOM_GOLD=1))


def figures(placement: PlacementFixture) -> dict[str, tuple[int, int]]:
    return {
        name: one["inventories"].get("CUSTOM_GOLD", (0, 0))
        for name, one in contents(placement).items()
    }


def used(publishing: Publishing) -> int:
    [row] = ComputeNodeList.get_by_filters(publishing.context, hypervisor_hostname="a")
    return row.vcpus


# Poll.


@ANYWHERE
def test_poll_without_changes_makes_no_requests_and_reads_no_objects(
    publishing: Publishing, feed: FeedingDriver
) -> None:
    with statements(publishing.state_path) as said:
        outcome = publishing.cycle.poll()

    assert (outcome.steps, outcome.problems) == ((), ())
    assert publishing.placement.requests.seen == []
    assert said == []
    assert feed.marks == [None, "0"]
    assert feed.listings == 1


def test_poll_writes_a_change_with_the_known_generation(
    publishing: Publishing, feed: FeedingDriver
) -> None:
    feed.nodes["b"] = reserved("b")
    feed.changes.append("b")

    outcome = publishing.cycle.poll()

    assert [step.name for step in outcome.steps] == ["b"]
    assert not outcome.problems
    uuid_of_b = contents(publishing.placement)["b"]["uuid"]
    assert publishing.placement.requests.seen == [
        f"PUT /resource_providers/{uuid_of_b}/inventories"
    ]
    assert figures(publishing.placement) == {"a": (1, 0), "b": (1, 1), "c": (1, 0)}
    assert publishing.store.get(uuid_of_b).reservations == ("cleaning",)
    assert feed.listings == 1
    publishing.placement.requests.clear()
    assert publishing.cycle.drift().steps == ()
    assert publishing.placement.requests.seen == [LIST]
    publishing.placement.requests.clear()
    feed.nodes |= {"a": reserved("a"), "c": reserved("c")}
    feed.changes += ["a", "b", "c"]
    assert {step.name for step in publishing.cycle.poll().steps} == {"a", "c"}
    assert publishing.placement.requests.seen == ["POST /reshaper"], "they go out together"


def test_poll_after_a_write_of_another_client_reads_and_plans_again(
    publishing: Publishing, feed: FeedingDriver
) -> None:
    client, before = publishing.client, contents(publishing.placement)["b"]["uuid"]
    traits = client.get_traits(before)
    client.create_trait("CUSTOM_THEIRS")
    client.set_traits(
        before, traits.resource_provider_generation, {*traits.traits, "CUSTOM_THEIRS"}
    )
    feed.nodes["b"] = reserved("b")
    feed.changes.append("b")

    outcome = publishing.cycle.poll()

    assert not outcome.problems
    assert figures(publishing.placement)["b"] == (1, 1)
    assert "CUSTOM_THEIRS" in contents(publishing.placement)["b"]["traits"]
    assert publishing.cycle.poll().steps == ()


def test_poll_of_a_new_node_publishes_it(publishing: Publishing, feed: FeedingDriver) -> None:
    feed.nodes["d"] = flat(CUSTOM_GOLD=1)
    feed.changes.append("d")

    outcome = publishing.cycle.poll()

    assert not outcome.problems
    assert figures(publishing.placement)["d"] == (1, 0)
    rows = ComputeNodeList.get_by_filters(publishing.context)
    assert {row.hypervisor_hostname for row in rows} == {"a", "b", "c", "d"}
    assert publishing.cycle.sync().steps == ()


def test_poll_of_a_new_node_whose_name_another_program_uses_reports_a_conflict(
    publishing: Publishing, feed: FeedingDriver
) -> None:
    theirs = str(uuid.uuid4())
    publishing.client.create_provider(theirs, "d", None)
    feed.nodes["d"] = flat(CUSTOM_GOLD=1)
    feed.changes.append("d")

    outcome = publishing.cycle.poll()

    assert [type(one) for one in outcome.problems] == [OwnershipConflict]
    there = contents(publishing.placement)["d"]
    assert (there["uuid"], there["inventories"]) == (theirs, {})


def test_poll_and_drift_cycle_remove_nothing(publishing: Publishing, feed: FeedingDriver) -> None:
    feed.nodes["a"] = with_children({"CUSTOM_GOLD": 1}, {"device": {"CUSTOM_GOLD": 1}})
    publishing.cycle.sync()
    feed.nodes["a"] = with_children({"CUSTOM_GOLD": 1}, {})
    del feed.nodes["c"]
    feed.changes.append("a")

    for cycle_type in (publishing.cycle.poll, publishing.cycle.drift) * 2:
        outcome = cycle_type()
        assert (outcome.steps, outcome.pending, outcome.problems) == ((), (), ())

    first = publishing.cycle.sync()
    assert {one.name for one in first.pending} == {"device", "c"}
    assert publishing.cycle.drift().steps == ()  # no second listing
    assert set(figures(publishing.placement)) == {"a", "b", "c", "device"}
    assert {step.name for step in publishing.cycle.sync().steps} == {"device", "c"}


def test_poll_of_a_node_that_keeps_failing_makes_no_requests(
    publishing: Publishing, feed: FeedingDriver
) -> None:
    feed.nodes |= {"new": does_not_answer, "a": does_not_answer, "b": reserved("b")}
    feed.changes += ["new", "a", "b"]
    assert [type(one) for one in publishing.cycle.poll().problems] == [BackendError] * 2
    assert figures(publishing.placement) == {"a": (1, 0), "b": (1, 1), "c": (1, 0)}
    feed.nodes["a"] = reserved("a")
    publishing.placement.requests.clear()

    assert publishing.cycle.poll() == CycleResult()
    feed.nodes["c"] = reserved("c")
    feed.changes.append("c")
    assert [step.name for step in publishing.cycle.poll().steps] == ["c"]

    assert publishing.placement.requests.seen == publishing.placement.requests.writes
    assert [step.name for step in publishing.cycle.drift().steps] == ["a"]
    for _ in range(2):
        assert [type(one) for one in publishing.cycle.drift().problems] == [BackendError]
    feed.nodes["new"] = flat(CUSTOM_GOLD=1)
    assert publishing.cycle.drift().steps
    assert figures(publishing.placement)["new"] == (1, 0)


def test_node_that_a_poll_cannot_describe_is_reported_and_published_by_the_next_drift_cycle(
    publishing: Publishing, feed: FeedingDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(nodename: str) -> ComputeNode:
        raise TimeoutError(nodename)

    feed.nodes["a"] = reserved("a")
    feed.changes.append("a")
    with monkeypatch.context() as patch:
        patch.setattr(feed, "get_available_resource", fail)
        [problem] = publishing.cycle.poll().problems
    assert isinstance(problem, BackendError)
    assert "get_available_resource(a)" in str(problem)

    assert [step.name for step in publishing.cycle.drift().steps] == ["a"]


def test_change_in_a_poll_without_placement_is_written_by_the_next_poll(
    publishing: Publishing, feed: FeedingDriver
) -> None:
    def away(method: str, path: str) -> None:
        raise PlacementUnavailable(request=f"{method} {path}", status=0, code="", detail="away")

    feed.nodes["a"] = reserved("a")
    feed.changes.append("a")
    publishing.placement.adapter.before = away
    with pytest.raises(PlacementUnavailable):
        publishing.cycle.poll()
    publishing.placement.adapter.before = lambda method, path: None

    assert [step.name for step in publishing.cycle.poll().steps] == ["a"]
    assert figures(publishing.placement)["a"] == (1, 1)


def test_poll_reads_all_nodes_that_share_a_provider(
    publishing: Publishing, feed: FeedingDriver
) -> None:
    def asked(tree: ProviderTree, node: str, allocations: object) -> None:
        seen.append(node)
        flat(CUSTOM_GOLD=1)(tree, node, None)

    def shares(tree: ProviderTree, node: str, allocations: object) -> None:
        asked(tree, node, allocations)
        if not tree.exists("pool"):
            tree.new_root("pool")
        tree.update_inventory("pool", {"DISK_GB": {"total": 10}})
        tree.update_traits("pool", ["MISC_SHARES_VIA_AGGREGATE"])

    seen: list[str] = []
    feed.nodes |= {"a": shares, "b": asked, "c": asked}
    publishing.cycle.sync()
    seen.clear()
    feed.changes.append("b")

    assert publishing.cycle.poll().steps == ()

    assert sorted(seen) == ["a", "b", "c"]


def test_feed_with_an_invalid_answer_is_a_backend_error_and_loses_no_change(
    publishing: Publishing, feed: FeedingDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for answer in (None, 5, "ab", (["a"],), (5, "1"), (["a", "a"], "1")):
        with monkeypatch.context() as spoiling:
            spoiling.setattr(feed, "changed_nodes", lambda since, answer=answer: answer)
            with pytest.raises(BackendError):
                publishing.cycle.poll()
    feed.nodes["a"] = reserved("a")
    feed.changes.append("a")

    assert len(publishing.cycle.poll().steps) == 1


def test_poll_of_a_driver_without_a_feed_does_nothing(publishing: Publishing) -> None:
    publishing.driver.nodes["a"] = flat(CUSTOM_GOLD=1)
    publishing.cycle.sync()
    publishing.driver.nodes["a"] = flat(CUSTOM_GOLD=2)
    publishing.placement.requests.clear()

    assert publishing.cycle.poll().steps == ()

    assert publishing.placement.requests.seen == []


@pytest.mark.parametrize("cycle_type", ["poll", "drift"])
def test_first_cycle_of_any_type_is_a_full_cycle(publishing: Publishing, cycle_type: str) -> None:
    publishing.driver.nodes["a"] = flat(CUSTOM_GOLD=1)

    assert getattr(publishing.cycle, cycle_type)().steps


# Drift.


def test_drift_cycle_of_an_unchanged_fleet_sends_one_list_and_calls_no_driver(
    publishing: Publishing, feed: FeedingDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(feed, "update_provider_tree", lambda *args, **kwargs: asked.append("a"))

    outcome = publishing.cycle.drift()

    assert (outcome.steps, outcome.problems) == ((), ())
    assert publishing.placement.requests.seen == [LIST]
    assert (asked, feed.listings) == ([], 1)


def test_drift_cycle_reads_and_repairs_only_the_changed_tree(
    publishing: Publishing, feed: FeedingDriver
) -> None:
    def asked(tree: ProviderTree, node: str, allocations: object) -> None:
        seen.append(node)
        flat(CUSTOM_GOLD=1)(tree, node, None)

    seen: list[str] = []
    feed.nodes |= dict.fromkeys("abc", asked)
    publishing.cycle.sync()
    seen.clear()
    there = contents(publishing.placement)
    inventories = publishing.client.get_inventories(there["b"]["uuid"])
    publishing.client.set_inventories(
        there["b"]["uuid"], inventories.resource_provider_generation, {}
    )
    publishing.client.delete_provider(there["c"]["uuid"])

    outcome = publishing.cycle.drift()

    assert sorted(seen) == ["b", "c"]
    assert {step.name for step in outcome.steps} == {"b", "c"}
    assert figures(publishing.placement) == dict.fromkeys("abc", (1, 0))
    assert publishing.cycle.drift().steps == ()
    assert len(seen) == 2


def test_allocations_between_cycles_are_no_drift(
    publishing: Publishing, feed: FeedingDriver
) -> None:
    allocate(publishing.placement, str(uuid.uuid4()), a={"CUSTOM_GOLD": 1})

    for _ in range(2):  # only the generation has changed
        outcome = publishing.cycle.drift()
        assert (outcome.steps, outcome.problems) == ((), ())
    publishing.placement.requests.clear()
    publishing.cycle.drift()

    assert publishing.placement.requests.seen == [LIST]


@pytest.mark.parametrize("cycle_types", [["drift"], ["poll", "drift"], ["sync"]], ids="-".join)
def test_row_of_a_changed_node_has_the_published_amounts_after_each_cycle_type(
    publishing: Publishing, feed: FeedingDriver, cycle_types: Sequence[str]
) -> None:
    feed.nodes["a"] = flat(CUSTOM_GOLD=1, VCPU=8)
    feed.changes.append("a")
    publishing.client.delete_provider(contents(publishing.placement)["a"]["uuid"])
    for cycle_type in cycle_types:
        assert not getattr(publishing.cycle, cycle_type)().problems

    assert used(publishing) == 8


def test_full_cycle_ends_a_reservation_whose_end_the_feed_missed(
    publishing: Publishing, feed: FeedingDriver
) -> None:
    publishing.cycle.sync()
    before = feed.nodes["a"]
    feed.nodes["a"] = reserved("a")
    feed.changes.append("a")
    publishing.cycle.poll()
    feed.nodes["a"] = before  # the feed does not report this change

    publishing.cycle.sync()

    assert figures(publishing.placement)["a"] == (1, 0)


def test_full_cycle_reverts_a_name_that_a_poll_has_written(
    publishing: Publishing, feed: FeedingDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = contents(publishing.placement)["a"]["uuid"]
    names = {"a", "z"}

    def described(node: str) -> ComputeNode:
        known = {"uuid": one} if node in names else {}
        return ComputeNode(hypervisor_hostname=node, **known)

    monkeypatch.setattr(feed, "get_available_resource", described)
    for _ in range(2):
        publishing.cycle.sync()
    feed.nodes["z"] = feed.nodes.pop("a")
    feed.changes.append("z")
    publishing.cycle.poll()
    assert contents(publishing.placement)["z"]["uuid"] == one
    feed.nodes["a"] = feed.nodes.pop("z")  # Placement raises no generation for a new name

    publishing.cycle.sync()

    assert contents(publishing.placement)["a"]["uuid"] == one


def test_full_cycle_moves_back_a_device_that_a_poll_has_moved(
    publishing: Publishing, feed: FeedingDriver
) -> None:
    plain = flat(CUSTOM_GOLD=1)
    feed.nodes["a"] = with_device(plain)
    for _ in range(2):
        publishing.cycle.sync()
    feed.nodes["b"] = with_device(plain)
    feed.changes.append("b")
    publishing.cycle.poll()
    assert contents(publishing.placement)["device"]["parent"] == "b"
    feed.nodes["b"] = with_children({"CUSTOM_GOLD": 1}, {})

    publishing.cycle.sync()

    assert contents(publishing.placement)["device"]["parent"] == "a"


# Plans without writes.


def test_plan_without_apply_changes_nothing_for_the_next_cycle(
    publishing: Publishing, feed: FeedingDriver
) -> None:
    service_record.report(publishing.context, publishing.host, {"OWNER_NOVA"}, complete=True)
    service = Service.get_by_host_and_binary(publishing.context, publishing.host, AGENT_BINARY)
    service.disabled = True
    service.save()

    assert len(publishing.cycle.plan().steps) == 3

    assert len(publishing.cycle.drift().steps) == 3
    assert publishing.cycle.drift().steps == ()


def test_absent_provider_whose_creation_was_not_answered_is_kept_and_reported(
    publishing: Publishing, feed: FeedingDriver
) -> None:
    def lost(method: str, path: str) -> None:
        if method == "POST":
            raise PlacementUnavailable(request=path, status=0, code="", detail="no answer")

    feed.nodes["a"] = with_children({"CUSTOM_GOLD": 1}, {"card": {"CUSTOM_GOLD": 1}})
    publishing.placement.adapter.after = lost
    with pytest.raises(PlacementUnavailable):
        publishing.cycle.sync()
    publishing.placement.adapter.after = lambda method, path: None
    assert "card" in contents(publishing.placement)
    feed.nodes["a"] = with_children({"CUSTOM_GOLD": 1}, {})
    feed.changes.append("a")

    publishing.cycle.poll()
    for _ in range(3):
        outcome = publishing.cycle.sync()

    # No trait shows that this driver instance created the provider.
    assert [one.name for one in outcome.pending] == ["card"]
    assert set(contents(publishing.placement)) == {"a", "b", "c", "card"}
