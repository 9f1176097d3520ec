"""Resources that instances use on nodes, after claims, moves and deletions."""

import random
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from threading import Barrier
from typing import Any

import pytest

from tests.functional.reconcile.places import ANYWHERE
from tests.lab import claiming
from tests.lab.claiming import NOTHING, flavor, instance, lead, migration, noted, taken
from tests.lab.cycles import HOST, Publishing
from tests.lab.drawing import Draw
from tests.lab.drivers import flat
from tests.lab.objects import opened, statements
from tests.lab.placement import PlacementFixture
from wharfinger.db.database import FILE_NAME
from wharfinger.exceptions import (
    ClaimRefused,
    ConcurrentSave,
    ObjectError,
    ObjectExists,
    ObjectNotFound,
    StateError,
    WharfingerError,
)
from wharfinger.objects import (
    ComputeNode,
    ComputeNodeList,
    Context,
    HostState,
    Instance,
    InstanceList,
    Migration,
    MigrationList,
    NodeClaim,
    Takeover,
)
from wharfinger.tracker import instance_claims
from wharfinger.tracker.instance_claims import Claims, End
from wharfinger.tracker.overlaid_nodes import nodes_named
from wharfinger.tracker.usage import Usage, usage_of_node

pytestmark = ANYWHERE

FAR = "far-host"
#: Two nodes of this host, and a node of another host.
ONE, OTHER, AWAY = (HOST, "cn-0"), (HOST, "cn-1"), (FAR, "cn-far")
SMALL = {"vcpus": 2, "memory_mb": 512, "root_gb": 3, "ephemeral_gb": 4}
SMALL_SUM, LARGE_SUM = (2, 512, 7), (5, 2048, 20)
#: By type of move: the statuses before its source can be dropped, and the final one.
MOVES = {
    "resize": (("migrating", "post-migrating", "finished"), "confirmed"),
    "migration": (("migrating", "post-migrating", "finished"), "confirmed"),
    "live-migration": (("preparing", "running"), "completed"),
    "evacuation": ((), "done"),
}


@pytest.fixture
def far(publishing: Publishing, placement: PlacementFixture) -> Iterator[Publishing]:
    """A driver instance on another host, with the same database."""
    with Publishing(placement, publishing.state_path, name="far", host=FAR) as fixture:
        fixture.driver.nodes["cn-far"] = flat(VCPU=8)
        fixture.cycle.sync()
        yield fixture


@pytest.fixture
def here(publishing: Publishing) -> Claims:
    publishing.driver.nodes |= {"cn-0": flat(VCPU=8), "cn-1": flat(VCPU=8)}
    publishing.cycle.sync()
    return Claims(publishing.context, HOST)


@pytest.fixture
def there(far: Publishing) -> Claims:
    return Claims(far.context, FAR)


def small(context: Context, place: claiming.Place | None = None) -> Instance:
    return instance(context, place=place, **SMALL)


def large() -> Any:
    return flavor(vcpus=5, memory_mb=2048, root_gb=20)


def place_of(context: Context, one: Instance) -> tuple[str | None, str | None]:
    found = Instance.get_by_uuid(context, one.uuid)
    return found.host, found.node


def is_right(context: Context, **known: claiming.Amounts) -> bool:
    """Return whether the nodes' rows have these used amounts, and 0 for other nodes.

    Assert that the rows also agree with instances and moves.
    """
    said = noted(context)
    assert said == taken(context)
    return {node: what for (_, node), what in said.items() if what != NOTHING} == {
        node.replace("_", "-"): what for node, what in known.items() if what != NOTHING
    }


def written(publishing: Publishing) -> dict[str, list[Any]]:
    """Return all rows that claims write."""
    with closing(sqlite3.connect(publishing.state_path / FILE_NAME)) as connection:
        return {
            table: connection.execute(f"SELECT * FROM {table} ORDER BY id").fetchall()
            for table in ("compute_nodes", "instances", "migrations")
        }


def execute(publishing: Publishing, statement: str) -> None:
    with closing(sqlite3.connect(publishing.state_path / FILE_NAME)) as database, database:
        database.execute(statement)


def refused(
    publishing: Publishing,
    match: str,
    claim: Callable[..., object],
    *args: object,
    error: type[WharfingerError] = ClaimRefused,
) -> WharfingerError:
    """Return the error with which a claim is refused; assert that nothing is written."""
    before = written(publishing)
    with pytest.raises(error, match=match) as caught:
        claim(*args)
    assert written(publishing) == before
    return caught.value


# Instances.


def test_instance_claim_counts_the_flavor_of_each_instance_once(
    publishing: Publishing, here: Claims
) -> None:
    context = publishing.context
    one = small(context)
    here.instance_claim(one, "cn-0")
    assert place_of(context, one) == (one.host, one.node) == ONE
    assert is_right(context, cn_0=SMALL_SUM)

    here.instance_claim(one, "cn-0")
    here.instance_claim(Instance.get_by_uuid(context, one.uuid), "cn-0")
    here.instance_claim(instance(context, vcpus=1), "cn-0")
    here.instance_claim(small(context), "cn-1")
    assert Instance.get_by_uuid(context, one.uuid).revision == 2
    assert is_right(context, cn_0=(3, 512, 7), cn_1=SMALL_SUM)


def test_aborted_claim_leaves_nothing(publishing: Publishing, here: Claims) -> None:
    context = publishing.context
    one = small(context)
    here.instance_claim(one, "cn-0")
    for _ in range(2):
        here.abort_instance_claim(one, "cn-0")
        assert place_of(context, one) == (None, None)
        assert is_right(context)


def test_aborted_claim_keeps_an_instance_that_moved_away(
    publishing: Publishing, here: Claims, far: Publishing
) -> None:
    context = publishing.context
    one = small(context)
    here.instance_claim(one, "cn-0")
    one.host, one.node = AWAY
    one.save()
    here.abort_instance_claim(one, "cn-0")
    assert place_of(context, one) == AWAY
    assert noted(context)[ONE] == NOTHING


# Refused claims.


def test_claim_that_contradicts_the_place_of_an_instance_is_refused(
    publishing: Publishing, here: Claims
) -> None:
    context = publishing.context
    for place in (OTHER, AWAY):
        one = small(context, place)
        where = f"on node {place[1]} of host {place[0]}"
        error = refused(publishing, where, here.instance_claim, one, "cn-0")
        assert error.facts.keys() >= {"instance", "node", "host"}
        assert (one.host, one.node) == place
    one, other = small(context, ONE), small(context, ONE)
    for status in ("confirmed", "reverted", "failed", "error", "completed"):
        ended = migration(context, one, ONE, status=status)
        is_over = f"migration {ended.uuid} of instance {one.uuid} has status {status}"
        refused(publishing, is_over, here.move_claim, one, "cn-1", ended)
    of_other = migration(context, other, ONE)
    refused(publishing, other.uuid, here.move_claim, one, "cn-1", of_other)
    for end in End:
        refused(publishing, other.uuid, here.drop_move_claim, one, of_other, end)


def test_claim_of_a_node_without_a_row_of_this_host_is_refused(
    publishing: Publishing, here: Claims, far: Publishing
) -> None:
    new, old = small(publishing.context), small(publishing.context, OTHER)
    begun = migration(publishing.context, old, OTHER)
    for node in ("cn-far", "nowhere", "CN-0"):
        refused(publishing, node, here.instance_claim, new, node, error=ObjectNotFound)
        claim = here.move_claim, old, node, begun
        refused(publishing, node, *claim, error=ObjectNotFound)
    assert new.node is None


@pytest.mark.parametrize("error", [ConcurrentSave, ObjectNotFound])
def test_claim_of_a_node_that_goes_meanwhile_leaves_the_instance_on_no_node(
    publishing: Publishing,
    here: Claims,
    monkeypatch: pytest.MonkeyPatch,
    error: type[WharfingerError],
) -> None:
    one = small(publishing.context)

    def meanwhile(*args: Any) -> list[ComputeNode]:
        found = nodes_named(*args)
        [row] = ComputeNodeList.get_by_filters(publishing.context, hypervisor_hostname="cn-0")
        if error is ObjectNotFound:
            row.destroy()
        else:
            Takeover(publishing.context, host=FAR, driver_instance="far", nodes=[row]).save()
        return found

    monkeypatch.setattr(instance_claims, "nodes_named", meanwhile)
    with pytest.raises(error):
        here.instance_claim(one, "cn-0")
    assert (one.host, one.node) == place_of(publishing.context, one) == (None, None)


def test_drop_of_a_move_claim_in_a_wrong_status_is_refused(
    publishing: Publishing, here: Claims
) -> None:
    too_early = ("migrating", "post-migrating", "reverting", "reverted", "failed", "queued")
    too_late = ("confirming", "confirmed", "completed", "done")
    for end, statuses in ((End.SOURCE, too_early), (End.DESTINATION, too_late)):
        for status in statuses:
            one = small(publishing.context, ONE)
            to = {"status": status, "dest_compute": HOST, "dest_node": "cn-1"}
            move = migration(publishing.context, one, ONE, **to)
            refused(publishing, f"is {status}", here.drop_move_claim, one, move, end)


# Moves.


@pytest.mark.parametrize("kind", MOVES)
def test_move_between_hosts_counts_at_both_until_its_source_is_dropped(
    publishing: Publishing, here: Claims, there: Claims, kind: str
) -> None:
    context = publishing.context
    one = small(context)
    here.instance_claim(one, "cn-0")
    wanted = large() if kind == "resize" else one.flavor
    there_sum = LARGE_SUM if kind == "resize" else SMALL_SUM
    statuses, over = MOVES[kind]

    move = migration(context, one, ONE, kind=kind, new_flavor=wanted)
    there.move_claim(one, "cn-far", move)
    assert is_right(context, cn_0=SMALL_SUM, cn_far=there_sum)
    for status in statuses:
        lead(move, status)
        publishing.cycle.drift()
        assert is_right(context, cn_0=SMALL_SUM, cn_far=there_sum)

    mine = Migration.get_by_uuid(context, move.uuid)
    for _ in range(2):
        here.drop_move_claim(one, mine, End.SOURCE)
        assert (one.host, one.node) == AWAY
        assert one.flavor.vcpus == wanted.vcpus
        assert Migration.get_by_uuid(context, move.uuid).status == over
        assert is_right(context, cn_far=there_sum)


@pytest.mark.parametrize("kind", MOVES)
def test_aborted_move_leaves_the_instance_at_its_source(
    publishing: Publishing, here: Claims, there: Claims, kind: str
) -> None:
    context = publishing.context
    one = small(context)
    here.instance_claim(one, "cn-0")
    statuses, _over = MOVES[kind]
    for far_on in range(len(statuses) + 1):
        move = migration(context, one, ONE, kind=kind, new_flavor=large())
        there.move_claim(one, "cn-far", move)
        lead(move, *statuses[:far_on])
        for _ in range(2):
            there.drop_move_claim(one, move, End.DESTINATION)
            assert place_of(context, one) == ONE
            assert Instance.get_by_uuid(context, one.uuid).flavor.vcpus == 2
            assert not move.is_in_progress
            # The source counts the instance again; the destination counts nothing.
            assert is_right(context, cn_0=SMALL_SUM), far_on


@pytest.mark.parametrize("dropped", End)
@pytest.mark.parametrize("node", ["cn-0", "cn-1"])
def test_resize_on_one_host_counts_both_flavors_until_it_ends(
    publishing: Publishing, here: Claims, node: str, dropped: End
) -> None:
    context = publishing.context
    one = small(context)
    here.instance_claim(one, "cn-0")
    move = migration(context, one, ONE, kind="resize", new_flavor=large())
    here.move_claim(one, node, move)
    both = {"cn_0": SMALL_SUM, "cn_1": LARGE_SUM} if node == "cn-1" else {"cn_0": (7, 2560, 27)}
    assert is_right(context, **both)
    lead(move, "migrating", "post-migrating", "finished")
    here.drop_move_claim(one, move, dropped)
    left = {node: LARGE_SUM} if dropped is End.SOURCE else {"cn-0": SMALL_SUM}
    assert is_right(context, **left)


def test_move_claimed_again_counts_once(
    publishing: Publishing, here: Claims, there: Claims
) -> None:
    one = small(publishing.context)
    here.instance_claim(one, "cn-0")
    move = migration(publishing.context, one, ONE, kind="resize", new_flavor=large())
    for _ in range(3):
        there.move_claim(one, "cn-far", move)
    assert is_right(publishing.context, cn_0=SMALL_SUM, cn_far=LARGE_SUM)


def test_move_claimed_again_for_another_node_releases_the_first(
    publishing: Publishing, here: Claims
) -> None:
    one = small(publishing.context)
    here.instance_claim(one, "cn-0")
    move = migration(publishing.context, one, ONE)
    here.move_claim(one, "cn-1", move)

    here.move_claim(one, "cn-0", move)

    assert noted(publishing.context)[OTHER] == NOTHING


def finished_move(context: Context) -> tuple[Instance, Migration]:
    """Return an instance, and its finished move to OTHER."""
    one = small(context, ONE)
    to = {"status": "finished", "dest_compute": HOST, "dest_node": "cn-1"}
    return one, migration(context, one, ONE, **to)


def test_drop_of_a_move_claim_can_be_repeated_after_its_save_failed(
    publishing: Publishing, here: Claims, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, move = finished_move(publishing.context)

    def fail(_claim: NodeClaim) -> None:
        raise ConcurrentSave(kind="Instance", keys=[one.uuid])

    with monkeypatch.context() as patched, pytest.raises(ConcurrentSave):
        patched.setattr(NodeClaim, "save", fail)
        here.drop_move_claim(one, move, End.SOURCE)
    here.drop_move_claim(one, move, End.SOURCE)

    assert place_of(publishing.context, one) == OTHER
    assert Migration.get_by_uuid(publishing.context, move.uuid).status == "confirmed"


def test_drop_of_a_move_claim_while_the_destination_is_deleted_moves_the_instance(
    publishing: Publishing, here: Claims, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, move = finished_move(publishing.context)

    def find_before_deletion(*place: Any) -> list[ComputeNode]:
        found = nodes_named(*place)
        ComputeNodeList(publishing.context, objects=found).destroy()
        return found

    monkeypatch.setattr(instance_claims, "nodes_named", find_before_deletion)
    here.drop_move_claim(one, move, End.SOURCE)

    assert place_of(publishing.context, one) == OTHER
    assert Migration.get_by_uuid(publishing.context, move.uuid).status == "confirmed"


def test_drop_of_a_move_that_has_ended_changes_nothing(
    publishing: Publishing, here: Claims, there: Claims
) -> None:
    context = publishing.context
    one = small(context)
    here.instance_claim(one, "cn-0")
    moves = []
    for claims, node in ((there, "cn-far"), (here, "cn-1")):
        move = migration(context, one, (str(one.host), str(one.node)))
        claims.move_claim(one, node, move)
        lead(move, "migrating", "post-migrating", "finished", "confirming")
        if claims is here:  # the move is being confirmed, so it is too late to abort
            refused(publishing, "is confirming", here.drop_move_claim, one, move, End.DESTINATION)
        there.drop_move_claim(one, move, End.SOURCE)
        moves.append(move)

    there.drop_move_claim(one, moves[0], End.SOURCE)
    assert (one.host, one.node) == OTHER
    publishing.cycle.drift()
    assert is_right(context, cn_1=SMALL_SUM)


@pytest.mark.parametrize("first", End)
def test_confirm_and_revert_of_a_move_at_once_have_one_winner(
    publishing: Publishing, here: Claims, there: Claims, first: End
) -> None:
    context = publishing.context
    one = small(context)
    here.instance_claim(one, "cn-0")
    move = migration(context, one, ONE, kind="resize", new_flavor=large())
    there.move_claim(one, "cn-far", move)
    lead(move, "migrating", "post-migrating", "finished")
    late = Instance.get_by_uuid(context, one.uuid), Migration.get_by_uuid(context, move.uuid)

    claims = {End.SOURCE: here, End.DESTINATION: there}
    claims[first].drop_move_claim(one, move, first)
    [second] = set(End) - {first}
    with pytest.raises(ConcurrentSave):
        claims[second].drop_move_claim(*late, second)

    status = Migration.get_by_uuid(context, move.uuid).status
    if first is End.SOURCE:
        assert (place_of(context, one), status) == (AWAY, "confirmed")
        assert is_right(context, cn_far=LARGE_SUM)
    else:
        assert (place_of(context, one), status) == (ONE, "reverted")
        assert is_right(context, cn_0=SMALL_SUM)


# With cycles.


def test_cycle_counts_changes_of_another_process(publishing: Publishing, here: Claims) -> None:
    one = small(publishing.context)
    here.instance_claim(one, "cn-0")
    publishing.cycle.sync()
    other = opened(publishing.state_path)
    for change in ("moved", "grown", "new", "gone", "the row", "the row again"):
        match change:
            case "moved" | "grown" | "gone":
                mine = Instance.get_by_uuid(other, one.uuid)
                if change == "gone":
                    mine.destroy()
                else:
                    mine.node, mine.flavor = "cn-1", large() if change == "grown" else mine.flavor
                    mine.save()
            case "new":
                small(other, ONE)
            case _:  # the other process died before it wrote the right sum
                [row] = ComputeNodeList.get_by_filters(other, host=HOST, hypervisor_hostname="cn-0")
                row.vcpus_used = 77
                row.save()
        publishing.cycle.drift()
        assert noted(publishing.context) == taken(publishing.context), change
    assert is_right(publishing.context, cn_0=SMALL_SUM)


def test_cycle_counts_instances_on_a_node_that_is_no_longer_listed(
    publishing: Publishing, here: Claims
) -> None:
    one = small(publishing.context)
    here.instance_claim(one, "cn-0")
    del publishing.driver.nodes["cn-0"]
    one.flavor = large()
    one.save()

    publishing.cycle.sync()

    assert noted(publishing.context) == taken(publishing.context)


def test_claim_that_died_before_the_row_is_counted_by_the_next_cycle(
    publishing: Publishing, here: Claims, monkeypatch: pytest.MonkeyPatch
) -> None:
    publishing.cycle.sync()
    one = small(publishing.context)

    def die(*_args: object) -> Usage:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(instance_claims, "usage_of_node", die)
        with pytest.raises(MemoryError):
            here.instance_claim(one, "cn-0")
    assert noted(publishing.context)[ONE] == NOTHING
    publishing.cycle.drift()
    assert is_right(publishing.context, cn_0=SMALL_SUM)


def test_unchanged_instances_are_not_read_again(
    publishing: Publishing, here: Claims, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, count = publishing.context, 300
    every = [
        Instance(
            context,
            project_id="p",
            user_id="u",
            host=HOST,
            node=f"cn-{number % 2}",
            flavor=flavor(vcpus=1),
        )
        for number in range(count)
    ]
    InstanceList(context, objects=every).create()
    publishing.cycle.sync()
    assert is_right(context, cn_0=(count // 2, 0, 0), cn_1=(count // 2, 0, 0))

    with statements(publishing.state_path) as said:
        for cycle in (publishing.cycle.drift, publishing.cycle.sync):
            cycle()
    assert not [one for one in said if "instances.flavor" in one]
    assert len(said) < 24

    every[7].flavor = flavor(vcpus=4)
    every[7].save()
    read: list[str] = []
    get = HostState.get

    def note(*args: Any, **kwargs: Any) -> HostState:
        state = get(*args, **kwargs)
        read.extend(one.uuid for one in state.instances)
        return state

    with monkeypatch.context() as patched:
        patched.setattr(HostState, "get", note)
        publishing.cycle.drift()
    assert read == [every[7].uuid]
    assert is_right(context, cn_0=(count // 2, 0, 0), cn_1=(count // 2 + 3, 0, 0))


# Damaged rows.


def test_unreadable_instance_is_logged_and_the_others_count(
    publishing: Publishing, here: Claims, caplog: pytest.LogCaptureFixture
) -> None:
    spoilt = small(publishing.context)
    here.instance_claim(spoilt, "cn-0")
    execute(publishing, "UPDATE instances SET flavor = 'what'")
    here.instance_claim(small(publishing.context), "cn-0")
    here.instance_claim(small(publishing.context), "cn-1")
    for cycle in (publishing.cycle.drift, publishing.restarted().sync):
        assert noted(publishing.context) == {ONE: SMALL_SUM, OTHER: SMALL_SUM}
        assert not cycle().problems
    assert noted(publishing.context) == {ONE: SMALL_SUM, OTHER: SMALL_SUM}
    assert f"Instance {spoilt.uuid} does not count in the usage" in caplog.text


def test_instance_with_an_empty_field_does_not_affect_the_others(
    publishing: Publishing, here: Claims
) -> None:
    for column in ("uuid", "node", "host"):
        one = small(publishing.context)
        here.instance_claim(one, "cn-0")
        execute(publishing, f"UPDATE instances SET {column} = '' WHERE uuid = '{one.uuid}'")
    for node in ("cn-0", "cn-1"):
        here.instance_claim(small(publishing.context), node)
    for cycle in (publishing.cycle.sync, publishing.cycle.drift):
        assert not cycle().problems
        assert noted(publishing.context) == {ONE: SMALL_SUM, OTHER: SMALL_SUM}


def test_claim_with_unreadable_objects_fails(publishing: Publishing, here: Claims) -> None:
    one = small(publishing.context)
    execute(publishing, "ALTER TABLE compute_nodes RENAME TO gone")
    with pytest.raises((StateError, ObjectError)):
        here.instance_claim(one, "cn-0")
    found = Instance.get_by_uuid(publishing.context, one.uuid)
    assert (found.host, found.node, found.revision) == (None, None, 1)


# Several claims at once.


def test_claim_during_an_abort_leaves_the_right_sum(
    publishing: Publishing, here: Claims, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim reads the sum before the other claim is aborted, and saves it after that."""
    context = publishing.context
    going, coming = small(context), small(context)
    here.instance_claim(going, "cn-0")
    happened: list[str] = []

    def meanwhile(context: Context, host: str, name: str) -> Usage:
        used = usage_of_node(context, host, name)
        if not happened:
            happened.append(name)
            here.abort_instance_claim(
                going, "cn-0"
            )  # the row is then as before, so it has no change to save
        return used

    monkeypatch.setattr(instance_claims, "usage_of_node", meanwhile)
    here.instance_claim(coming, "cn-0")
    assert happened
    assert is_right(context, cn_0=SMALL_SUM)


def act(context: Context, claims: Claims, nodes: list[str], chosen: random.Random) -> None:
    """Claim, abort or move at random as a compute service; ignore conflicts with others."""
    node = chosen.choice(nodes)
    with suppress(ClaimRefused, ConcurrentSave, ObjectExists, ObjectNotFound):
        if chosen.random() < 0.4:
            one = instance(context, vcpus=chosen.randint(1, 9), memory_mb=chosen.randint(0, 99))
            claims.instance_claim(one, node)
            if chosen.random() < 0.3:
                claims.abort_instance_claim(one, node)
            return
        every = [one for one in InstanceList.get_by_filters(context) if one.node is not None]
        if not every:
            return
        one = chosen.choice(every)
        moves = MigrationList.get_by_filters(context, instance_uuid=one.uuid)
        if going := [move for move in moves if move.is_in_progress]:
            move = going[0]
            following = {
                "pre-migrating": "migrating",
                "migrating": "post-migrating",
                "post-migrating": "finished",
            }.get(move.status)
            if following is None or chosen.random() < 0.2:
                claims.drop_move_claim(one, move, chosen.choice(list(End)))
            else:
                lead(move, following)
        elif chosen.random() < 0.7:
            move = migration(
                context,
                one,
                (str(one.host), str(one.node)),
                kind="resize",
                new_flavor=flavor(vcpus=chosen.randint(1, 9)),
            )
            claims.move_claim(one, node, move)
        elif (one.host, one.node) in noted(context):
            Claims(context, str(one.host)).abort_instance_claim(one, str(one.node))


def claiming_on(publishing: Publishing, seed: str) -> Callable[[], None]:
    """Return a function that makes twenty random claims as a compute service."""

    def claim() -> None:
        context = opened(publishing.state_path)
        claims, chosen = Claims(context, HOST), random.Random(seed)
        for _ in range(20):
            act(context, claims, ["cn-0", "cn-1"], chosen)

    return claim


def run(works: list[Callable[[], None]]) -> None:
    """Run the functions in threads that start at the same moment; raise their first error."""
    start = Barrier(len(works), timeout=60)

    def begin(work: Callable[[], None]) -> None:
        start.wait()
        work()

    with ThreadPoolExecutor(len(works)) as pool:
        for done in [pool.submit(begin, work) for work in works]:
            done.result()


def test_rows_after_random_claims_at_once_are_right(
    publishing: Publishing, here: Claims, draw: Draw
) -> None:
    for seed in draw(range(3), 1):
        run([claiming_on(publishing, f"{seed} {number}") for number in range(4)])
        said, counted = noted(publishing.context), taken(publishing.context)
        publishing.cycle.drift()
        assert noted(publishing.context) == taken(publishing.context) == counted
        assert any(amounts != NOTHING for amounts in counted.values())
        assert said == counted, "no claim that was made left it to the cycle"
