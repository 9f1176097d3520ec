"""Writes of many trees: in parallel, in order, and with failures of single trees."""

import os
import re
import signal
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.functional.reconcile.places import ANYWHERE
from tests.lab.cycles import Publishing, allocate, contents
from tests.lab.drivers import flat, with_children
from tests.lab.placement import PlacementFixture
from wharfinger.exceptions import (
    InventoryInUse,
    PlacementUnavailable,
    WharfingerError,
)
from wharfinger.objects import RecordBatch
from wharfinger.providers.plan import SetInventories, Step
from wharfinger.reconcile import apply
from wharfinger.reconcile.cycle_result import CycleResult

#: Seconds that a test waits for an event before it fails.
PATIENCE = 30
MARKS = {"OWNER_NOVA", "CUSTOM_WHARFINGER_SCRIPTED"}


def fleet(publishing: Publishing, count: int, **totals: int) -> list[str]:
    """Let the driver report ``count`` nodes of one provider each; return the nodes' names."""
    names = [f"node-{number:03}" for number in range(count)]
    publishing.driver.nodes |= {name: flat(**(totals or {"CUSTOM_GOLD": 1})) for name in names}
    return names


def unchanged(publishing: Publishing, placement: PlacementFixture) -> None:
    """Assert that the records equal Placement, and that another cycle only lists providers."""
    listed = {one.uuid: one.generation for one in placement.new_client().list_providers()}
    records = publishing.store.records
    assert {uuid_: one.live and one.live.generation for uuid_, one in records.items()} == listed
    assert not any(record.intended for record in records.values())
    placement.requests.clear()
    assert not publishing.cycle.sync().steps
    assert len(placement.requests) == 1


def stop(placement: PlacementFixture) -> None:
    """Stop the interception of requests."""
    placement.adapter.before = placement.adapter.after = lambda method, path: None


class ConcurrentRequests:
    """Counts the requests that are sent at the same time, and their maximum."""

    def __init__(self, placement: PlacementFixture) -> None:
        self.most = 0
        self._now = 0
        self._lock = threading.Lock()
        placement.adapter.after = self._leave

    def enter(self) -> None:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)

    def _leave(self, method: str, path: str) -> None:
        with self._lock:
            self._now -= 1


# Concurrency.


def test_sync_writes_as_many_trees_at_once_as_it_has_connections(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    fleet(publishing, 12)
    inside = ConcurrentRequests(placement)
    together = threading.Barrier(4)

    def meet(method: str, path: str) -> None:
        inside.enter()
        if (method, path) == ("POST", "/resource_providers"):
            together.wait(PATIENCE)  # raises if the four do not meet

    placement.adapter.before = meet
    outcome = publishing.cycle.sync()
    stop(placement)

    assert not outcome.problems
    assert inside.most == publishing.client.connections == 4
    assert len(contents(placement)) == 12


def test_steps_of_a_tree_keep_their_order_and_are_reported_one_at_a_time(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    names = [f"cn-{number}" for number in range(6)]
    for name in names:
        children = {f"{name}-gpu-{number}": {"VGPU": 4} for number in range(3)}
        publishing.driver.nodes[name] = with_children({"VCPU": 8}, children)
    planned = publishing.cycle.plan().steps
    told: list[Step] = []
    telling = threading.Lock()

    def tell(step: Step) -> None:
        assert telling.acquire(blocking=False), "two steps were reported at the same time"
        told.append(step)
        telling.release()

    outcome = publishing.cycle.sync(on_step=tell)

    assert not outcome.problems
    assert told == list(outcome.steps)
    assert Counter(step.uuid for step in told) == Counter(step.uuid for step in planned)
    for root in {step.root_uuid for step in planned}:
        assert _of_tree(told, root) == _of_tree(planned, root)
    firsts = [index for index, step in enumerate(told) if isinstance(step, SetInventories)]
    assert firsts == list(range(len(told) - len(firsts), len(told))), "inventories come last"


def _of_tree(steps: "list[Step] | tuple[Step, ...]", root: str) -> list[Step]:
    return [step for step in steps if step.root_uuid == root]


# Number of requests.


def test_first_sync_takes_two_requests_for_each_node_and_seven_more(
    placement: PlacementFixture, tmp_path: Path
) -> None:
    # This driver instance is new: its instance trait does not exist yet.
    with Publishing(placement, tmp_path / "twelve", name="twelve") as publishing:
        fleet(publishing, 12)

        assert not publishing.cycle.sync().problems

        asked = [request.split("?")[0] for request in placement.requests.seen]
        assert Counter(re.sub(r"/[0-9a-f-]{36}", "", request) for request in asked) == {
            "GET /resource_providers": 2,
            "GET /traits": 2,
            "PUT /traits/CUSTOM_WHARFINGER_TWELVE": 1,
            "PUT /resource_classes/CUSTOM_GOLD": 1,
            "POST /resource_providers": 12,
            "PUT /resource_providers/traits": 12,
            "POST /reshaper": 1,
        }
        unchanged(publishing, placement)


def test_first_sync_sets_the_inventories_of_a_hundred_nodes_in_one_request(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    fleet(publishing, 105)

    assert not publishing.cycle.sync().problems

    assert placement.requests.writes.count("POST /reshaper") == 2
    assert not [request for request in placement.requests.writes if "inventories" in request]
    unchanged(publishing, placement)


def test_changed_inventory_of_many_nodes_is_one_write_without_reads(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    names = fleet(publishing, 12)
    publishing.cycle.sync()
    placement.requests.clear()

    for total in (2, 3):
        publishing.driver.nodes |= {name: flat(CUSTOM_GOLD=total) for name in names[:8]}
        outcome = publishing.cycle.sync()
        assert len(outcome.steps) == 8

    assert (
        placement.requests.seen
        == [
            "GET /resource_providers?required=CUSTOM_WHARFINGER_SCRIPTED",
            "POST /reshaper",
        ]
        * 2
    )
    figures = Counter(found["inventories"]["CUSTOM_GOLD"] for found in contents(placement).values())
    assert figures == {(3, 0): 8, (1, 0): 4}
    unchanged(publishing, placement)
    placement.requests.clear()
    publishing.driver.nodes[names[0]] = flat(CUSTOM_GOLD=4)
    publishing.cycle.sync()
    (write,) = placement.requests.writes  # a single change is not sent to the reshaper
    assert write.startswith("PUT /resource_providers/")


def test_batch_of_any_changes_updates_all_generations(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    before: dict[str, dict[str, int]] = {
        "grows": {"VCPU": 1},
        "gains": {"VCPU": 1},
        "loses": {"VCPU": 1, "DISK_GB": 1},
        "changes": {"VCPU": 1},
        "empties": {"VCPU": 1, "DISK_GB": 1},
        "fills": {},
    }
    after: dict[str, dict[str, int]] = {
        "grows": {"VCPU": 2},
        "gains": {"VCPU": 1, "DISK_GB": 1, "MEMORY_MB": 1},
        "loses": {"VCPU": 1},
        "changes": {"DISK_GB": 1},
        "empties": {},
        "fills": {"VCPU": 1, "DISK_GB": 1},
    }
    for totals in (before, after, before, after):
        publishing.driver.nodes |= {name: flat(**kinds) for name, kinds in totals.items()}
        placement.requests.clear()

        assert not publishing.cycle.sync().problems

        assert placement.requests.writes[-1] == "POST /reshaper"
        found = contents(placement)
        assert {name: set(one["inventories"]) for name, one in found.items()} == {
            name: set(kinds) for name, kinds in totals.items()
        }
        unchanged(publishing, placement)


# Without the service role.


def test_sync_without_service_role_tries_one_batch_and_then_single_inventories(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    placement.without_service_role()
    names = fleet(publishing, 8)
    assert not publishing.cycle.sync().problems
    assert placement.requests.writes.count("POST /reshaper") == 1
    unchanged(publishing, placement)

    publishing.driver.nodes |= {name: flat(CUSTOM_GOLD=2) for name in names}
    placement.requests.clear()
    assert not publishing.cycle.sync().problems

    writes = placement.requests.writes
    assert len(writes) == len({write for write in writes if write.endswith("/inventories")}) == 8
    assert {found["inventories"]["CUSTOM_GOLD"] for found in contents(placement).values()} == {
        (2, 0)
    }
    unchanged(publishing, placement)


# One tree that fails.


def test_batch_with_a_stale_provider_reads_only_that_provider_again(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    names = fleet(publishing, 9)
    publishing.cycle.sync()
    stale = contents(placement)[names[4]]["uuid"]
    client = placement.new_client()
    client.create_trait("CUSTOM_OPERATORS")
    publishing.driver.nodes |= {name: flat(CUSTOM_GOLD=2) for name in names}

    def interfere() -> None:
        generation = client.get_traits(stale).resource_provider_generation
        client.set_traits(stale, generation, MARKS | {"CUSTOM_OPERATORS"})
        placement.requests.clear()

    placement.adapter.once_before(lambda method, path: path == "/reshaper", interfere)
    outcome = publishing.cycle.sync()

    assert not outcome.problems
    assert Counter(step.name for step in outcome.steps) == Counter(names)
    assert {request for request in placement.requests.seen if f"/{stale}/" not in request} <= {
        "GET /resource_providers?required=CUSTOM_WHARFINGER_SCRIPTED",
        "POST /reshaper",
        *(
            f"PUT /resource_providers/{one['uuid']}/inventories"
            for one in contents(placement).values()
        ),
    }
    reads = [request for request in placement.requests.seen if request.endswith("/inventories")]
    assert f"GET /resource_providers/{stale}/inventories" in reads
    found = contents(placement)
    assert {one["inventories"]["CUSTOM_GOLD"] for one in found.values()} == {(2, 0)}
    assert found[names[4]]["traits"] == MARKS | {"CUSTOM_OPERATORS"}
    unchanged(publishing, placement)


def test_batch_with_a_refused_inventory_sets_all_others(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    names = fleet(publishing, 9, VCPU=4, DISK_GB=1)
    publishing.cycle.sync()
    consumer = str(uuid.uuid4())
    allocate(placement, consumer, **{names[6]: {"DISK_GB": 1}})  # type: ignore[arg-type]
    publishing.driver.nodes |= {name: flat(VCPU=5) for name in names}

    outcome = publishing.cycle.sync()

    (problem,) = outcome.problems
    assert isinstance(problem, InventoryInUse)
    uuids = {name: one["uuid"] for name, one in contents(placement).items()}
    assert uuids[names[6]] in str(problem)
    assert not [name for name in names if name != names[6] and uuids[name] in str(problem)]
    assert {step.name for step in outcome.steps} == set(names) - {names[6]}
    found = contents(placement)
    assert found.pop(names[6])["inventories"] == {"DISK_GB": (1, 0), "VCPU": (4, 0)}
    assert [one["inventories"] for one in found.values()] == [{"VCPU": (5, 0)}] * 8

    placement.client.delete_allocations(consumer)
    assert [step.name for step in publishing.cycle.sync().steps] == [names[6]]
    unchanged(publishing, placement)


def test_batch_whose_answer_is_lost_is_recorded_by_the_next_sync_without_another_write(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    names = fleet(publishing, 5)
    publishing.cycle.sync()
    publishing.driver.nodes |= {name: flat(CUSTOM_GOLD=2) for name in names}

    def lose(method: str, path: str) -> None:
        if path == "/reshaper":
            raise PlacementUnavailable(request=path, status=0, code="", detail="cut off")

    placement.adapter.after = lose
    with pytest.raises(PlacementUnavailable):
        publishing.cycle.sync()
    stop(placement)

    outcome = publishing.restarted().sync()

    assert (outcome.steps, outcome.problems) == ((), ())
    figures = {one["inventories"]["CUSTOM_GOLD"] for one in contents(placement).values()}
    assert figures == {(2, 0)}
    unchanged(publishing, placement)


# Failures that stop the whole sync.


@contextmanager
def at_write(
    placement: PlacementFixture, number: int, act: Callable[[], object]
) -> Iterator[Counter[str]]:
    """Call ``act`` before the n-th write to a provider; yield the number of writes."""
    writes: Counter[str] = Counter()
    lock = threading.Lock()

    def count(method: str, path: str) -> None:
        if method == "GET" or not path.startswith(("/resource_providers", "/reshaper")):
            return
        with lock:
            writes[method] += 1
            now = writes.total() == number
        if now:
            act()

    placement.adapter.before = count
    yield writes
    stop(placement)


def _in_time(call: Callable[[], CycleResult]) -> BaseException | None:
    """Return the error that the call raises in another thread; fail if the call hangs."""
    raised: list[BaseException | None] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)
        else:
            raised.append(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert raised, "it hangs"
    return raised[0]


def test_signal_during_a_sync_ends_it(publishing: Publishing, placement: PlacementFixture) -> None:
    fleet(publishing, 20)
    interrupted = threading.Event()

    def interrupt(*args: object) -> None:
        interrupted.set()
        raise KeyboardInterrupt

    def send() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupted.wait(PATIENCE)

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        with at_write(placement, 7, send), pytest.raises(KeyboardInterrupt):
            publishing.cycle.sync()
    finally:
        signal.signal(signal.SIGINT, before)

    assert not publishing.restarted().sync().problems
    assert len(contents(placement)) == 20


def test_sync_without_answers_on_several_connections_stops_all_of_them(
    publishing: Publishing, placement: PlacementFixture
) -> None:
    fleet(publishing, 20)
    together = threading.Barrier(4)

    def unavailable(method: str, path: str) -> None:
        if (method, path) == ("POST", "/resource_providers"):
            # A connection that begins another tree would wait here in vain.
            together.wait(PATIENCE / 2)
            raise PlacementUnavailable(request=path, status=0, code="", detail="cut off")

    placement.adapter.before = unavailable
    raised = _in_time(publishing.cycle.sync)
    stop(placement)

    assert isinstance(raised, PlacementUnavailable)
    assert not together.broken
    assert not contents(placement)


@ANYWHERE
def test_state_directory_that_fails_during_a_sync_stops_it(
    publishing: Publishing, placement: PlacementFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet(publishing, 20)
    saves = 0
    save = RecordBatch.save

    def fill_up(batch: RecordBatch) -> None:
        nonlocal saves
        saves += 1
        if saves > 2:
            raise WharfingerError(reason="the disk is full")
        save(batch)

    monkeypatch.setattr(apply, "BATCH", 5)
    monkeypatch.setattr(RecordBatch, "save", fill_up)
    raised = _in_time(publishing.cycle.sync)

    assert str(raised) == "the disk is full"
    # The intents of a batch are saved before its first request: only one batch was sent.
    assert len(contents(placement)) == 5
    monkeypatch.undo()
    assert not publishing.restarted().sync().problems
    assert len(contents(placement)) == 20
    unchanged(publishing, placement)
