"""Releases: what an instance and its moves have is given back, whoever comes between."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta

import pytest

from tests.lab.allocating import Desk, faults, flavor, held
from tests.lab.claimants import Boundaries, anew, between, settled, unknown, warm
from tests.lab.claiming import noted, taken
from tests.lab.cycles import HOST, Publishing, everything
from tests.lab.drivers import flat
from tests.lab.faults import FAULTS, Interceptor
from tests.lab.moments import Moments
from tests.lab.placement import adapter_to
from tests.lab.reserving import CleaningDriver, Crash, drives, is_full, rows, summary
from tests.lab.samples import uuid
from wharfinger.exceptions import (
    AllocationRefused,
    NoCandidates,
    ObjectError,
    ObjectNotFound,
    PlacementError,
)
from wharfinger.objects import InstanceList, Migration, MigrationList
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.embedded import EmbeddedPlacement

ONE = uuid("an instance")
SMALL, WHOLE = flavor("small"), flavor("whole", 2)
FREE = {(HOST, "cn-0"): (0, 0, 0), (HOST, "cn-1"): (0, 0, 0)}
#: What a release, a claim or a move may say to others that come between.
DOCUMENTED = (AllocationRefused, NoCandidates, ObjectError, PlacementError)


def heads(publishing: Publishing) -> list[str]:
    return [one.partition("?")[0] for one in publishing.placement.requests.seen]


def there_are(publishing: Publishing) -> list[str]:
    return [one.uuid for one in InstanceList.get_by_filters(publishing.context)]


def nothing_is_left(publishing: Publishing) -> bool:
    """Whether nobody has anything, and there is neither an instance nor a move under way."""
    moves = MigrationList.get_by_filters(publishing.context)
    return (
        not held()
        and not there_are(publishing)
        and not [one for one in moves if one.is_in_progress]
    )


# An instance.


def test_a_release_gives_all_back(desk: Desk, publishing: Publishing) -> None:
    desk.claim(SMALL, uuid=ONE)
    other = desk.claim(SMALL).instance
    publishing.placement.requests.clear()

    assert desk.claims.release(ONE) == ()

    assert heads(publishing) == [
        f"GET /allocations/{ONE}",
        "GET /resource_providers",
        "POST /allocations",
    ]
    assert held() == {other.uuid: {str(other.node): {"VCPU": 1}}}
    assert there_are(publishing) == [other.uuid]
    assert noted(publishing.context) == FREE | {(HOST, str(other.node)): (1, 0, 0)}
    assert faults(publishing.context) == []


def test_nothing_is_reserved_where_nothing_is_cleaned(desk: Desk, publishing: Publishing) -> None:
    desk.claim(SMALL, uuid=ONE)
    before = {name: one["inventories"] for name, one in everything().items()}
    desk.claims.release(ONE)

    assert rows(publishing.context) == {}
    assert {name: one["inventories"] for name, one in everything().items()} == before
    assert not [one for one in publishing.placement.requests.writes if "/inventories" in one][2:]
    assert faults(publishing.context) == []


@pytest.mark.parametrize("times", [1, 2])
def test_there_has_to_be_an_instance(desk: Desk, publishing: Publishing, times: int) -> None:
    for _ in range(times - 1):
        desk.claim(SMALL, uuid=ONE)
        desk.claims.release(ONE)
    before = everything()
    with pytest.raises(ObjectNotFound, match=ONE):
        desk.claims.release(ONE)
    assert everything() == before
    assert faults(publishing.context) == []


def test_one_that_lost_its_allocation_is_released(desk: Desk, publishing: Publishing) -> None:
    desk.claim(SMALL, uuid=ONE)
    desk.client.delete_allocations(ONE)
    desk.claims.release(ONE)
    assert nothing_is_left(publishing)
    assert noted(publishing.context) == FREE


def test_one_is_released_whose_node_is_no_more(desk: Desk, publishing: Publishing) -> None:
    desk.claim(SMALL, uuid=ONE)
    [node] = held()[ONE]
    desk.claims.release(desk.claim(SMALL).instance.uuid)
    del publishing.driver.nodes[node]
    publishing.allow_mass_removal = True
    for _ in range(2):  # gone is what two listings lack; it is kept while it is allocated
        publishing.restarted().sync()

    desk.claims.release(ONE)
    assert nothing_is_left(publishing)
    assert settled(publishing) == []


# What is cleaned.


@pytest.fixture
def metal(desk: Desk, publishing: Publishing) -> Desk:
    """Whose nodes are cleaned when they have been given back."""
    driver = CleaningDriver()
    drives(publishing, driver)
    driver.nodes |= {"cn-0": flat(VCPU=2), "cn-1": flat(VCPU=2)}
    assert not publishing.cycle.sync().problems
    return desk


def test_what_is_cleaned_is_reserved_before_it_is_given_back(
    metal: Desk, publishing: Publishing
) -> None:
    node = str(metal.claim(WHOLE, uuid=ONE).instance.node)
    provider = summary(publishing.placement, node).uuid
    publishing.placement.requests.clear()

    [reservation] = metal.claims.release(ONE)

    assert publishing.placement.requests.writes == [
        f"PUT /resource_providers/{provider}/inventories",
        "POST /allocations",
    ]
    assert (reservation.provider_uuid, reservation.consumer_uuid) == (provider, ONE)
    assert (reservation.phase, is_full(publishing.placement, node)) == ("released", True)
    assert faults(publishing.context) == []
    assert nothing_is_left(publishing)


def test_it_can_be_had_of_nobody_until_it_is_clean(metal: Desk, publishing: Publishing) -> None:
    nodes = [str(metal.claim(WHOLE).instance.node) for _ in range(2)]
    for one in there_are(publishing):
        metal.claims.release(one)
    with pytest.raises(NoCandidates):
        metal.claim(SMALL)

    driver = publishing.driver
    assert isinstance(driver, CleaningDriver)
    driver.clean |= {one["uuid"] for one in everything().values()}
    for pace in ("drift", "poll", "sync"):
        getattr(publishing.cycle, pace)()
    assert {str(metal.claim(WHOLE).instance.node) for _ in range(2)} == set(nodes)
    assert faults(publishing.context) == []


def test_it_can_never_be_had_while_it_is_given_back(metal: Desk, publishing: Publishing) -> None:
    metal.claim(WHOLE)
    metal.claim(WHOLE, uuid=ONE)
    moments = Moments(publishing.state_path)
    beginning = moments.take()
    with Boundaries(publishing.placement, reads=True) as whole:
        metal.claims.release(ONE)
    with anew(publishing) as other:

        def claim() -> None:
            with pytest.raises(NoCandidates):
                other.claim(SMALL)

        for number, name in between(whole.passed):
            moments.go_back(beginning)
            with Boundaries(publishing.placement, reads=True, act_at=number, act=claim):
                metal.claims.release(ONE)
            assert len(held()) == 1, name
            assert len(there_are(publishing)) == 1, name
            assert faults(publishing.context) == [], name


def test_a_crash_while_it_is_given_back_leaves_nothing_to_be_had(
    metal: Desk, publishing: Publishing
) -> None:
    metal.claim(WHOLE)
    node = str(metal.claim(WHOLE, uuid=ONE).instance.node)
    moments = Moments(publishing.state_path)
    beginning = moments.take()
    with Boundaries(publishing.placement) as whole:
        metal.claims.release(ONE)
    for number, name in between(whole.passed):
        moments.go_back(beginning)
        with Boundaries(publishing.placement, crash_at=number), pytest.raises(Crash):
            metal.claims.release(ONE)
        with anew(publishing) as late:
            with pytest.raises(NoCandidates):
                late.claim(SMALL)
            with suppress(ObjectNotFound):
                late.claims.release(ONE)
        assert ONE not in held(), name
        assert [one.phase for one in rows(publishing.context).values()] == ["released"], name
        assert is_full(publishing.placement, node), name
        assert settled(publishing) == [], name


# Cut short.


def test_a_release_that_dies_at_any_step_is_finished_by_another(
    desk: Desk, publishing: Publishing
) -> None:
    desk.claim(SMALL, uuid=ONE)
    moments = Moments(publishing.state_path)
    beginning = moments.take()
    with Boundaries(publishing.placement) as whole:
        desk.claims.release(ONE)
    assert len(whole.passed) == 8  # where it is, what it has, the instance, the node
    for number, name in between(whole.passed):
        moments.go_back(beginning)
        with Boundaries(publishing.placement, crash_at=number), pytest.raises(Crash):
            desk.claims.release(ONE)
        assert not unknown(publishing.context), name
        with anew(publishing) as late:
            if there_are(publishing):
                late.claims.release(ONE)
        assert nothing_is_left(publishing), name
        assert settled(publishing) == [], name
        assert noted(publishing.context) == FREE, name


def test_one_whose_release_has_begun_is_not_claimed_anew(
    desk: Desk, publishing: Publishing
) -> None:
    desk.claim(SMALL, uuid=ONE)
    moments = Moments(publishing.state_path)
    beginning = moments.take()
    with Boundaries(publishing.placement) as whole:
        desk.claims.release(ONE)
    ends = []
    for number, name in between(whole.passed):
        moments.go_back(beginning)
        with Boundaries(publishing.placement, crash_at=number), pytest.raises(Crash):
            desk.claims.release(ONE)
        with anew(publishing) as late:
            try:
                late.claim(SMALL, uuid=ONE)
            except AllocationRefused as error:
                assert "release it again" in str(error)
                ends.append("refused")
                late.claims.release(ONE)
                late.claim(SMALL, uuid=ONE)
            else:
                ends.append("claimed")
        assert [len(its) for its in held().values()] == [1], name
        assert settled(publishing) == [], name
        assert noted(publishing.context) == taken(publishing.context), name
    # Where nothing is written of it yet, and where it is no more.
    assert ends[0] == ends[-1] == "claimed"
    assert ends.count("refused") >= 2


def test_one_that_is_being_claimed_is_not_released(desk: Desk, publishing: Publishing) -> None:
    moments = Moments(publishing.state_path)
    beginning = moments.take()
    with Boundaries(publishing.placement) as whole:
        desk.claim(SMALL, uuid=ONE)
    patient = Desk(desk.client, desk.context, down_time=timedelta(hours=1))
    patient.setUp()
    ends: list[str] = []

    def release() -> None:
        try:
            patient.claims.release(ONE)
        except (AllocationRefused, ObjectNotFound) as error:
            ends.append(type(error).__name__)
        else:
            ends.append("released")

    for number, name in between(whole.passed):
        moments.go_back(beginning)
        with (
            Boundaries(publishing.placement, act_at=number, act=release),
            suppress(ObjectNotFound),  # it is released before its claim is over
        ):
            desk.claim(SMALL, uuid=ONE)
        assert settled(publishing) == [], name
        assert bool(there_are(publishing)) is (ends[-1] != "released"), name
    assert [*dict.fromkeys(ends)] == ["ObjectNotFound", "BeingClaimed", "released"]


@pytest.fixture
def interceptor(placement_service: EmbeddedPlacement) -> Iterator[Interceptor]:
    with Interceptor(placement_service.application) as fixture:
        yield fixture


#: One of each kind: what is not carried out, what is and nobody is told, and what is not true.
SWEPT = ["409", "500", "500 when done", "nonsense when done"]


@pytest.mark.parametrize("fault", SWEPT)
def test_a_release_of_which_a_request_failed_is_finished_by_another(
    metal: Desk, publishing: Publishing, interceptor: Interceptor, fault: str
) -> None:
    """In mid-move, where it asks most."""
    node = str(metal.claim(SMALL, uuid=ONE).instance.node)
    metal.moves.start(ONE, WHOLE, suits=lambda its: its.hypervisor_hostname != node)
    moments = Moments(publishing.state_path)
    beginning = moments.take()

    def late() -> Desk:
        return Desk(PlacementClient(adapter_to(interceptor.url)), metal.context)

    with late() as whole:
        whole.claims.release(ONE)
    requests = [one.partition("?")[0] for one in interceptor.seen]
    assert requests.count("POST /allocations") == 2
    for number, name in enumerate(requests):
        moments.go_back(beginning)
        with late() as broken:
            interceptor.expect(number, FAULTS[fault])
            with suppress(PlacementError):
                broken.claims.release(ONE)
            assert interceptor.struck, name
        interceptor.expect()
        with late() as mended:
            if there_are(publishing):
                mended.claims.release(ONE)
        assert nothing_is_left(publishing), name
        phases = {one.phase for one in rows(publishing.context).values()}
        assert (phases, len(rows(publishing.context))) == ({"released"}, 2), name
        assert faults(publishing.context) == [], name


# In mid-move.

#: At which boundary of a start a process dies, by what is left of its move; "finished" is none.
STATUSES = (
    "accepted",
    "accepted, allocated",
    "pre-migrating",
    "finished",
    "confirming",
    "reverting",
)


def moving(desk: Desk, publishing: Publishing, status: str) -> Migration:
    """Have an instance be on its way from one node to the other, as far as that."""
    node = str(desk.claim(SMALL, uuid=ONE).instance.node)

    def start() -> None:
        desk.moves.start(ONE, WHOLE, suits=lambda its: its.hypervisor_hostname != node)

    crashes = {
        "accepted": "before POST /allocations",
        "accepted, allocated": "after POST /allocations",
        "pre-migrating": "after update migrations",
    }
    if status in crashes:
        die_at(publishing, crashes[status], start)
    else:
        start()
    [migration] = MigrationList.get_by_filters(publishing.context, instance_uuid=ONE)
    if status in {"confirming", "reverting"}:
        migration.status = status
        migration.save()
    assert migration.status == status.partition(",")[0]
    return migration


def die_at(publishing: Publishing, name: str, act: Callable[[], object]) -> None:
    """Have an act come to its first boundary of that name, and no further."""
    moments = Moments(publishing.state_path)
    beginning = moments.take()
    with Boundaries(publishing.placement) as whole:
        act()
    moments.go_back(beginning)
    with (
        Boundaries(publishing.placement, crash_at=whole.passed.index(name)),
        pytest.raises(Crash),
    ):
        act()


@pytest.mark.parametrize("status", STATUSES)
def test_an_instance_is_released_in_mid_move(
    desk: Desk, publishing: Publishing, status: str
) -> None:
    migration = moving(desk, publishing, status)
    assert (migration.uuid in held()) is (status != "accepted")

    desk.claims.release(ONE)

    assert nothing_is_left(publishing)
    assert noted(publishing.context) == FREE
    assert faults(publishing.context) == []
    ended = Migration.get_by_uuid(publishing.context, migration.uuid).status
    assert ended == {
        "finished": "confirmed",
        "confirming": "confirmed",
        "reverting": "reverted",
    }.get(status, "failed")


@pytest.mark.parametrize("status", STATUSES)
def test_a_release_in_mid_move_that_dies_at_any_step_is_finished_by_another(
    desk: Desk, publishing: Publishing, status: str
) -> None:
    moving(desk, publishing, status)
    moments = Moments(publishing.state_path)
    beginning = moments.take()
    with Boundaries(publishing.placement) as whole:
        desk.claims.release(ONE)
    assert len(whole.passed) >= 8
    for number, name in between(whole.passed):
        moments.go_back(beginning)
        with Boundaries(publishing.placement, crash_at=number), pytest.raises(Crash):
            desk.claims.release(ONE)
        with anew(publishing) as late:
            if there_are(publishing):
                late.claims.release(ONE)
        assert nothing_is_left(publishing), name
        assert settled(publishing) == [], name
        assert noted(publishing.context) == FREE, name


def test_both_ends_of_a_move_are_cleaned_when_its_instance_is_released(
    metal: Desk, publishing: Publishing
) -> None:
    migration = moving(metal, publishing, "finished")
    held_for = metal.claims.release(ONE)

    assert {one.consumer_uuid for one in held_for} == {ONE, migration.uuid}
    assert all(is_full(publishing.placement, node) for node in ("cn-0", "cn-1"))
    assert nothing_is_left(publishing)


# Others that come between.


def acts(desk: Desk) -> dict[str, Callable[[], object]]:
    """What others do with the instance, by name."""
    return {
        "claim": lambda: desk.claim(SMALL, uuid=ONE),
        "release": lambda: desk.claims.release(ONE),
        "start": lambda: desk.moves.start(ONE, WHOLE),
        "confirm": lambda: desk.moves.confirm(ONE),
        "revert": lambda: desk.moves.revert(ONE),
    }


#: Who of two does something while the other does, and what there is before that.
RACES = [
    ("claim", "release", "nothing"),
    ("claim", "release", "claimed"),
    ("release", "claim", "claimed"),
    ("release", "release", "claimed"),
    ("release", "start", "claimed"),
    ("start", "release", "claimed"),
    ("release", "confirm", "moved"),
    ("confirm", "release", "moved"),
    ("release", "revert", "moved"),
    ("revert", "release", "moved"),
    ("release", "release", "moved"),
]


@pytest.mark.parametrize(("mine", "others", "before"), RACES)
def test_a_release_comes_between_any_two_steps(
    desk: Desk, publishing: Publishing, mine: str, others: str, before: str
) -> None:
    """And anything else between two of its own."""
    warm(desk)
    if before != "nothing":
        desk.claim(SMALL, uuid=ONE)
    if before == "moved":
        desk.moves.start(ONE, WHOLE)
    moments = Moments(publishing.state_path)
    beginning = moments.take()
    with Boundaries(publishing.placement, reads=True) as whole:
        acts(desk)[mine]()
    assert len(whole.passed) >= 7
    wrong: list[object] = []
    with anew(publishing) as other:
        warm(other)

        def come_between() -> None:
            with suppress(*DOCUMENTED):
                acts(other)[others]()

        for number, name in between(whole.passed):
            moments.go_back(beginning)
            with (
                Boundaries(publishing.placement, reads=True, act_at=number, act=come_between),
                suppress(*DOCUMENTED),
            ):
                acts(desk)[mine]()
            found = settled(publishing)
            if noted(publishing.context) != taken(publishing.context):
                found.append("rows are wrong")
            if "claim" not in (mine, others) and not nothing_is_left(publishing):
                found.append("something is left")
            if any(len(its) > 1 for its in held().values()):
                found.append("something is held twice")
            wrong += [(number, name, found)] if found else []
    assert wrong == []
