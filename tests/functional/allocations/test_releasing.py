"""Releases of instances and of their moves, which may be interrupted anywhere."""

from collections.abc import Callable
from contextlib import nullcontext, suppress
from itertools import count
from pathlib import Path

import pytest

from tests.lab.allocating import Desk, faults, flavor, held
from tests.lab.claimants import Rehearsal, anew, nothing_is_left, reserved, settled, there_are
from tests.lab.claiming import noted, taken
from tests.lab.cycles import HOST, Publishing, everything
from tests.lab.drawing import Draw
from tests.lab.faults import FAULTS, Interceptor
from tests.lab.histories import on
from tests.lab.moments import Moments
from tests.lab.placement import adapter_to
from tests.lab.reserving import CleaningDriver, rows, summary
from tests.lab.samples import uuid
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.exceptions import (
    AllocationRefused,
    IntentExpired,
    NoCandidates,
    ObjectNotFound,
    PlacementError,
)
from wharfinger.objects import Instance, Migration, MigrationList

ONE = uuid("an instance")
SMALL, WHOLE = flavor("small"), flavor("whole", 2)
FREE = {(HOST, "cn-0"): (0, 0, 0), (HOST, "cn-1"): (0, 0, 0)}


def rehearsed(
    publishing: Publishing, act: Callable[[], object], *, reads: bool = False
) -> Rehearsal:
    return Rehearsal(publishing.placement, publishing.state_path, act, reads=reads)


# Instances.


def test_release_deletes_allocations_and_reserves_nothing(
    desk: Desk, publishing: Publishing
) -> None:
    desk.claim(SMALL, uuid=ONE)
    other = desk.claim(SMALL).instance
    before = {name: one["inventories"] for name, one in everything().items()}
    publishing.placement.requests.clear()

    assert desk.claims.release(ONE) == ()

    assert [one.partition("?")[0] for one in publishing.placement.requests.seen] == [
        f"GET /allocations/{ONE}",
        "GET /resource_providers",
        "POST /allocations",
    ]
    assert held() == {other.uuid: {str(other.node): {"VCPU": 1}}}
    assert there_are(publishing.context) == [other.uuid]
    assert noted(publishing.context) == FREE | {(HOST, str(other.node)): (1, 0, 0)}
    assert rows(publishing.context) == {}
    assert {name: one["inventories"] for name, one in everything().items()} == before
    assert faults(publishing.context) == []


def test_release_of_a_missing_instance_is_refused_and_of_one_without_allocation_succeeds(
    desk: Desk, publishing: Publishing
) -> None:
    before = everything()
    for is_there in (False, True):
        if is_there:
            desk.claim(SMALL, uuid=ONE)
            desk.client.delete_allocations(ONE)
            desk.claims.release(ONE)
        with pytest.raises(ObjectNotFound, match=ONE):
            desk.claims.release(ONE)
        assert {name: one["allocations"] for name, one in everything().items()} == {
            name: one["allocations"] for name, one in before.items()
        }
    assert nothing_is_left(publishing.context)
    assert noted(publishing.context) == FREE


def test_release_of_an_instance_on_an_absent_node_succeeds(
    desk: Desk, publishing: Publishing
) -> None:
    desk.claim(SMALL, uuid=ONE)
    [node] = held()[ONE]
    desk.claims.release(desk.claim(SMALL).instance.uuid)
    del publishing.driver.nodes[node]
    publishing.allow_mass_removal = True
    for _ in range(2):  # two listings lack the node, but its allocation keeps it
        publishing.restarted().sync()

    desk.claims.release(ONE)
    assert nothing_is_left(publishing.context)
    assert settled(publishing) == []


# Providers that are cleaned.


def test_released_node_is_reserved_from_before_its_release_until_it_is_clean(
    metal: Desk, publishing: Publishing
) -> None:
    nodes = [str(metal.claim(WHOLE, uuid=one).instance.node) for one in (ONE, uuid("other"))]
    provider = summary(publishing.placement, nodes[0]).uuid
    publishing.placement.requests.clear()

    [reservation] = metal.claims.release(ONE)

    assert publishing.placement.requests.writes == [
        f"PUT /resource_providers/{provider}/inventories",
        "POST /allocations",
    ]
    assert (reservation.provider_uuid, reservation.consumer_uuid) == (provider, ONE)
    assert (reservation.phase, reserved(publishing.placement)) == ("released", {nodes[0]})
    metal.claims.release(uuid("other"))
    assert nothing_is_left(publishing.context)
    with pytest.raises(NoCandidates):
        metal.claim(SMALL)

    driver = publishing.driver
    assert isinstance(driver, CleaningDriver)
    driver.clean |= {one["uuid"] for one in everything().values()}
    for cycle_type in ("drift", "poll", "sync"):
        getattr(publishing.cycle, cycle_type)()
    assert {str(metal.claim(WHOLE).instance.node) for _ in range(2)} == set(nodes)
    assert faults(publishing.context) == []


def test_release_sends_no_write_of_an_intent_older_than_half_of_service_down_time(
    metal: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metal.claim(WHOLE, uuid=ONE)
    before = {name: one["inventories"] for name, one in everything().items()}
    monkeypatch.setattr("wharfinger.reconcile.apply.boottime", count(step=6).__next__)
    config = tmp_path / "wharfinger.conf"
    for seconds, outcome in ((10, pytest.raises(IntentExpired)), (14, nullcontext())):
        config.write_text(f"[DEFAULT]\nservice_down_time = {seconds}\n", "ascii")
        with Desk(metal.client, metal.context, config) as desk, outcome:
            desk.claims.release(ONE)
        is_written = {name: one["inventories"] for name, one in everything().items()} != before
        assert is_written == (seconds == 14)


def test_released_node_can_never_be_claimed_before_it_is_clean(
    metal: Desk, publishing: Publishing, draw: Draw
) -> None:
    metal.claim(WHOLE)
    metal.claim(WHOLE, uuid=ONE)
    release = rehearsed(publishing, lambda: metal.claims.release(ONE), reads=True)
    with anew(publishing) as other:

        def claim() -> None:
            with pytest.raises(NoCandidates):
                other.claim(SMALL)

        for number, name in draw(release.steps, 3):
            release.interrupted(number, claim)
            assert len(held()) == len(there_are(publishing.context)) == 1, name
            assert faults(publishing.context) == [], name


def test_release_that_dies_at_any_step_leaves_no_unclean_node_to_claim(
    metal: Desk, publishing: Publishing, draw: Draw
) -> None:
    metal.claim(WHOLE)
    node = str(metal.claim(WHOLE, uuid=ONE).instance.node)
    release = rehearsed(publishing, lambda: metal.claims.release(ONE))
    for number, name in draw(release.steps, 3):
        release.die(number)
        with anew(publishing) as late:
            with pytest.raises(NoCandidates):
                late.claim(SMALL)
            with suppress(ObjectNotFound):
                late.claims.release(ONE)
        assert ONE not in held(), name
        assert [one.phase for one in rows(publishing.context).values()] == ["released"], name
        assert reserved(publishing.placement) == {node}, name
        assert settled(publishing) == [], name


# Interrupted releases.


def test_instance_whose_release_has_begun_cannot_be_claimed_again(
    desk: Desk, publishing: Publishing
) -> None:
    desk.claim(SMALL, uuid=ONE)
    release = rehearsed(publishing, lambda: desk.claims.release(ONE))
    ends = []
    for number, name in release.steps:
        release.die(number)
        with anew(publishing) as late:
            try:
                late.claim(SMALL, uuid=ONE)
            except AllocationRefused as error:
                assert "release the instance again" in str(error)
                ends.append("refused")
                late.claims.release(ONE)
                assert nothing_is_left(publishing.context)
                late.claim(SMALL, uuid=ONE)
            else:
                ends.append("claimed")
        assert [len(its) for its in held().values()] == [1], name
        assert settled(publishing) == [], name
        assert noted(publishing.context) == taken(publishing.context), name
    # A claim succeeds before the release's first write, and after its last one.
    assert ends[0] == ends[-1] == "claimed"
    assert ends.count("refused") >= 2


#: Faults: request not carried out, carried out without an answer, or with a wrong answer.
SWEPT = ["409", "500", "500 when done", "nonsense when done"]


def test_release_with_a_failed_request_is_finished_by_a_repeat(
    metal: Desk, publishing: Publishing, interceptor: Interceptor, draw: Draw
) -> None:
    """The release is during a move, because that takes the most requests."""
    node = str(metal.claim(SMALL, uuid=ONE).instance.node)
    metal.moves.start(ONE, WHOLE, suits=lambda its: its.hypervisor_hostname != node)
    moments = Moments(publishing.state_path)
    beginning = moments.take()

    def late() -> Desk:
        return Desk(WritingClient(adapter_to(interceptor.url)), metal.context)

    with late() as whole:
        whole.claims.release(ONE)
    requests = [one.partition("?")[0] for one in interceptor.seen]
    assert requests.count("POST /allocations") == 2
    cases = [(fault, number) for fault in SWEPT for number in range(len(requests))]
    for fault, number in draw(cases, 3):
        case = (fault, requests[number])
        moments.go_back(beginning)
        with late() as broken:
            interceptor.expect(number, FAULTS[fault])
            with suppress(PlacementError):
                broken.claims.release(ONE)
            assert interceptor.struck, case
        interceptor.expect()
        with late() as repaired:
            if there_are(publishing.context):
                repaired.claims.release(ONE)
        assert nothing_is_left(publishing.context), case
        phases = [one.phase for one in rows(publishing.context).values()]
        assert phases == ["released", "released"], case
        assert faults(publishing.context) == [], case


# During a move.

#: The status at the end of a move by its status when the instance is released.
ENDS = {
    "accepted": "failed",
    "accepted, allocated": "failed",
    "pre-migrating": "failed",
    "finished": "confirmed",
    "confirming": "confirmed",
    "reverting": "reverted",
}


def moving(desk: Desk, publishing: Publishing, status: str) -> Migration:
    """Start a move from cn-0 to cn-1, and let it reach this status; return it."""
    desk.claim(SMALL, uuid=ONE, suits=on("cn-0"))

    def start() -> None:
        desk.moves.start(ONE, WHOLE, suits=on("cn-1"))

    dies_at = {
        "accepted": "before POST /allocations",
        "accepted, allocated": "after POST /allocations",
        "pre-migrating": "after save NodeClaim",
    }
    if status in dies_at:
        rehearsed(publishing, start).die_at(dies_at[status])
    else:
        start()
    [migration] = MigrationList.get_by_filters(publishing.context, instance_uuid=ONE)
    if status in {"confirming", "reverting"}:
        migration.status = status
        migration.save()
    assert migration.status == status.partition(",")[0]
    return migration


@pytest.mark.parametrize("status", ENDS)
def test_release_during_a_move_ends_it_with_its_allocations(
    desk: Desk, publishing: Publishing, draw: Draw, status: str
) -> None:
    migration = moving(desk, publishing, status)
    assert (migration.uuid in held()) is (status != "accepted")
    release = rehearsed(publishing, lambda: desk.claims.release(ONE))

    def is_over() -> bool:
        ended = Migration.get_by_uuid(publishing.context, migration.uuid)
        assert ended.status == ENDS[status]
        assert settled(publishing) == []
        assert noted(publishing.context) == FREE
        return nothing_is_left(publishing.context)

    desk.claims.release(ONE)
    assert is_over()

    for number, name in draw(release.steps, 1):  # a release dies, and the next one completes it
        release.die(number)
        with anew(publishing) as late:
            if there_are(publishing.context):
                late.claims.release(ONE)
        assert is_over(), name

    release.go_back()  # another program deletes the instance
    desk.client.delete_allocations(ONE)
    Instance.get_by_uuid(publishing.context, ONE).destroy()
    [left] = desk.moves.interrupted()
    assert left.status == migration.status
    for _ in range(2):
        ended, _ = desk.moves.recover(left)
        assert not ended.is_in_progress
    assert nothing_is_left(publishing.context)


def test_release_during_a_move_cleans_source_and_destination(
    metal: Desk, publishing: Publishing
) -> None:
    migration = moving(metal, publishing, "finished")
    held_for = metal.claims.release(ONE)

    assert {one.consumer_uuid for one in held_for} == {ONE, migration.uuid}
    assert reserved(publishing.placement) == {"cn-0", "cn-1"}
    assert nothing_is_left(publishing.context)
    assert noted(publishing.context) == taken(publishing.context)
    for act in (metal.moves.confirm, metal.moves.revert, metal.claims.release):
        with pytest.raises(ObjectNotFound):
            act(ONE)
