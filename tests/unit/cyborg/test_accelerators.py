"""Snapshots of Cyborg's accelerators, their changes, and listings that are rejected."""

import pytest

from tests.lab.samples import uuid
from tests.unit.cyborg.samples import HOST, ScriptedCyborg, deployable, request
from wharfinger.exceptions import BackendError
from wharfinger_cyborg import accelerators as module
from wharfinger_cyborg.accelerators import Accelerators, Snapshot

PROVIDERS = [uuid(f"provider {number}") for number in range(4)]


class Clock:
    """The time, which a test sets; each listing of Cyborg takes ``slowness`` seconds."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slowness = 0.0

    def __call__(self) -> float:
        return self.now


class SlowCyborg(ScriptedCyborg):
    """A Cyborg whose listings advance the clock."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(deployable(0), deployable(1))
        self._clock = clock

    def _asked(self, what: str) -> None:
        self._clock.now += self._clock.slowness
        super()._asked(what)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "monotonic", clock)
    return clock


@pytest.fixture
def cyborg(clock: Clock) -> SlowCyborg:
    return SlowCyborg(clock)


@pytest.fixture
def accelerators(cyborg: SlowCyborg) -> Accelerators:
    """The accelerators after their first snapshot."""
    accelerators = Accelerators(cyborg, "fpga")
    accelerators.refresh()
    return accelerators


def test_snapshot_before_the_first_listing_is_empty(cyborg: SlowCyborg) -> None:
    assert Accelerators(cyborg, "fpga").snapshot == Snapshot()
    assert not cyborg.asked


def test_listing_reads_everything_and_asks_for_hosts_last(
    cyborg: SlowCyborg, accelerators: Accelerators
) -> None:
    assert accelerators.snapshot == Snapshot(
        frozenset({HOST}), {PROVIDERS[0]: deployable(0), PROVIDERS[1]: deployable(1)}, {}
    )
    # Hosts come last, so that a device which appears meanwhile has a known host, too.
    assert cyborg.asked == ["deployables", "binding", "hosts"]


# Rejected listings.


@pytest.mark.parametrize("what", ["deployables", "hosts"])
def test_empty_list_is_rejected(what: str, cyborg: SlowCyborg, accelerators: Accelerators) -> None:
    before = accelerators.snapshot
    if what == "hosts":
        cyborg.named = frozenset()
    else:
        cyborg.listed = []
    with pytest.raises(BackendError, match="the published providers stay") as caught:
        accelerators.refresh()
    assert "enabled_drivers" in str(caught.value)
    assert accelerators.snapshot is before


def test_two_deployables_with_one_provider_are_an_error_that_names_all(
    cyborg: SlowCyborg, accelerators: Accelerators
) -> None:
    before = accelerators.snapshot
    cyborg.listed.append(deployable(2, rp_uuid=PROVIDERS[0]))
    with pytest.raises(BackendError) as caught:
        accelerators.refresh()
    for named in (uuid("deployable 0"), uuid("deployable 2"), PROVIDERS[0]):
        assert named in str(caught.value)
    assert accelerators.snapshot is before


@pytest.mark.parametrize("what", ["deployables", "binding", "hosts"])
def test_failed_listing_keeps_the_snapshot(
    what: str, cyborg: SlowCyborg, accelerators: Accelerators
) -> None:
    before, mark = accelerators.snapshot, accelerators.mark()
    cyborg.listed.append(deployable(2))
    cyborg.fails[what] = BackendError(driver="fpga", operation=what, reason="no answer")
    with pytest.raises(BackendError, match="no answer"):
        accelerators.changed_since(mark)
    assert accelerators.snapshot is before
    assert accelerators.mark() == mark

    cyborg.fails.clear()
    assert accelerators.changed_since(mark)[0] == {PROVIDERS[2]}


# Changes.


def test_changed_since_without_a_change_is_empty(accelerators: Accelerators) -> None:
    changed, mark = accelerators.changed_since(accelerators.mark())
    assert changed == set()
    assert accelerators.changed_since(mark)[0] == set()


def test_added_removed_and_changed_deployables_are_reported_once(
    cyborg: SlowCyborg, accelerators: Accelerators
) -> None:
    mark = accelerators.mark()
    cyborg.listed = [deployable(0, num_accelerators=2), deployable(2)]
    changed, after = accelerators.changed_since(mark)
    assert changed == set(PROVIDERS[:3])
    assert accelerators.changed_since(after)[0] == set()
    # The old mark reports the changes again.
    assert accelerators.changed_since(mark)[0] == changed


def test_changes_accumulate_until_they_are_acknowledged(
    cyborg: SlowCyborg, accelerators: Accelerators
) -> None:
    mark = accelerators.mark()
    cyborg.listed.append(deployable(2))
    accelerators.refresh()
    cyborg.listed.append(deployable(3))
    assert accelerators.changed_since(mark)[0] == set(PROVIDERS[2:])


def test_start_and_end_of_a_binding_are_changes(
    cyborg: SlowCyborg, accelerators: Accelerators
) -> None:
    cyborg.requests = [request(0)]
    changed, mark = accelerators.changed_since(accelerators.mark())
    assert changed == {PROVIDERS[0]}
    cyborg.requests.append(request(1))
    changed, mark = accelerators.changed_since(mark)
    assert changed == {PROVIDERS[0]}
    cyborg.requests.reverse()
    changed, mark = accelerators.changed_since(mark)
    assert changed == set()
    cyborg.requests = []
    assert accelerators.changed_since(mark)[0] == {PROVIDERS[0]}


def test_changed_since_a_mark_of_another_process_is_everything(
    cyborg: SlowCyborg, accelerators: Accelerators
) -> None:
    earlier = Accelerators(cyborg, "fpga")
    earlier.refresh()
    assert earlier.mark() != accelerators.mark()
    changed, mark = accelerators.changed_since(earlier.mark())
    assert changed == set(PROVIDERS[:2])
    assert accelerators.changed_since(mark)[0] == set()


# Requests that are being bound.


def test_request_concerns_all_parts_of_a_device(
    cyborg: SlowCyborg, accelerators: Accelerators
) -> None:
    cyborg.listed = [deployable(0), deployable(1, device_id=0), deployable(2)]
    cyborg.requests = [request(1), request(0, device_rp_uuid=PROVIDERS[1])]
    accelerators.refresh()
    for provider in PROVIDERS[:2]:
        assert accelerators.snapshot.being_bound(provider) == sorted(
            [uuid("request 0"), uuid("request 1")]
        )
    for other in PROVIDERS[2:]:
        assert accelerators.snapshot.being_bound(other) == []


def test_request_without_a_device_concerns_none(
    cyborg: SlowCyborg, accelerators: Accelerators
) -> None:
    cyborg.requests = [request(0, device_rp_uuid=None), request(1, device_rp_uuid="unknown")]
    accelerators.refresh()
    for provider in (*PROVIDERS, "unknown"):
        assert accelerators.snapshot.being_bound(provider) == []


# Frequency of listings.


def test_polls_list_for_at_most_a_tenth_of_the_time(
    clock: Clock, cyborg: SlowCyborg, accelerators: Accelerators
) -> None:
    clock.slowness = 1.0
    accelerators.changed_since(accelerators.mark())
    cyborg.asked.clear()
    cyborg.listed.append(deployable(2))

    clock.now += 29.9
    changed, mark = accelerators.changed_since(accelerators.mark())
    assert (changed, cyborg.asked) == (set(), [])

    clock.now += 0.1
    assert accelerators.changed_since(mark)[0] == {PROVIDERS[2]}
    assert len(cyborg.asked) == 3


def test_complete_listing_is_not_delayed(
    clock: Clock, cyborg: SlowCyborg, accelerators: Accelerators
) -> None:
    clock.slowness = 2.0
    accelerators.refresh()
    accelerators.refresh()
    assert cyborg.asked.count("deployables") == 3


def test_slow_cyborg_is_listed_again_after_a_minute(
    clock: Clock, cyborg: SlowCyborg, accelerators: Accelerators
) -> None:
    clock.slowness = 30.0
    cyborg.fails["deployables"] = BackendError(driver="fpga", operation="listing", reason="late")
    with pytest.raises(BackendError):
        accelerators.changed_since(accelerators.mark())
    cyborg.asked.clear()

    clock.now += 59.0
    accelerators.changed_since(accelerators.mark())
    assert not cyborg.asked

    clock.now += 1.0
    with pytest.raises(BackendError):
        accelerators.changed_since(accelerators.mark())
