"""Claims of what others want too: the next candidate, bounded attempts, and the last one."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from itertools import count
from threading import Barrier
from typing import Any, TypeVar

import pytest

from tests.lab.allocating import CYBORGS, NOVAS, Desk, faults, flavor, held
from tests.lab.claimants import (
    Boundaries,
    Posts,
    anew,
    between,
    claims_together,
    providers_of,
    settled,
    unknown,
    warm,
)
from tests.lab.claiming import noted, taken
from tests.lab.cycles import HOST, Publishing, allocate, everything
from tests.lab.drivers import flat
from tests.lab.faults import FAULTS, Interceptor
from tests.lab.moments import Moments
from tests.lab.placement import Requests, adapter_to
from tests.lab.samples import uuid
from wharfinger.exceptions import NoCandidates, PlacementError
from wharfinger.objects import Instance, InstanceList
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.embedded import EmbeddedPlacement
from wharfinger.placement.holds import Holds

ONE = uuid("an instance")
SMALL, WHOLE = flavor("small"), flavor("whole", 2)
THREADS = 16
_T = TypeVar("_T")


def together(works: list[Callable[[], _T]]) -> list[_T | Exception]:
    """What becomes of works that threads begin at the same time."""
    start = Barrier(len(works), timeout=60)

    def begin(work: Callable[[], _T]) -> _T | Exception:
        start.wait()
        try:
            return work()
        except NoCandidates as error:
            return error

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(begin, works))


def once(act: Callable[[Any], object]) -> Callable[[Any], None]:
    """An act for the first time only."""
    times = count()

    def first(body: Any) -> None:
        if not next(times):
            act(body)

    return first


def asked(publishing: Publishing) -> list[str]:
    """What claims have asked: nothing else there asks that."""
    heads = [one.partition("?")[0] for one in publishing.placement.requests.seen]
    return [
        one.removesuffix(f"/{ONE}")
        for one in heads
        if one in {f"GET /allocations/{ONE}", "GET /allocation_candidates", "POST /allocations"}
    ]


#: What claims ask.
HAS, CANDIDATES, TAKES = "GET /allocations", "GET /allocation_candidates", "POST /allocations"


class Thief:
    """Takes all of what somebody is about to claim."""

    def __init__(self, publishing: Publishing) -> None:
        self._publishing = publishing
        self.consumers: list[str] = []

    def take(self, body: dict[str, Any]) -> None:
        """Take all that the claim is about to get."""
        self.consumers.append(uuid(f"thief {len(self.consumers)}"))
        names = {one["uuid"]: name for name, one in everything().items()}
        what = {
            names[provider]: dict(its["resources"])
            for consumer in body.values()
            for provider, its in consumer["allocations"].items()
        }
        allocate(self._publishing.placement, self.consumers[-1], "1.39", **what)

    def give_back(self, _body: object) -> None:
        """Give it back."""
        self._publishing.placement.client.delete_allocations(self.consumers[-1])


@pytest.fixture
def thief(publishing: Publishing) -> Thief:
    return Thief(publishing)


@pytest.fixture
def posts(desk: Desk, publishing: Publishing) -> Iterator[Posts]:
    """What claims ask for from now on; those that come know all that is asked once."""
    warm(desk)
    publishing.placement.requests.clear()
    with Posts(publishing.placement) as fixture:
        yield fixture


# The next candidate.


def test_the_next_candidate_is_claimed_where_the_first_went_to_others(
    desk: Desk, publishing: Publishing, posts: Posts, thief: Thief
) -> None:
    posts.before = once(thief.take)
    claimed = desk.claim(WHOLE, uuid=ONE)

    first, second = map(providers_of, posts.bodies)
    assert first != second == list(claimed.allocations)
    assert asked(publishing) == [HAS, CANDIDATES, TAKES, TAKES]
    names = {one["uuid"]: name for name, one in everything().items()}
    assert held() == {
        ONE: {names[second[0]]: {"VCPU": 2}},
        thief.consumers[0]: {names[first[0]]: {"VCPU": 2}},
    }
    assert claimed.instance.node == names[second[0]]
    assert noted(publishing.context) == taken(publishing.context)


def test_candidates_are_asked_for_anew_where_all_went_to_others(
    desk: Desk, publishing: Publishing, posts: Posts, thief: Thief
) -> None:
    posts.before = thief.take
    with pytest.raises(NoCandidates, match="went to others"):
        desk.claim(WHOLE, uuid=ONE)

    assert asked(publishing) == [HAS, CANDIDATES, TAKES, TAKES, CANDIDATES, HAS]
    assert held().keys() == set(thief.consumers)
    assert not list(InstanceList.get_by_filters(publishing.context))


def test_what_comes_free_meanwhile_is_claimed(
    desk: Desk, publishing: Publishing, posts: Posts, thief: Thief
) -> None:
    def take(body: dict[str, Any]) -> None:
        if len(posts.bodies) <= 2:
            thief.take(body)
        if len(posts.bodies) == 2:
            publishing.client.delete_allocations(thief.consumers[0])

    posts.before = take
    desk.claim(WHOLE, uuid=ONE)

    assert asked(publishing) == [HAS, CANDIDATES, TAKES, TAKES, CANDIDATES, TAKES]
    assert held().keys() == {ONE, thief.consumers[1]}


def test_attempts_are_bounded(desk: Desk, publishing: Publishing, thief: Thief) -> None:
    publishing.driver.nodes |= {f"cn-{number}": flat(VCPU=2) for number in range(12)}
    assert not publishing.cycle.sync().problems
    warm(desk)
    publishing.placement.requests.clear()
    with Posts(publishing.placement) as posts:
        # Whatever is claimed is gone, and free again at once.
        posts.before, posts.after = thief.take, thief.give_back
        with pytest.raises(NoCandidates, match="went to others"):
            desk.claim(WHOLE, uuid=ONE)

    assert asked(publishing) == [HAS, *[CANDIDATES, *[TAKES] * 10] * 5, HAS]
    searches = [posts.bodies[start : start + 10] for start in range(0, 50, 10)]
    for each in searches:
        assert len({providers_of(body)[0] for body in each}) == 10, "none is tried twice"
    assert held() == {}
    assert faults(publishing.context) == []


def test_a_candidate_that_was_deleted_is_passed_by(
    desk: Desk, publishing: Publishing, posts: Posts
) -> None:
    posts.before = once(lambda body: publishing.client.delete_provider(providers_of(body)[0]))
    desk.claim(WHOLE, uuid=ONE)

    assert asked(publishing) == [HAS, CANDIDATES, TAKES, TAKES]
    assert len(everything()) == 1
    assert faults(publishing.context) == []


def test_an_instance_whose_only_candidate_was_deleted_can_be_claimed_for_again(
    desk: Desk, publishing: Publishing, posts: Posts
) -> None:
    def delete(body: dict[str, Any]) -> None:
        publishing.client.delete_provider(providers_of(body)[0])

    posts.before = delete
    with pytest.raises(NoCandidates):
        desk.claim(WHOLE, uuid=ONE)
    posts.before = lambda body: None
    assert everything() == {}
    assert not publishing.cycle.sync().problems

    desk.claim(WHOLE, uuid=ONE)
    assert held().keys() == {ONE}
    assert faults(publishing.context) == []


def test_a_candidate_that_was_reserved_is_passed_by(
    desk: Desk, publishing: Publishing, posts: Posts
) -> None:
    def reserve(body: dict[str, Any]) -> None:
        [provider] = publishing.client.list_providers(uuid=providers_of(body)[0])
        Holds(publishing.client, publishing.context).reserve(
            provider, holder="operator", reason="maintenance"
        )

    posts.before = once(reserve)
    claimed = desk.claim(WHOLE, uuid=ONE)

    assert len(posts.bodies) == 2
    assert providers_of(posts.bodies[1]) == list(claimed.allocations)
    assert faults(publishing.context) == []


def test_a_candidate_whose_total_has_shrunk_is_passed_by(
    desk: Desk, publishing: Publishing, posts: Posts
) -> None:
    def shrink(body: dict[str, Any]) -> None:
        names = {one["uuid"]: name for name, one in everything().items()}
        publishing.driver.nodes[names[providers_of(body)[0]]] = flat(VCPU=1)
        assert not publishing.cycle.sync().problems

    posts.before = once(shrink)
    desk.claim(WHOLE, uuid=ONE)
    assert len(posts.bodies) == 2
    assert settled(publishing) == []


@pytest.fixture
def interceptor(placement_service: EmbeddedPlacement) -> Iterator[Interceptor]:
    with Interceptor(placement_service.application) as fixture:
        yield fixture


@pytest.fixture
def far_desk(interceptor: Interceptor, desk: Desk) -> Iterator[Desk]:
    """Between which and Placement something may happen."""
    client = PlacementClient(adapter_to(interceptor.url))
    with Desk(client, desk.context) as fixture:
        yield fixture


def test_a_conflict_that_is_not_the_consumer_s_is_the_candidate_s(
    far_desk: Desk, interceptor: Interceptor, publishing: Publishing
) -> None:
    warm(far_desk)
    interceptor.expect(lambda request: str(request) == TAKES, FAULTS["409"])
    far_desk.claim(WHOLE, uuid=ONE)

    heads = [one.partition("?")[0].removesuffix(f"/{ONE}") for one in interceptor.seen]
    assert heads == [HAS, CANDIDATES, TAKES, HAS, TAKES]
    assert faults(publishing.context) == []


def test_conflicts_without_end_come_to_an_end(
    far_desk: Desk, interceptor: Interceptor, publishing: Publishing
) -> None:
    warm(far_desk)
    interceptor.expect(lambda request: str(request) == TAKES, FAULTS["409 always"])
    with pytest.raises(NoCandidates):
        far_desk.claim(WHOLE, uuid=ONE)

    heads = [one.partition("?")[0].removesuffix(f"/{ONE}") for one in interceptor.seen]
    assert heads == [HAS, *[CANDIDATES, *[TAKES, HAS] * 2] * 5, HAS]
    assert held() == {}
    assert not list(InstanceList.get_by_filters(publishing.context))


#: One of each kind: what is not carried out, what is and nobody is told, and what is not true.
SWEPT = ["refused", "reset when done", "404", "409", "500", "500 when done", "nonsense when done"]


@pytest.mark.parametrize("fault", SWEPT)
def test_a_claim_of_which_a_request_failed_is_finished_or_undone(
    desk: Desk, publishing: Publishing, interceptor: Interceptor, fault: str
) -> None:
    moments = Moments(publishing.state_path)
    beginning = moments.take()

    def late() -> Desk:
        return Desk(PlacementClient(adapter_to(interceptor.url)), desk.context)

    with late() as whole:
        whole.claim(WHOLE, uuid=ONE)
    requests = [one.partition("?")[0] for one in interceptor.seen]
    assert requests[-1] == TAKES
    for number, name in enumerate(requests):
        for then in ("claimed again", "released"):
            moments.go_back(beginning)
            with late() as broken:
                interceptor.expect(number, FAULTS[fault])
                with suppress(PlacementError, NoCandidates):
                    broken.claim(WHOLE, uuid=ONE)
                assert interceptor.struck, name
            assert not unknown(publishing.context), name
            interceptor.expect()
            there = bool(list(InstanceList.get_by_filters(publishing.context)))
            with late() as mended:
                if then == "claimed again":
                    mended.claim(WHOLE, uuid=ONE)
                    assert [*held()] == [ONE], name
                    assert noted(publishing.context) == taken(publishing.context), name
                elif there:
                    mended.claims.release(ONE)
                    assert held() == {}, name
            assert faults(publishing.context) == [], name


# The same instance.


def test_an_instance_that_is_claimed_twice_at_a_time_has_it_once(
    desk: Desk, publishing: Publishing
) -> None:
    warm(desk)
    moments = Moments(publishing.state_path)
    beginning = moments.take()
    with Boundaries(publishing.placement, reads=True) as whole:
        desk.claim(SMALL, uuid=ONE)
    assert len(whole.passed) > 20
    with anew(publishing) as other:
        warm(other)
        for number, name in between(whole.passed):
            moments.go_back(beginning)
            with Boundaries(
                publishing.placement,
                reads=True,
                act_at=number,
                act=lambda: other.claim(SMALL, uuid=ONE),
            ):
                mine = desk.claim(SMALL, uuid=ONE)
            assert held() == {ONE: {str(mine.instance.node): {"VCPU": 1}}}, name
            row = Instance.get_by_uuid(publishing.context, ONE)
            assert (row.host, row.node) == (HOST, mine.instance.node), name
            assert noted(publishing.context) == taken(publishing.context), name
            assert faults(publishing.context) == [], name


def test_an_instance_that_many_threads_claim_has_it_once(
    desk: Desk, publishing: Publishing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # who comes too early here has to wait
    minute = timedelta(minutes=1)
    with Desk(desk.client, desk.context, down_time=minute) as patient:
        ends = together([lambda: patient.claim(SMALL, uuid=ONE)] * 8)

    nodes = {end.instance.node for end in ends if not isinstance(end, Exception)}
    assert [end for end in ends if isinstance(end, Exception)] == []
    assert held() == {ONE: {str(node): {"VCPU": 1} for node in nodes}}
    assert len(nodes) == 1
    assert settled(publishing) == []
    assert noted(publishing.context) == taken(publishing.context)


# The last one.


def only_one_won(ends: list[Any], publishing: Publishing) -> None:
    """Whoever did not win has nothing, and is nobody."""
    [won] = [end for end in ends if not isinstance(end, Exception)]
    assert len(ends) == THREADS
    assert held().keys() == {won.instance.uuid}
    assert [one.uuid for one in InstanceList.get_by_filters(publishing.context)] == [
        won.instance.uuid
    ]
    assert settled(publishing) == []
    assert noted(publishing.context) == taken(publishing.context)


@pytest.mark.parametrize("whose", ["one desk", "a desk each"])
def test_of_many_threads_one_gets_the_last_one(
    desk: Desk, publishing: Publishing, whose: str
) -> None:
    publishing.driver.nodes["cn-1"] = flat(VCPU=1)
    assert not publishing.cycle.sync().problems
    # All but one of them is taken.
    allocate(publishing.placement, uuid("others"), "1.39", **{"cn-0": {"VCPU": 2}})

    def new() -> Desk:
        made = Desk(publishing.placement.new_client(), publishing.context)
        made.setUp()
        return made

    desks = [desk if whose == "one desk" else new() for _ in range(THREADS)]
    ends = together([lambda its=its: its.claim(SMALL) for its in desks])  # type: ignore[misc]

    publishing.client.delete_allocations(uuid("others"))
    only_one_won(ends, publishing)


def test_of_many_threads_one_gets_the_last_of_two_owners(
    gpus: Desk, publishing: Publishing
) -> None:
    both = flavor("both", **NOVAS, **CYBORGS, group_policy="none")
    only_one_won(together([lambda: gpus.claim(both)] * THREADS), publishing)
    assert [*held().values()] == [
        {"cn-0": {"VCPU": 1}, "novas": {"VGPU": 1}, "cyborgs": {"VGPU": 1}}
    ]


def test_those_who_want_different_ones_of_two_owners_get_them(
    gpus: Desk, publishing: Publishing
) -> None:
    wanted = [flavor("novas", **NOVAS), flavor("cyborgs", **CYBORGS)] * 4
    ends = together([lambda one=one: gpus.claim(one) for one in wanted])  # type: ignore[misc]

    won = [end.instance.flavor.name for end in ends if not isinstance(end, Exception)]
    assert sorted(won) == ["cyborgs", "novas"]
    assert settled(publishing) == []


def test_all_threads_get_one_where_there_is_one_for_each(
    desk: Desk, publishing: Publishing
) -> None:
    instances = 40
    publishing.driver.nodes = {f"cn-{number}": flat(VCPU=1) for number in range(instances)}
    assert not publishing.cycle.sync().problems
    shares = [range(start, instances, THREADS) for start in range(THREADS)]

    def work(share: range) -> int:
        for _ in share:
            desk.claim(SMALL)
        return len(share)

    ends = together([lambda share=share: work(share) for share in shares])  # type: ignore[misc]

    assert sum(end for end in ends if isinstance(end, int)) == instances
    assert len(held()) == instances
    assert all(len(its) == 1 for its in held().values())
    assert {name for its in held().values() for name in its} == publishing.driver.nodes.keys()
    assert settled(publishing) == []
    assert set(noted(publishing.context).values()) == {(1, 0, 0)}


def test_of_four_processes_one_gets_the_last_one(
    desk: Desk, publishing: Publishing, placement_url: tuple[str, Requests]
) -> None:
    publishing.driver.nodes = {"cn-0": flat(VCPU=1)}
    publishing.allow_mass_removal = True
    for _ in range(2):  # what Placement had was emptied, to be served
        publishing.restarted().sync()
    uuids = [uuid(f"of process {number}") for number in range(4)]
    said = claims_together(placement_url[0], publishing.state_path, uuids)

    assert sorted(said.values()) == ["NoCandidates"] * 3 + ["cn-0"]
    [won] = [one for one, what in said.items() if what == "cn-0"]
    assert held() == {won: {"cn-0": {"VCPU": 1}}}
    assert [one.uuid for one in InstanceList.get_by_filters(publishing.context)] == [won]
    assert settled(publishing) == []


def test_what_is_released_can_be_had_by_who_came_too_late(
    desk: Desk, publishing: Publishing
) -> None:
    for _ in range(3):
        won = [desk.claim(WHOLE).instance.uuid for _ in range(2)]
        with pytest.raises(NoCandidates):
            desk.claim(SMALL)
        for one in won:
            desk.claims.release(one)
    assert (held(), faults(publishing.context)) == ({}, [])
