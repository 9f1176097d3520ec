"""Claims of resources that other consumers take: next candidates and bounded attempts."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from tests.lab.allocating import CYBORGS, NOVAS, Desk, faults, flavor, held
from tests.lab.claimants import (
    Posts,
    providers_of,
    settled,
    there_are,
    together,
    unknown,
    warm,
)
from tests.lab.claiming import noted, taken
from tests.lab.cycles import Publishing, allocate, everything
from tests.lab.drawing import Draw
from tests.lab.drivers import flat
from tests.lab.faults import FAULTS, Interceptor
from tests.lab.moments import Moments
from tests.lab.placement import adapter_to
from tests.lab.samples import uuid
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.exceptions import NoCandidates, PlacementError
from wharfinger.reconcile.reserve_and_release import Reservations

ONE = uuid("an instance")
SMALL, WHOLE = flavor("small"), flavor("whole", 2)
THREADS = 8


def once(act: Callable[[Any], object]) -> Callable[[Any], None]:
    """Return a function that calls ``act`` only the first time."""
    times = count()

    def first(body: Any) -> None:
        if not next(times):
            act(body)

    return first


#: The requests of a claim.
HAS, CANDIDATES, TAKES = "GET /allocations", "GET /allocation_candidates", "POST /allocations"


def asked(requests: list[str]) -> list[str]:
    """Return the requests that only claims send."""
    heads = [one.partition("?")[0].removesuffix(f"/{ONE}") for one in requests]
    return [one for one in heads if one in {HAS, CANDIDATES, TAKES}]


class Thief:
    """Another consumer, which allocates the resources that a claim is about to allocate."""

    def __init__(self, publishing: Publishing) -> None:
        self._publishing = publishing
        self.consumers: list[str] = []

    def take(self, body: dict[str, Any]) -> None:
        """Allocate for the thief what this request of a claim would allocate."""
        self.consumers.append(uuid(f"thief {len(self.consumers)}"))
        [claim] = body.values()
        self._publishing.placement.adapter.request(
            f"/allocations/{self.consumers[-1]}", "PUT", microversion="1.39", json=claim
        )

    def release_all(self, _body: object) -> None:
        self._publishing.client.delete_allocations(self.consumers[-1])


@pytest.fixture
def thief(publishing: Publishing) -> Thief:
    return Thief(publishing)


@pytest.fixture
def posts(desk: Desk, publishing: Publishing) -> Iterator[Posts]:
    """The allocation requests of claims from now on; the desk has sent its one-time requests."""
    warm(desk)
    publishing.placement.requests.clear()
    with Posts(publishing.placement) as fixture:
        yield fixture


# The next candidate.


def test_claim_after_a_lost_candidate_gets_the_next_candidate(
    desk: Desk, publishing: Publishing, posts: Posts, thief: Thief
) -> None:
    posts.before = once(thief.take)
    claimed = desk.claim(WHOLE, uuid=ONE)

    first, second = map(providers_of, posts.bodies)
    assert first != second == list(claimed.allocations)
    assert asked(publishing.placement.requests.seen) == [HAS, CANDIDATES, TAKES, TAKES]
    names = {one["uuid"]: name for name, one in everything().items()}
    assert held() == {
        ONE: {names[second[0]]: {"VCPU": 2}},
        thief.consumers[0]: {names[first[0]]: {"VCPU": 2}},
    }
    assert claimed.instance.node == names[second[0]]
    assert noted(publishing.context) == taken(publishing.context)


@pytest.mark.parametrize("comes_free", [False, True])
def test_claim_after_all_candidates_are_lost_asks_for_new_ones(
    desk: Desk, publishing: Publishing, posts: Posts, thief: Thief, comes_free: bool
) -> None:
    def take(body: dict[str, Any]) -> None:
        if len(posts.bodies) <= 2:
            thief.take(body)
        if len(posts.bodies) == 2 and comes_free:
            publishing.client.delete_allocations(thief.consumers[0])

    posts.before = take
    begun = [HAS, CANDIDATES, TAKES, TAKES, CANDIDATES]
    if comes_free:
        desk.claim(WHOLE, uuid=ONE)
        assert asked(publishing.placement.requests.seen) == [*begun, TAKES]
        assert held().keys() == {ONE, thief.consumers[1]}
    else:
        with pytest.raises(NoCandidates, match="have taken all free"):
            desk.claim(WHOLE, uuid=ONE)
        assert asked(publishing.placement.requests.seen) == [*begun, HAS]
        assert held().keys() == set(thief.consumers)
        assert there_are(publishing.context) == []


def test_attempts_of_a_claim_are_bounded_and_no_candidate_is_tried_twice(
    desk: Desk, publishing: Publishing, thief: Thief
) -> None:
    publishing.driver.nodes |= {f"cn-{number}": flat(VCPU=2) for number in range(12)}
    assert not publishing.cycle.sync().problems
    warm(desk)
    publishing.placement.requests.clear()
    with Posts(publishing.placement) as posts:
        # The thief takes each candidate, and releases it at once.
        posts.before, posts.after = thief.take, thief.release_all
        with pytest.raises(NoCandidates, match="have taken all free"):
            desk.claim(WHOLE, uuid=ONE)

    seen = asked(publishing.placement.requests.seen)
    assert seen == [HAS, *[CANDIDATES, *[TAKES] * 10] * 5, HAS]
    for start in range(0, 50, 10):
        search = posts.bodies[start : start + 10]
        assert len({providers_of(body)[0] for body in search}) == 10
    assert held() == {}
    assert faults(publishing.context) == []


@pytest.mark.parametrize("change", ["deleted", "reserved", "smaller"])
def test_candidate_that_changed_meanwhile_is_skipped(
    desk: Desk, publishing: Publishing, posts: Posts, change: str
) -> None:
    def changes(body: dict[str, Any]) -> None:
        [provider] = publishing.client.list_providers(uuid=providers_of(body)[0])
        if change == "deleted":
            publishing.client.delete_provider(provider.uuid)
        elif change == "reserved":
            holds = Reservations(publishing.client, publishing.context)
            holds.reserve(provider, holder="operator", reason="maintenance")
        else:
            publishing.driver.nodes[provider.name] = flat(VCPU=1)
            assert not publishing.cycle.sync().problems

    posts.before = once(changes)
    claimed = desk.claim(WHOLE, uuid=ONE)

    assert len(posts.bodies) == 2
    assert providers_of(posts.bodies[1]) == list(claimed.allocations)
    assert held().keys() == {ONE}
    assert settled(publishing) == []


def test_instance_whose_only_candidates_were_deleted_can_be_claimed_again(
    desk: Desk, publishing: Publishing, posts: Posts
) -> None:
    posts.before = lambda body: publishing.client.delete_provider(providers_of(body)[0])
    with pytest.raises(NoCandidates):
        desk.claim(WHOLE, uuid=ONE)
    posts.before = lambda body: None
    assert everything() == {}
    assert not publishing.cycle.sync().problems

    desk.claim(WHOLE, uuid=ONE)
    assert held().keys() == {ONE}
    assert faults(publishing.context) == []


def test_conflict_of_a_generation_is_tried_again_with_the_same_candidate(
    desk: Desk, interceptor: Interceptor, publishing: Publishing
) -> None:
    with Desk(WritingClient(adapter_to(interceptor.url)), desk.context) as far:
        warm(far)
        interceptor.expect(lambda request: str(request) == TAKES, FAULTS["409"])
        far.claim(WHOLE, uuid=ONE)
    assert asked(interceptor.seen) == [HAS, CANDIDATES, TAKES, HAS, TAKES]
    assert [*held()] == there_are(publishing.context) == [ONE]


#: Faults: request not carried out, carried out without an answer, or with a wrong answer.
SWEPT = ["refused", "reset when done", "404", "409", "500", "500 when done", "nonsense when done"]


def test_claim_with_a_failed_request_is_finished_or_undone(
    desk: Desk, publishing: Publishing, interceptor: Interceptor, draw: Draw
) -> None:
    moments = Moments(publishing.state_path)
    beginning = moments.take()

    def late() -> Desk:
        return Desk(WritingClient(adapter_to(interceptor.url)), desk.context)

    with late() as whole:
        whole.claim(WHOLE, uuid=ONE)
    requests = [one.partition("?")[0] for one in interceptor.seen]
    assert requests[-1] == TAKES
    cases = [
        (fault, number, then)
        for fault in SWEPT
        for number in range(len(requests))
        for then in ("claimed again", "released")
    ]
    last = len(requests) - 1
    keep = [("500 when done", last, "released"), ("nonsense when done", last, "claimed again")]
    for case in draw(cases, 3, keep=keep):
        fault, number, then = case
        moments.go_back(beginning)
        with late() as broken:
            interceptor.expect(number, FAULTS[fault])
            with suppress(PlacementError, NoCandidates):
                broken.claim(WHOLE, uuid=ONE)
            assert interceptor.struck, case
        assert not unknown(publishing.context), case
        interceptor.expect()
        with late() as repaired:
            if then == "claimed again":
                repaired.claim(WHOLE, uuid=ONE)
                assert [*held()] == [ONE], case
                assert noted(publishing.context) == taken(publishing.context), case
            elif there_are(publishing.context):
                repaired.claims.release(ONE)
                assert held() == {}, case
        assert faults(publishing.context) == [], case


# Many threads: the same instance, and the last unit.


def test_instance_claimed_by_many_threads_is_claimed_once(
    desk: Desk, publishing: Publishing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # restore the waits: a thread that is too early must wait
    minute = timedelta(minutes=1)
    with Desk(desk.client, desk.context, down_time=minute) as patient:
        ends = together([lambda: patient.claim(SMALL, uuid=ONE)] * THREADS)

    assert [end for end in ends if isinstance(end, Exception)] == []
    [node] = {end.instance.node for end in ends if not isinstance(end, Exception)}
    assert held() == {ONE: {str(node): {"VCPU": 1}}}
    assert settled(publishing) == []
    assert noted(publishing.context) == taken(publishing.context)


def assert_one_winner(ends: list[Any], publishing: Publishing) -> None:
    """Assert that one claim succeeded, and that the others have no allocation and no instance."""
    [won] = [end for end in ends if not isinstance(end, Exception)]
    assert len(ends) == THREADS
    assert [*held()] == there_are(publishing.context) == [won.instance.uuid]
    assert settled(publishing) == []
    assert noted(publishing.context) == taken(publishing.context)


def test_last_unit_goes_to_one_of_many_threads(desk: Desk, publishing: Publishing) -> None:
    publishing.driver.nodes["cn-1"] = flat(VCPU=1)
    assert not publishing.cycle.sync().problems
    allocate(publishing.placement, uuid("others"), "1.39", **{"cn-0": {"VCPU": 2}})

    def new() -> Desk:
        made = Desk(publishing.placement.new_client(), publishing.context)
        made.setUp()
        return made

    desks = [desk, *(new() for _ in range(THREADS - 1))]
    ends = together([lambda its=its: its.claim(SMALL) for its in desks])  # type: ignore[misc]

    publishing.client.delete_allocations(uuid("others"))
    assert_one_winner(ends, publishing)


def test_last_units_of_two_owners_go_to_one_thread_or_to_two(
    gpus: Desk, publishing: Publishing
) -> None:
    both = flavor("both", **NOVAS, **CYBORGS, group_policy="none")
    ends: list[Any] = together([lambda: gpus.claim(both)] * THREADS)
    assert_one_winner(ends, publishing)
    [(won, its)] = held().items()
    assert its == {"cn-0": {"VCPU": 1}, "novas": {"VGPU": 1}, "cyborgs": {"VGPU": 1}}
    gpus.claims.release(won)

    wanted = [flavor("novas", **NOVAS), flavor("cyborgs", **CYBORGS)] * 4
    ends = together([lambda one=one: gpus.claim(one) for one in wanted])  # type: ignore[misc]
    winners = [end.instance.flavor.name for end in ends if not isinstance(end, Exception)]
    assert sorted(winners) == ["cyborgs", "novas"]
    assert settled(publishing) == []
