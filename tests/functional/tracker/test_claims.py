"""What instances take of nodes, as they come, move and go."""

import random
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from threading import Barrier, Event
from typing import Any

import pytest

from tests.functional.tracker.places import ANYWHERE
from tests.lab import claiming
from tests.lab.claiming import NOTHING, flavor, instance, lead, migration, noted, taken
from tests.lab.cycles import HOST, Publishing
from tests.lab.drivers import flat
from tests.lab.objects import opened, questions, statements
from tests.lab.placement import PlacementFixture
from wharfinger.db.database import FILE_NAME
from wharfinger.exceptions import (
    ClaimRefused,
    ConcurrentSave,
    ObjectError,
    ObjectNotFound,
    StateError,
)
from wharfinger.objects import (
    ComputeNodeList,
    Context,
    Instance,
    InstanceList,
    Migration,
    MigrationList,
)
from wharfinger.tracker.claims import Claim, Claims, End
from wharfinger.tracker.usage import HostUsage, Usage

pytestmark = ANYWHERE

FAR = "far-host"
#: Nodes of this host, and one of another.
ONE, OTHER, AWAY = (HOST, "cn-0"), (HOST, "cn-1"), (FAR, "cn-far")
SMALL = {"vcpus": 2, "memory_mb": 512, "root_gb": 3, "ephemeral_gb": 4}
SMALL_SUM, LARGE_SUM = (2, 512, 7), (5, 2048, 20)


@pytest.fixture
def far(publishing: Publishing, placement: PlacementFixture) -> Iterator[Publishing]:
    """A driver instance of another host, whose objects are kept in the same place."""
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


def is_right(context: Context, **known: claiming.Amounts) -> bool:
    """Whether rows say what is taken; ``known`` are amounts by node, others have nothing."""
    said = noted(context)
    assert said == taken(context)
    return {node: what for (_, node), what in said.items() if what != NOTHING} == {
        node.replace("_", "-"): what for node, what in known.items() if what != NOTHING
    }


def written(publishing: Publishing) -> dict[str, list[Any]]:
    """All that there is of what claims write."""
    with closing(sqlite3.connect(publishing.state_path / FILE_NAME)) as connection:
        return {
            table: connection.execute(f"SELECT * FROM {table} ORDER BY id").fetchall()
            for table in ("compute_nodes", "instances", "migrations")
        }


def steps_to(kind: str) -> tuple[str, ...]:
    """By way of which statuses a move comes to where its source can be dropped."""
    return {
        "resize": ("migrating", "post-migrating", "finished"),
        "migration": ("migrating", "post-migrating", "finished"),
        "live-migration": ("preparing", "running"),
        "evacuation": (),
    }[kind]


def over(kind: str) -> str:
    """What a move comes to when its source is dropped."""
    return {"live-migration": "completed", "evacuation": "done"}.get(kind, "confirmed")


# Instances.


def test_a_claimed_instance_is_on_its_node_at_once(publishing: Publishing, here: Claims) -> None:
    one = small(publishing.context)
    claim = here.instance_claim(one, "cn-0")

    assert isinstance(claim, Claim)
    found = Instance.get_by_uuid(publishing.context, one.uuid)
    assert (found.host, found.node) == (one.host, one.node) == ONE
    assert is_right(publishing.context, cn_0=SMALL_SUM)


def test_each_instance_of_a_node_counts_as_its_flavor_has_it(
    publishing: Publishing, here: Claims
) -> None:
    for node in ("cn-0", "cn-1"):
        here.instance_claim(small(publishing.context), node)
        here.instance_claim(instance(publishing.context, vcpus=1), node)
    here.instance_claim(small(publishing.context), "cn-1")
    assert is_right(publishing.context, cn_0=(3, 512, 7), cn_1=(5, 1024, 14))


def test_an_instance_that_is_claimed_again_counts_once(
    publishing: Publishing, here: Claims
) -> None:
    one = small(publishing.context)
    for _ in range(3):
        here.instance_claim(one, "cn-0")
    here.instance_claim(Instance.get_by_uuid(publishing.context, one.uuid), "cn-0")
    assert Instance.get_by_uuid(publishing.context, one.uuid).revision == 2
    assert is_right(publishing.context, cn_0=SMALL_SUM)


def test_an_aborted_claim_leaves_nothing(publishing: Publishing, here: Claims) -> None:
    one = small(publishing.context)
    claim = here.instance_claim(one, "cn-0")
    for _ in range(2):
        claim.abort()
        found = Instance.get_by_uuid(publishing.context, one.uuid)
        assert (found.host, found.node) == (None, None)
        assert is_right(publishing.context)
    here.instance_claim(one, "cn-1")
    assert is_right(publishing.context, cn_1=SMALL_SUM)


def test_a_claim_is_aborted_where_its_block_raises(publishing: Publishing, here: Claims) -> None:
    one = small(publishing.context)
    with pytest.raises(OSError, match="no disk"), here.instance_claim(one, "cn-0") as claim:
        assert claim.node == "cn-0"
        assert is_right(publishing.context, cn_0=SMALL_SUM)
        raise OSError("no disk")
    assert one.node is None
    assert is_right(publishing.context)


def test_a_claim_stays_where_its_block_ends(publishing: Publishing, here: Claims) -> None:
    with here.instance_claim(small(publishing.context), "cn-0"):
        pass
    assert is_right(publishing.context, cn_0=SMALL_SUM)


def test_an_instance_that_is_gone_is_no_more_on_its_node(
    publishing: Publishing, here: Claims
) -> None:
    one = small(publishing.context)
    here.instance_claim(one, "cn-0")
    one.destroy()
    publishing.cycle.drift()
    assert is_right(publishing.context)


def test_an_abort_leaves_an_instance_that_has_gone_elsewhere(
    publishing: Publishing, here: Claims, there: Claims
) -> None:
    one = small(publishing.context)
    claim = here.instance_claim(one, "cn-0")
    one.host, one.node = AWAY
    one.save()
    claim.abort()
    found = Instance.get_by_uuid(publishing.context, one.uuid)
    assert (found.host, found.node) == AWAY
    assert noted(publishing.context)[ONE] == NOTHING


# What is refused.


@pytest.mark.parametrize("place", [OTHER, AWAY])
def test_an_instance_that_is_elsewhere_has_to_move(
    publishing: Publishing, here: Claims, place: claiming.Place
) -> None:
    one = small(publishing.context, place)
    before = written(publishing)
    with pytest.raises(ClaimRefused, match=f"on node {place[1]} of host {place[0]}") as caught:
        here.instance_claim(one, "cn-0")
    assert caught.value.facts.keys() >= {"instance", "node", "host"}
    assert written(publishing) == before
    assert (one.host, one.node) == place


@pytest.mark.parametrize("node", ["cn-far", "nowhere", "CN-0"])
def test_a_node_of_which_this_host_has_no_row_takes_nothing(
    publishing: Publishing, here: Claims, far: Publishing, node: str
) -> None:
    new, old = small(publishing.context), small(publishing.context, OTHER)
    begun = migration(publishing.context, old, OTHER)
    before = written(publishing)
    with pytest.raises(ObjectNotFound, match=node):
        here.instance_claim(new, node)
    for given in (None, begun):
        with pytest.raises(ObjectNotFound, match=node):
            here.move_claim(old, large(), node, given)
    assert written(publishing) == before
    assert new.node is None


def test_an_instance_that_is_nowhere_cannot_move(publishing: Publishing, here: Claims) -> None:
    one = small(publishing.context)
    before = written(publishing)
    with pytest.raises(ClaimRefused, match="it is nowhere"):
        here.move_claim(one, large(), "cn-0")
    assert written(publishing) == before


@pytest.mark.parametrize("status", ["confirmed", "reverted", "failed", "error", "completed"])
def test_a_move_that_is_over_cannot_be_claimed(
    publishing: Publishing, here: Claims, status: str
) -> None:
    one = small(publishing.context, ONE)
    ended = migration(publishing.context, one, ONE, status=status)
    before = written(publishing)
    with pytest.raises(ClaimRefused, match=f"{ended.uuid} is {status}"):
        here.move_claim(one, large(), "cn-1", ended)
    assert written(publishing) == before


def test_the_move_of_another_instance_cannot_be_claimed_or_dropped(
    publishing: Publishing, here: Claims
) -> None:
    one, other = small(publishing.context, ONE), small(publishing.context, ONE)
    of_other = migration(publishing.context, other, ONE)
    before = written(publishing)
    with pytest.raises(ClaimRefused, match=other.uuid):
        here.move_claim(one, large(), "cn-1", of_other)
    for end in End:
        with pytest.raises(ClaimRefused, match=other.uuid):
            here.drop_move_claim(one, of_other, end)
    assert written(publishing) == before


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (End.SOURCE, "migrating"),
        (End.SOURCE, "post-migrating"),
        (End.SOURCE, "reverting"),
        (End.SOURCE, "reverted"),
        (End.SOURCE, "failed"),
        (End.SOURCE, "queued"),
        (End.DESTINATION, "confirmed"),
        (End.DESTINATION, "completed"),
        (End.DESTINATION, "done"),
    ],
)
def test_what_a_move_has_not_come_to_cannot_be_dropped(
    publishing: Publishing, here: Claims, end: End, status: str
) -> None:
    one = small(publishing.context, ONE)
    move = migration(
        publishing.context, one, ONE, status=status, dest_compute=HOST, dest_node="cn-1"
    )
    before = written(publishing)
    with pytest.raises(ClaimRefused, match=f"is {status}"):
        here.drop_move_claim(one, move, end)
    assert written(publishing) == before


# Moves.


@pytest.mark.parametrize("kind", ["resize", "migration", "live-migration", "evacuation"])
@pytest.mark.parametrize("given", [False, True])
def test_a_move_between_hosts_counts_at_both_until_its_source_is_dropped(
    publishing: Publishing, here: Claims, there: Claims, kind: str, given: bool
) -> None:
    context = publishing.context
    one = small(context)
    here.instance_claim(one, "cn-0")
    wanted = large() if kind == "resize" else one.flavor
    there_sum = LARGE_SUM if kind == "resize" else SMALL_SUM
    begun = migration(context, one, ONE, kind=kind) if given else None

    claim = there.move_claim(one, wanted, "cn-far", begun, migration_type=kind)
    move = claim.migration
    assert move is not None
    assert move.migration_type == kind
    assert is_right(context, cn_0=SMALL_SUM, cn_far=there_sum)
    for status in steps_to(kind):
        lead(move, status)
        publishing.cycle.drift()
        assert is_right(context, cn_0=SMALL_SUM, cn_far=there_sum)

    mine = Migration.get_by_uuid(context, move.uuid)
    for _ in range(3):
        here.drop_move_claim(one, mine, End.SOURCE)
        assert (one.host, one.node) == AWAY
        assert one.flavor.vcpus == wanted.vcpus
        assert Migration.get_by_uuid(context, move.uuid).status == over(kind)
        assert is_right(context, cn_far=there_sum)


@pytest.mark.parametrize("kind", ["resize", "migration", "live-migration", "evacuation"])
@pytest.mark.parametrize("far_on", [0, 1, 2, 3])
def test_a_move_that_is_given_up_leaves_the_instance_where_it_was(
    publishing: Publishing, here: Claims, there: Claims, kind: str, far_on: int
) -> None:
    context = publishing.context
    one = small(context)
    here.instance_claim(one, "cn-0")
    claim = there.move_claim(one, large(), "cn-far", migration_type=kind)
    assert claim.migration is not None
    lead(claim.migration, *steps_to(kind)[:far_on])

    for _ in range(3):
        claim.abort()
        found = Instance.get_by_uuid(context, one.uuid)
        assert (found.host, found.node, found.flavor.vcpus) == (*ONE, 2)
        assert not claim.migration.is_in_progress
        # The end that is there, at once; the other one was never more than it is now.
        assert is_right(context, cn_0=SMALL_SUM)


@pytest.mark.parametrize("dropped", list(End))
def test_a_resize_on_one_host_counts_both_flavors_until_it_is_over(
    publishing: Publishing, here: Claims, dropped: End
) -> None:
    context = publishing.context
    one = small(context)
    here.instance_claim(one, "cn-0")
    claim = here.move_claim(one, large(), "cn-1", migration_type="resize")
    move = claim.migration
    assert move is not None
    assert is_right(context, cn_0=SMALL_SUM, cn_1=LARGE_SUM)
    lead(move, "migrating", "post-migrating", "finished")
    here.drop_move_claim(one, move, dropped)
    if dropped is End.SOURCE:
        assert is_right(context, cn_1=LARGE_SUM)
    else:
        assert is_right(context, cn_0=SMALL_SUM)


@pytest.mark.parametrize("dropped", list(End))
def test_a_resize_on_one_node_counts_both_flavors_until_it_is_over(
    publishing: Publishing, here: Claims, dropped: End
) -> None:
    one = small(publishing.context)
    here.instance_claim(one, "cn-0")
    claim = here.move_claim(one, large(), "cn-0", migration_type="resize")
    move = claim.migration
    assert move is not None
    assert is_right(publishing.context, cn_0=(7, 2560, 27))
    lead(move, "migrating", "post-migrating", "finished")
    here.drop_move_claim(one, move, dropped)
    assert is_right(publishing.context, cn_0=LARGE_SUM if dropped is End.SOURCE else SMALL_SUM)


def test_a_move_is_given_up_where_its_block_raises(
    publishing: Publishing, here: Claims, there: Claims
) -> None:
    one = small(publishing.context)
    here.instance_claim(one, "cn-0")
    with pytest.raises(OSError), there.move_claim(one, large(), "cn-far") as claim:
        raise OSError("no way")
    assert claim.migration is not None
    assert claim.migration.status == "failed"
    assert is_right(publishing.context, cn_0=SMALL_SUM)


def test_a_move_that_is_claimed_again_counts_once(
    publishing: Publishing, here: Claims, there: Claims
) -> None:
    one = small(publishing.context)
    here.instance_claim(one, "cn-0")
    claim = there.move_claim(one, large(), "cn-far", migration_type="resize")
    for _ in range(2):
        claim = there.move_claim(one, large(), "cn-far", claim.migration)
    assert len(MigrationList.get_by_filters(publishing.context).objects) == 1
    assert is_right(publishing.context, cn_0=SMALL_SUM, cn_far=LARGE_SUM)


def test_a_move_that_ended_long_ago_is_not_ended_again(
    publishing: Publishing, here: Claims, there: Claims
) -> None:
    context = publishing.context
    one = small(context)
    here.instance_claim(one, "cn-0")
    first = there.move_claim(one, one.flavor, "cn-far").migration
    assert first is not None
    lead(first, "migrating", "post-migrating", "finished")
    there.drop_move_claim(one, first, End.SOURCE)
    back = here.move_claim(one, one.flavor, "cn-1").migration
    assert back is not None
    lead(back, "migrating", "post-migrating", "finished")
    there.drop_move_claim(one, back, End.SOURCE)

    there.drop_move_claim(one, first, End.SOURCE)
    assert (one.host, one.node) == OTHER
    publishing.cycle.drift()
    assert is_right(context, cn_1=SMALL_SUM)


@pytest.mark.parametrize("first", list(End))
def test_of_two_that_end_a_move_in_different_ways_one_is_right(
    publishing: Publishing, here: Claims, there: Claims, first: End
) -> None:
    context = publishing.context
    one = small(context)
    here.instance_claim(one, "cn-0")
    move = there.move_claim(one, large(), "cn-far", migration_type="resize").migration
    assert move is not None
    lead(move, "migrating", "post-migrating", "finished")
    late = Instance.get_by_uuid(context, one.uuid), Migration.get_by_uuid(context, move.uuid)

    claims = {End.SOURCE: here, End.DESTINATION: there}
    claims[first].drop_move_claim(one, move, first)
    [second] = set(End) - {first}
    with pytest.raises(ConcurrentSave):
        claims[second].drop_move_claim(*late, second)

    found = Instance.get_by_uuid(context, one.uuid)
    ended = Migration.get_by_uuid(context, move.uuid)
    if first is End.SOURCE:
        assert (found.host, found.node, ended.status) == (*AWAY, "confirmed")
        assert is_right(context, cn_far=LARGE_SUM)
    else:
        assert (found.host, found.node, ended.status) == (*ONE, "reverted")
        assert is_right(context, cn_0=SMALL_SUM)


def test_what_is_claimed_of_one_node_is_not_read_of_others(
    publishing: Publishing, here: Claims
) -> None:
    for _ in range(20):
        here.instance_claim(small(publishing.context), "cn-1")
    one = small(publishing.context)
    with statements(publishing.state_path) as said, questions() as asked:
        here.instance_claim(one, "cn-0")
    assert len(said) <= 15
    assert len(asked) <= 10
    assert is_right(publishing.context, cn_0=SMALL_SUM, cn_1=(40, 10240, 140))


# With cycles.


def test_a_cycle_says_of_a_node_what_claims_say(
    publishing: Publishing, here: Claims, there: Claims
) -> None:
    context = publishing.context
    for node in ("cn-0", "cn-1"):
        here.instance_claim(small(context), node)
    moved = small(context)
    here.instance_claim(moved, "cn-0")
    there.move_claim(moved, large(), "cn-far")
    before = ComputeNodeList.get_revisions(context, HOST, "scripted")
    for cycle in (publishing.cycle.drift, publishing.cycle.sync, publishing.restarted().sync):
        assert not cycle().problems
        assert is_right(context, cn_0=(4, 1024, 14), cn_1=SMALL_SUM, cn_far=LARGE_SUM)
    assert ComputeNodeList.get_revisions(context, HOST, "scripted") == before


def test_what_another_process_changed_is_seen_by_the_next_cycle(
    publishing: Publishing, here: Claims
) -> None:
    one = small(publishing.context)
    here.instance_claim(one, "cn-0")
    publishing.cycle.sync()
    other = opened(publishing.state_path)
    for change in ("moved", "grown", "new", "gone"):
        mine = Instance.get_by_uuid(other, one.uuid)
        match change:
            case "moved":
                mine.node = "cn-1"
                mine.save()
            case "grown":
                mine.flavor = large()
                mine.save()
            case "new":
                small(other, ONE)
            case "gone":
                mine.destroy()
        publishing.cycle.drift()
        assert noted(publishing.context) == taken(publishing.context), change
    assert is_right(publishing.context, cn_0=SMALL_SUM)


def test_a_row_that_another_process_has_changed_is_put_right_by_the_next_cycle(
    publishing: Publishing, here: Claims
) -> None:
    here.instance_claim(small(publishing.context), "cn-0")
    publishing.cycle.sync()
    for _ in range(3):
        # It died before it could say the right sum.
        [row] = ComputeNodeList.get_by_filters(
            publishing.context, host=HOST, hypervisor_hostname="cn-0"
        )
        row.vcpus_used = 77
        row.save()
        publishing.cycle.drift()
        assert is_right(publishing.context, cn_0=SMALL_SUM)


def test_a_claim_that_died_before_it_came_to_the_row_is_seen_by_the_next_cycle(
    publishing: Publishing, here: Claims, monkeypatch: pytest.MonkeyPatch
) -> None:
    publishing.cycle.sync()
    one = small(publishing.context)

    def die(_self: object, _node: str) -> Usage:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(HostUsage, "of_node", die)
        with pytest.raises(MemoryError):
            here.instance_claim(one, "cn-0")
    assert noted(publishing.context)[ONE] == NOTHING
    publishing.cycle.drift()
    assert is_right(publishing.context, cn_0=SMALL_SUM)
    here.instance_claim(one, "cn-0").abort()  # of an instance that was there before
    assert is_right(publishing.context, cn_0=SMALL_SUM)


@pytest.mark.parametrize("count", [1000])
def test_instances_that_have_not_changed_are_not_read_again(
    publishing: Publishing, here: Claims, count: int
) -> None:
    context = publishing.context
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
    read: list[Any] = []
    get = InstanceList.get_by_filters

    def note(context: Context, **filters: Any) -> InstanceList:
        read.append(filters["uuid"])
        return get(context, **filters)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(InstanceList, "get_by_filters", note)
        publishing.cycle.drift()
    # Its row is to be saved, and what is taken is looked at again before that.
    assert read == [[every[7].uuid]]
    assert is_right(context, cn_0=(count // 2, 0, 0), cn_1=(count // 2 + 3, 0, 0))


def test_an_instance_that_cannot_be_read_is_told_and_leaves_the_others(
    publishing: Publishing, here: Claims, caplog: pytest.LogCaptureFixture
) -> None:
    spoilt = small(publishing.context)
    here.instance_claim(spoilt, "cn-0")
    with closing(sqlite3.connect(publishing.state_path / FILE_NAME)) as database, database:
        database.execute("UPDATE instances SET flavor = 'what'")
    here.instance_claim(small(publishing.context), "cn-0")
    assert noted(publishing.context)[ONE] == SMALL_SUM
    assert f"Instance {spoilt.uuid} counts for nothing" in caplog.text


@pytest.mark.parametrize("column", ["uuid", "node", "host"])
def test_a_row_of_an_instance_that_makes_no_sense_leaves_the_others(
    publishing: Publishing, here: Claims, column: str
) -> None:
    here.instance_claim(small(publishing.context), "cn-0")
    with closing(sqlite3.connect(publishing.state_path / FILE_NAME)) as database, database:
        database.execute(f"UPDATE instances SET {column} = ''")
    for node in ("cn-0", "cn-1"):
        here.instance_claim(small(publishing.context), node)
    for cycle in (publishing.cycle.sync, publishing.cycle.drift):
        assert not cycle().problems
        assert noted(publishing.context) == {ONE: SMALL_SUM, OTHER: SMALL_SUM}


# Several at once.


def test_one_that_finds_the_row_right_has_the_other_look_again(
    publishing: Publishing, here: Claims, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim whose sum was taken before another's instance went, and saved after that."""
    context = publishing.context
    going, coming = small(context), small(context)
    gone = here.instance_claim(going, "cn-0")
    of_node = HostUsage.of_node
    happened: list[str] = []

    def meanwhile(self: HostUsage, name: str) -> Usage:
        used = of_node(self, name)
        if not happened:
            happened.append(name)
            gone.abort()  # with it the row is as it was: it has nothing to save
        return used

    monkeypatch.setattr(HostUsage, "of_node", meanwhile)
    here.instance_claim(coming, "cn-0")
    assert happened
    assert is_right(context, cn_0=SMALL_SUM)


def act(context: Context, claims: Claims, nodes: list[str], chosen: random.Random) -> None:
    """Do something that a compute service does; what somebody else was faster at is left."""
    node = chosen.choice(nodes)
    with suppress(ClaimRefused, ConcurrentSave, ObjectNotFound):
        if chosen.random() < 0.4:
            claim = claims.instance_claim(
                instance(context, vcpus=chosen.randint(1, 9), memory_mb=chosen.randint(0, 99)), node
            )
            if chosen.random() < 0.3:
                claim.abort()
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
            claims.move_claim(
                one, flavor(vcpus=chosen.randint(1, 9)), node, migration_type="resize"
            )
        elif (one.host, one.node) in noted(context):
            claims.abort(Claim(Claims(context, str(one.host)), one, str(one.node)))


def run(works: list[Callable[[], None]]) -> None:
    """Have threads work at the same time; what one raises is raised here."""
    start = Barrier(len(works), timeout=60)

    def begin(work: Callable[[], None]) -> None:
        start.wait()
        work()

    with ThreadPoolExecutor(len(works)) as pool:
        for done in [pool.submit(begin, work) for work in works]:
            done.result()


@pytest.mark.parametrize("seed", range(2))
def test_rows_are_right_whatever_claims_come_together(
    publishing: Publishing, here: Claims, seed: int
) -> None:
    def work(number: int) -> Callable[[], None]:
        def claim() -> None:
            context = opened(publishing.state_path)
            claims, chosen = Claims(context, HOST), random.Random(seed * 100 + number)
            for _ in range(40):
                act(context, claims, ["cn-0", "cn-1"], chosen)

        return claim

    run([work(number) for number in range(4)])
    said, counted = noted(publishing.context), taken(publishing.context)
    publishing.cycle.drift()
    assert noted(publishing.context) == taken(publishing.context) == counted
    assert any(amounts != NOTHING for amounts in counted.values())
    assert said == counted, "no claim that was made left it to the cycle"


@pytest.mark.parametrize("seed", range(2))
def test_rows_are_right_after_a_cycle_whatever_came_between_cycles(
    publishing: Publishing,
    here: Claims,
    far: Publishing,
    seed: int,
) -> None:
    ended = Event()
    nodes = {HOST: ["cn-0", "cn-1"], FAR: ["cn-far"]}

    def claiming_on(host: str, number: int) -> Callable[[], None]:
        def claim() -> None:
            context = opened(publishing.state_path)
            claims, chosen = Claims(context, host), random.Random(seed * 100 + number)
            try:
                for _ in range(40):
                    act(context, claims, nodes[host], chosen)
            finally:
                ended.set()

        return claim

    def cycling(one: Publishing) -> Callable[[], None]:
        def cycle() -> None:
            while not ended.is_set():
                outcome = one.cycle.drift()
                assert not [each for each in outcome.problems if isinstance(each, StateError)]

        return cycle

    run(
        [
            *(claiming_on(host, number) for number, host in enumerate([HOST, HOST, FAR])),
            cycling(publishing),
            cycling(far),
        ]
    )
    for one in (publishing, far):
        assert not one.cycle.drift().problems
    assert noted(publishing.context) == taken(publishing.context)


def test_nothing_is_claimed_where_the_objects_cannot_be_had(
    publishing: Publishing, here: Claims
) -> None:
    one = small(publishing.context)
    with closing(sqlite3.connect(publishing.state_path / FILE_NAME)) as database, database:
        database.execute("ALTER TABLE compute_nodes RENAME TO gone")
    with pytest.raises((StateError, ObjectError)):
        here.instance_claim(one, "cn-0")
    found = Instance.get_by_uuid(publishing.context, one.uuid)
    assert (found.host, found.node, found.revision) == (None, None, 1)


def test_an_instance_that_was_there_before_a_claim_stays_when_it_is_aborted(
    publishing: Publishing, here: Claims
) -> None:
    one = small(publishing.context)
    here.instance_claim(one, "cn-0")

    here.instance_claim(one, "cn-0").abort()

    assert Instance.get_by_uuid(publishing.context, one.uuid).node == "cn-0"
    assert is_right(publishing.context, cn_0=SMALL_SUM)


def test_a_move_that_is_being_confirmed_cannot_be_taken_back(
    publishing: Publishing, here: Claims
) -> None:
    one = small(publishing.context)
    here.instance_claim(one, "cn-0")
    move = here.move_claim(one, one.flavor, "cn-1").migration
    assert move is not None
    for status in ("migrating", "post-migrating", "finished", "confirming"):
        move.status = status
    move.save()

    with pytest.raises(ClaimRefused):
        here.drop_move_claim(one, move, End.DESTINATION)
    here.drop_move_claim(one, move, End.SOURCE)

    assert (move.status, one.node) == ("confirmed", "cn-1")
    assert is_right(publishing.context, cn_1=SMALL_SUM)


def test_a_move_that_is_to_go_to_another_node_after_all_leaves_the_first(
    publishing: Publishing, here: Claims
) -> None:
    one = small(publishing.context)
    here.instance_claim(one, "cn-0")
    move = here.move_claim(one, one.flavor, "cn-1").migration

    here.move_claim(one, one.flavor, "cn-0", move)

    assert noted(publishing.context)[HOST, "cn-1"] == NOTHING
