"""Cycles of an agent, and its behaviour when a driver fails or hangs."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.functional.agent.drivers import TIMEOUT, Fleet
from tests.functional.agent.running import SOON, Running
from tests.lab.cycles import contents
from tests.lab.placement import PlacementFixture
from tests.lab.reserving import summary
from wharfinger.agent import agent as agent_module
from wharfinger.agent.status import State
from wharfinger.exceptions import PlacementUnavailable, StateError
from wharfinger.objects import OWNER_TAG_VERSION
from wharfinger.reconcile.cycle import Reconciler
from wharfinger.reconcile.cycle_result import CycleResult
from wharfinger.reconcile.driver_instance_lock import exclusive
from wharfinger.tracker import service_record

Act = Callable[[], object]


@pytest.fixture
def metal() -> Fleet:
    return Fleet("metal-1", "metal-2")


@pytest.fixture
def spare() -> Fleet:
    return Fleet("spare-1")


@pytest.fixture
def running(
    placement: PlacementFixture, tmp_path: Path, metal: Fleet, spare: Fleet
) -> Iterator[Running]:
    with Running(placement, tmp_path, metal=metal, spare=spare) as running:
        yield running


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> "Reports":
    return Reports(monkeypatch)


class Reports:
    """Records the reports of the service after they are written."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._said: list[bool] = []
        self._written = threading.Condition()
        report = service_record.report

        def reported(*args: object, complete: bool) -> None:
            report(*args, complete=complete)  # type: ignore[arg-type]
            with self._written:
                self._said.append(complete)
                self._written.notify_all()

        monkeypatch.setattr(service_record, "report", reported)

    @property
    def completeness(self) -> list[bool]:
        with self._written:
            return list(self._said)

    def wait_for(self, more: int = 1, *, complete: bool = False) -> None:
        """Wait for this number of further reports; with ``complete``, only of complete cycles."""
        with self._written:
            here = len(self._said)
            assert self._written.wait_for(
                lambda: sum(one or not complete for one in self._said[here:]) >= more, TIMEOUT
            )


class Hanging:
    """A function that does not return until ``let_go()``."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self._go_on = threading.Event()

    def __call__(self) -> None:
        self.reached.set()
        self._go_on.wait()

    def let_go(self) -> None:
        self._go_on.set()


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    hanging = Hanging()
    yield hanging
    hanging.let_go()


def reserved(placement: PlacementFixture, name: str) -> int:
    figures: tuple[int, int] = contents(placement)[name]["inventories"]["CUSTOM_GOLD"]
    return figures[1]


def fails(error: BaseException) -> Act:
    def act() -> None:
        raise error

    return act


def first(error: BaseException) -> Act:
    """Return a function that raises the error in its first call only."""
    errors = [error]

    def act() -> None:
        if errors:
            raise errors.pop()

    return act


def assert_spare_publishes(
    running: Running, placement: PlacementFixture, spare: Fleet, times: int = 2
) -> None:
    """Change a node of the instance ``spare``, and assert that each change is published."""
    for number in range(times):
        reason = "" if number % 2 else "cleaning"
        spare.change("spare-1", reason)
        spare.await_calls("changed_nodes", 2)  # the first of these polls has ended
        assert reserved(placement, "spare-1") == bool(reason)


# Cycles.


def test_agent_publishes_all_instances_and_later_changes_by_polls(
    running: Running, placement: PlacementFixture, metal: Fleet, spare: Fleet
) -> None:
    running.start()
    running.log.wait_for("metal: 6 changes written")
    running.log.wait_for("spare: 3 changes written")

    metal.change("metal-2", "cleaning")
    running.log.wait_for("metal: 1 change written; reserved: metal-2")
    assert reserved(placement, "metal-2") == 1
    metal.change("metal-2")
    running.log.wait_for("metal: 1 change written; released: metal-2")
    assert reserved(placement, "metal-2") == 0

    before = running.log.lines()
    placement.requests.clear()
    for fleet in (metal, spare):
        fleet.await_calls(
            "changed_nodes", 5
        )  # polls without changes log nothing and send no request
    assert running.log.lines() == before
    assert placement.requests.seen == []
    assert metal.calls("get_available_nodes") == spare.calls("get_available_nodes") == 1


def test_drift_cycle_reverts_changes_of_other_programs_without_another_listing(
    running: Running, placement: PlacementFixture, metal: Fleet
) -> None:
    running.start(drift=SOON)
    running.log.wait_for("metal: 6 changes written")
    one = summary(placement, "metal-1")
    generation = placement.client.get_traits(one.uuid).resource_provider_generation
    placement.client.create_trait("CUSTOM_THEIRS")

    placement.client.set_traits(one.uuid, generation, ["CUSTOM_THEIRS", "OWNER_NOVA"])

    running.log.wait_for("metal: 1 change written")
    assert contents(placement)["metal-1"]["traits"] == {
        *("CUSTOM_THEIRS", "CUSTOM_WHARFINGER_METAL", "OWNER_NOVA")
    }
    assert metal.calls("get_available_nodes") == 1


def test_log_line_of_a_cycle_names_some_of_many_reserved_nodes(
    running: Running, metal: Fleet
) -> None:
    metal.nodes |= {f"n-{number:02}": "cleaning" for number in range(12)}

    running.start()

    names = ", ".join(f"n-{number:02}" for number in range(10))
    running.log.wait_for(f"metal: 42 changes written; reserved: {names} and 2 more")


# Failures.


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("__init__", KeyError("x")),
        ("init_host", OSError("away")),
        ("get_available_nodes", SystemExit(3)),
    ],
)
def test_failing_instance_is_started_again_and_other_instances_go_on(
    running: Running, placement: PlacementFixture, *, call: str, error: BaseException
) -> None:
    metal, spare = running.fleets.values()
    metal.acts[call] = fails(error)
    running.start(drift=0.05)
    told = f"metal: driver metal: {call} failed: {type(error).__name__}"
    running.log.wait_for(told)
    metal.await_calls(call, 3)

    assert_spare_publishes(running, placement, spare)
    # The instance has failed all the time.
    assert contents(placement).keys() == {"spare-1"}
    assert len(running.log.lines(told)) == 1
    assert not metal.calls("update_provider_tree")

    del metal.acts[call]
    running.log.wait_for(f"metal: solved: driver metal: {call}")
    running.log.wait_for("metal: 6 changes written")


def test_instance_locked_by_another_process_starts_after_the_lock_is_released(
    running: Running, placement: PlacementFixture, spare: Fleet
) -> None:
    """A third instance, which cannot be loaded, is reported; the second one goes on."""
    with exclusive(running.state, "metal"):
        running.start("[none]\ndriver = nothing-like-it\n", drivers=["none"], drift=0.1)
        running.log.wait_for("is at work on driver instance metal")
        running.log.wait_for("driver nothing-like-it cannot be loaded: entry point: found none")
        assert_spare_publishes(running, placement, spare)
        assert contents(placement).keys() == {"spare-1"}

    running.log.wait_for("metal: 6 changes written")
    assert len(running.log.lines("none: ")) == 1


def test_listing_that_fails_later_is_logged_once_and_polls_go_on(
    running: Running, placement: PlacementFixture, metal: Fleet
) -> None:
    metal.acts["get_available_nodes"] = first(OSError("away"))
    running.start(drift=0.05, full=0.05)
    running.log.wait_for("metal: solved: driver metal: get_available_nodes failed: OSError: away")
    metal.acts["get_available_nodes"] = fails(OSError("away again"))
    running.log.wait_for("away again")
    metal.await_calls("get_available_nodes", 5)

    metal.change("metal-1", "cleaning")
    running.log.wait_for("reserved: metal-1")

    assert len(running.log.lines("metal: driver metal: get_available_nodes")) == 2
    assert len(running.log.lines("solved: ")) == 1


def test_failing_node_is_logged_once_by_all_cycle_types_and_other_nodes_are_published(
    running: Running, placement: PlacementFixture, metal: Fleet
) -> None:
    running.start(drift=SOON, full=0.05)
    running.log.wait_for("metal: 6 changes written")
    metal.nodes[""] = ""  # an invalid name
    metal.nodes["metal-3"] = ""  # the change feed does not report this node
    running.log.wait_for("metal: driver metal: provider : ")
    running.log.wait_for("metal: 3 changes written")
    metal.await_calls("get_available_nodes", 3)  # there are other cycles between these listings
    metal.change("metal-1", "cleaning")
    running.log.wait_for("reserved: metal-1")

    del metal.nodes[""]
    running.log.wait_for("solved: ")

    first, over = running.log.lines("provider : ")
    assert over == first.replace("metal: ", "metal: solved: ", 1)


def test_problem_of_a_poll_ends_when_a_full_cycle_does_not_find_it(
    running: Running, metal: Fleet
) -> None:
    running.start(drift=0.05, full=0.5)
    running.log.wait_for("metal: 6 changes written")
    metal.acts["update_provider_tree"] = fails(OSError("no node"))
    metal.change("metal-1", "cleaning")
    running.log.wait_for("metal: driver metal: ")
    for _ in range(2):  # these cycles do not end the problem
        metal.await_calls("changed_nodes", 10)
        metal.await_calls("get_available_nodes")

    del metal.acts["update_provider_tree"]
    running.log.wait_for("solved: driver metal: update_provider_tree(metal-1)")

    named = [line for line in running.log.lines("no node") if "metal-1" in line]
    assert len(named) == 2
    assert named[1] == named[0].replace("metal: ", "metal: solved: ", 1)


@pytest.mark.parametrize("kind", [KeyError, SystemExit])
def test_unexpected_exception_is_logged_with_its_traceback_and_the_next_cycle_goes_on(
    running: Running, metal: Fleet, monkeypatch: pytest.MonkeyPatch, kind: type[BaseException]
) -> None:
    def fault(*_args: object, **_more: object) -> None:
        raise kind("nothing")

    running.start()
    running.log.wait_for("metal: 6 changes written")
    with monkeypatch.context() as patch:
        patch.setattr(Reconciler, "poll", fault)
        running.log.wait_for(f"metal: {kind.__name__}: ")
    running.log.wait_for(f"metal: solved: {kind.__name__}: ")
    metal.change("metal-1", "cleaning")
    running.log.wait_for("reserved: metal-1")

    told, over = (
        one for one in running.log.records(kind.__name__) if one.getMessage().startswith("metal: ")
    )
    assert told.exc_info is not None
    assert over.exc_info is None


def test_outage_during_a_drift_cycle_ends_with_the_next_drift_cycle(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No full cycle runs, which would end problems of other kinds."""
    failed = threading.Semaphore(0)
    drift = Reconciler.drift

    def fail(cycle: Reconciler, **more: object) -> CycleResult:
        if cycle.instance == "metal":
            failed.release()
        away = PlacementUnavailable(request="GET /traits", detail="no answer")
        return drift(cycle, **more).with_problems([away])  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Reconciler, "drift", fail)
        running.start(drift=SOON)
        for _ in range(3):
            assert failed.acquire(timeout=TIMEOUT)
    running.log.wait_for("metal: solved: Placement: GET /traits: no answer")

    assert len(running.log.lines("metal: Placement: GET /traits: no answer")) == 1


# Hanging drivers, and the service.


def test_hanging_driver_leaves_other_instances_running_and_the_service_up(
    running: Running, placement: PlacementFixture, reports: Reports, hanging: Hanging
) -> None:
    metal, spare = running.fleets.values()
    metal.acts["get_available_nodes"] = hanging
    running.start()
    assert hanging.reached.wait(TIMEOUT)
    assert_spare_publishes(running, placement, spare)

    before = running.service()
    reports.wait_for(2)
    after = running.service()

    assert after.report_count >= before.report_count + 2
    assert after.last_seen_up is not None
    assert before.last_seen_up is not None
    assert after.last_seen_up >= before.last_seen_up
    assert not any(reports.completeness)
    assert (after.version, list(after.owners)) == (1, ["OWNER_NOVA"])

    hanging.let_go()
    reports.wait_for(complete=True)
    assert running.service().version == OWNER_TAG_VERSION


def test_agent_whose_instances_all_hang_stops_reporting_its_service(
    running: Running, reports: Reports, hanging: Hanging
) -> None:
    """A single working instance keeps the service up."""
    metal, spare = running.fleets.values()
    metal.acts["get_available_nodes"] = hanging
    running.start(hang=0.5)
    assert hanging.reached.wait(TIMEOUT)
    running.log.wait_for("metal: the driver has not returned from get_available_nodes")
    reports.wait_for(2)
    assert running.state_of("metal") is State.WEDGED
    assert running.state_of("spare") is State.RUNNING

    also_hanging = Hanging()
    spare.acts["changed_nodes"] = also_hanging
    running.log.wait_for(
        "the service of host test-host is not reported as up: no driver instance works"
    )
    count = running.service().report_count
    assert running.agent.status().service_error
    assert running.service().report_count == count

    also_hanging.let_go()
    del spare.acts["changed_nodes"]
    hanging.let_go()
    reports.wait_for()
    running.log.wait_for("the service of host test-host is reported as up again")
    running.log.wait_for("metal: the driver call that hung has returned")


def test_service_is_complete_when_a_full_cycle_of_every_instance_had_no_problem(
    running: Running, metal: Fleet, reports: Reports
) -> None:
    metal.acts["init_host"] = fails(OSError("away"))
    metal.nodes[""] = ""  # an invalid name
    running.start(drift=SOON, full=SOON)
    running.log.wait_for("spare: 3 changes written")
    reports.wait_for(2)
    del metal.acts["init_host"]
    running.log.wait_for("metal: 6 changes written")
    reports.wait_for(2)
    assert not any(reports.completeness)

    del metal.nodes[""]
    reports.wait_for(complete=True)

    service = running.service()
    assert (service.version, list(service.owners)) == (OWNER_TAG_VERSION, ["OWNER_NOVA"])


def test_failing_report_of_the_service_is_logged_once_and_the_agent_goes_on(
    running: Running,
    placement: PlacementFixture,
    spare: Fleet,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failed = threading.Semaphore(0)

    def fail(*_args: object, **_more: object) -> None:
        failed.release()
        raise StateError(path="the database", problem="it is away.", remedy="Look.")

    with monkeypatch.context() as patch:
        patch.setattr(service_record, "report", fail)
        running.start()
        for _ in range(3):
            assert failed.acquire(timeout=TIMEOUT)
        assert_spare_publishes(running, placement, spare)
    running.log.wait_for("the service of host test-host is reported as up again")

    assert len(running.log.lines("the service of host test-host is not reported as up")) == 1


# The end.


def test_stopped_agent_releases_backends_and_locks(
    running: Running, metal: Fleet, spare: Fleet
) -> None:
    running.start()
    running.log.wait_for("metal: 6 changes written")
    running.log.wait_for("spare: 3 changes written")

    running.stop()

    assert running.left == ()
    assert metal.calls("cleanup_host") == spare.calls("cleanup_host") == 1
    for name in ("metal", "spare"):
        with exclusive(running.state, name):
            pass
    assert running.log.lines()[-1] == "the agent of host test-host stops"


def test_cycle_in_progress_is_completed_after_a_stop(
    running: Running, placement: PlacementFixture, metal: Fleet, hanging: Hanging
) -> None:
    metal.acts["get_available_nodes"] = hanging
    running.start()
    assert hanging.reached.wait(TIMEOUT)

    running.agent.stop()
    running.log.wait_for("stops")
    hanging.let_go()
    running.stop()

    assert running.left == ()
    assert contents(placement).keys() >= {"metal-1", "metal-2"}
    assert metal.calls("cleanup_host") == 1
    assert metal.calls("changed_nodes") == 1


def test_agent_that_stops_names_and_abandons_a_hanging_instance(
    running: Running,
    placement: PlacementFixture,
    hanging: Hanging,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agent_module, "PATIENCE", 3.0)
    running.fleets["metal"].acts["get_available_nodes"] = hanging
    running.start()
    assert hanging.reached.wait(TIMEOUT)
    assert_spare_publishes(running, placement, running.fleets["spare"])

    running.stop()

    assert running.left == ("metal",)
    assert running.log.lines("metal: still at work 3 s after the request to stop")
    threads = [one for one in threading.enumerate() if one.name == "metal"]
    assert threads
    hanging.let_go()
    for thread in threads:
        thread.join(TIMEOUT)


def test_agent_stopped_before_its_start_ends_at_once(
    running: Running, placement: PlacementFixture
) -> None:
    stopped = running.make_agent(running.configure())
    stopped.stop()

    assert stopped.run() == ()
