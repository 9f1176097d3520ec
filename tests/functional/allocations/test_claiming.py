"""Claims: what is written for an instance, where, and what becomes of one that is cut short."""

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.functional.scheduling.hosts import AGGREGATE, publish
from tests.lab import forests, killing
from tests.lab.allocating import CYBORGS, NOVAS, PROJECT, USER, Desk, faults, flavor, held
from tests.lab.claimants import Boundaries, Posts, anew, between, play, settled, unknown, warm
from tests.lab.claiming import noted, taken
from tests.lab.cycles import HOST, Publishing, everything
from tests.lab.drivers import also, flat
from tests.lab.moments import Moments
from tests.lab.placement import PlacementFixture, Requests
from tests.lab.reserving import Crash, summary
from tests.lab.samples import uuid
from wharfinger.exceptions import (
    AllocationRefused,
    DeviceProfileError,
    InvalidRequest,
    NoCandidates,
    ObjectNotFound,
)
from wharfinger.objects import ComputeNodeList, Context, Instance, InstanceList
from wharfinger.providers import ProviderTree
from wharfinger.tracker import services

NOVA, CYBORG = "OWNER_NOVA", "OWNER_CYBORG"
ONE = uuid("an instance")
SMALL = flavor("small")
#: Nodes whose service is of another cloud, as many as are never asked for at once.
MANY = 1200


def there_are(context: Context) -> list[str]:
    return [one.uuid for one in InstanceList.get_by_filters(context)]


# What is written.


def test_a_claim_is_written_to_placement_the_instance_and_its_node(
    desk: Desk, publishing: Publishing
) -> None:
    with Posts(publishing.placement) as posts:
        claimed = desk.claim(flavor("large", 2), uuid=ONE)

    node = str(claimed.instance.node)
    provider = summary(publishing.placement, node).uuid
    assert posts.bodies == [
        {
            ONE: {
                "allocations": {provider: {"resources": {"VCPU": 2}}},
                "consumer_generation": None,
                "consumer_type": "INSTANCE",
                "project_id": PROJECT,
                "user_id": USER,
            }
        }
    ]
    assert claimed.allocations == {provider: {"VCPU": 2}}
    assert held() == {ONE: {node: {"VCPU": 2}}}
    row = Instance.get_by_uuid(publishing.context, ONE)
    assert (row.host, row.node, row.project_id, row.user_id) == (HOST, node, PROJECT, USER)
    assert (row.flavor.name, row.flavor.vcpus) == ("large", 2)
    assert noted(publishing.context) == taken(publishing.context)
    assert noted(publishing.context)[HOST, node] == (2, 0, 0)
    assert faults(publishing.context) == []


def test_a_claim_is_three_requests(desk: Desk, publishing: Publishing) -> None:
    warm(desk)
    publishing.placement.requests.clear()
    desk.claim(SMALL, uuid=ONE)
    paths = [request.partition("?")[0] for request in publishing.placement.requests.seen]
    assert paths == [f"GET /allocations/{ONE}", "GET /allocation_candidates", "POST /allocations"]


def test_an_instance_without_a_uuid_is_a_new_one(desk: Desk, publishing: Publishing) -> None:
    uuids = {desk.claim(SMALL).instance.uuid for _ in range(4)}
    assert len(uuids) == 4
    assert held().keys() == uuids
    assert faults(publishing.context) == []


def test_instances_are_claimed_until_nothing_is_free(desk: Desk, publishing: Publishing) -> None:
    for _ in range(4):
        desk.claim(SMALL)
    with pytest.raises(NoCandidates, match="candidate explain --flavor small"):
        desk.claim(SMALL, uuid=ONE)

    assert ONE not in there_are(publishing.context)
    assert len(held()) == 4
    assert noted(publishing.context) == {(HOST, "cn-0"): (2, 0, 0), (HOST, "cn-1"): (2, 0, 0)}
    assert faults(publishing.context) == []


def test_a_claim_is_for_a_node_that_suits(desk: Desk, publishing: Publishing) -> None:
    for number in range(2):
        claimed = desk.claim(SMALL, suits=lambda node: node.hypervisor_hostname == "cn-1")
        assert (claimed.instance.node, len(held())) == ("cn-1", number + 1)
    with pytest.raises(NoCandidates, match="what is free is on"):
        desk.claim(SMALL, uuid=ONE, suits=lambda node: node.hypervisor_hostname == "none")

    assert noted(publishing.context)[HOST, "cn-1"] == (2, 0, 0)
    assert faults(publishing.context) == []


# Owners.


def test_vgpus_are_their_owner_s(gpus: Desk, publishing: Publishing) -> None:
    novas = gpus.claim(flavor("novas", **{"resources:VGPU": "1"}), uuid=ONE)

    assert held() == {ONE: {"cn-0": {"VCPU": 1}, "novas": {"VGPU": 1}}}
    assert novas.instance.node == "cn-0"
    with pytest.raises(NoCandidates):
        gpus.claim(flavor("more", **{"resources:VGPU": "1"}))
    with pytest.raises(NoCandidates):
        gpus.claim(flavor("more", **NOVAS))
    assert there_are(publishing.context) == [ONE]
    assert faults(publishing.context) == []


def test_one_flavor_asks_for_two_owners_vgpus(gpus: Desk, publishing: Publishing) -> None:
    both = flavor("both", **NOVAS, **CYBORGS, group_policy="none")
    gpus.claim(both, uuid=ONE)

    assert held() == {ONE: {"cn-0": {"VCPU": 1}, "novas": {"VGPU": 1}, "cyborgs": {"VGPU": 1}}}
    for one in (flavor("novas", **NOVAS), flavor("cyborgs", **CYBORGS), both):
        with pytest.raises(NoCandidates):
            gpus.claim(one)
    assert faults(publishing.context) == []


def test_the_last_of_one_of_two_owners_is_enough_to_have_nothing(
    gpus: Desk, publishing: Publishing
) -> None:
    other = gpus.claim(flavor("cyborgs", **CYBORGS)).instance.uuid
    with pytest.raises(NoCandidates):
        gpus.claim(flavor("both", **NOVAS, **CYBORGS, group_policy="none"))

    assert held() == {other: {"cn-0": {"VCPU": 1}, "cyborgs": {"VGPU": 1}}}
    assert faults(publishing.context) == []


@pytest.fixture
def with_profiles(gpus: Desk, tmp_path: Path) -> Desk:
    """One that knows a device profile, "gold", of one of Cyborg's VGPUs."""
    groups = [{"resources:VGPU": "1"}]
    profiles, conf = tmp_path / "profiles.json", tmp_path / "accelerator.conf"
    profiles.write_text(json.dumps({"device_profiles": [{"name": "gold", "groups": groups}]}))
    conf.write_text(f"[accelerator]\ndevice_profiles = {profiles}\n")
    return Desk(gpus.client, gpus.context, conf)


def test_a_device_profile_is_claimed_of_cyborg(with_profiles: Desk, publishing: Publishing) -> None:
    with with_profiles as desk:
        desk.claim(flavor("gold", **{"accel:device_profile": "gold"}), uuid=ONE)
        assert held() == {ONE: {"cn-0": {"VCPU": 1}, "cyborgs": {"VGPU": 1}}}
        desk.claims.release(ONE)
    assert held() == {}
    assert faults(publishing.context) == []


def test_what_cannot_be_asked_for_leaves_no_instance(
    with_profiles: Desk, publishing: Publishing
) -> None:
    wrong: list[tuple[dict[str, str], type[Exception]]] = [
        ({"accel:device_profile": "silver"}, DeviceProfileError),
        ({"resources:VGPU": "some"}, InvalidRequest),
        ({"trait_A:CUSTOM_GOLD": "required"}, InvalidRequest),
        ({**NOVAS, **CYBORGS, "group_policy": "any"}, InvalidRequest),
    ]
    with with_profiles as desk:
        for extra_specs, refusal in wrong:
            with pytest.raises(refusal):
                desk.claim(flavor("wrong", **extra_specs), uuid=ONE)
            assert there_are(publishing.context) == []
    assert held() == {}
    assert faults(publishing.context) == []


# Trees.


def test_a_shared_disk_is_claimed_with_the_node_that_shares_it(
    publishing: Publishing, desk: Desk
) -> None:
    def shares(tree: ProviderTree) -> None:
        tree.update_aggregates("cn-1", [AGGREGATE])

    publishing.driver.nodes["cn-1"] = also(shares)(flat(VCPU=2))
    assert not publishing.cycle.sync().problems
    traits = "MISC_SHARES_VIA_AGGREGATE"
    publish(publishing.client, "disk", {"DISK_GB": 20}, traits, aggregate=AGGREGATE)
    services.report(publishing.context, HOST, [NOVA], complete=True)

    desk.claim(flavor("disk", **{"resources:DISK_GB": "15"}), uuid=ONE)

    assert held() == {ONE: {"cn-1": {"VCPU": 1}, "disk": {"DISK_GB": 15}}}
    assert Instance.get_by_uuid(publishing.context, ONE).node == "cn-1"
    with pytest.raises(NoCandidates):
        desk.claim(flavor("disk", **{"resources:DISK_GB": "15"}))
    assert faults(publishing.context) == []


def test_a_shared_disk_alone_is_on_no_node(publishing: Publishing, desk: Desk) -> None:
    traits = "MISC_SHARES_VIA_AGGREGATE"
    publish(publishing.client, "disk", {"DISK_GB": 20}, traits, aggregate=AGGREGATE)
    with pytest.raises(NoCandidates, match="what is free is on"):
        desk.claim(flavor("disk", 0, **{"resources:DISK_GB": "15"}), uuid=ONE)
    assert (held(), there_are(publishing.context)) == ({}, [])


@pytest.fixture
def owners_forgotten(placement: PlacementFixture) -> Iterator[None]:
    """Placement knows of no more owners in the end than before."""
    yield
    forests.empty()


@pytest.mark.usefixtures("owners_forgotten")
def test_nodes_of_others_are_passed_by_however_many_there_are(
    publishing: Publishing, desk: Desk
) -> None:
    publishing.driver.nodes = {"cn-0": flat(VCPU=1)}
    publishing.allow_mass_removal = True
    for _ in range(2):  # gone is what two listings lack
        publishing.restarted().sync()
    assert everything().keys() == {"cn-0"}
    others = tuple(
        forests.Provider(number, None, frozenset([NOVA]), {"VCPU": forests.Stock(4)})
        for number in range(MANY, 2 * MANY)
    )
    forests.publish(others)
    with anew(publishing) as late:
        assert late.claim(SMALL, uuid=ONE).instance.node == "cn-0"
        with pytest.raises(NoCandidates, match=rf"candidates: {MANY}\)"):
            late.claim(SMALL)
    assert held() == {ONE: {"cn-0": {"VCPU": 1}}}
    assert faults(publishing.context) == []


# The same instance again.


def test_an_instance_that_has_it_is_left_as_it_is(desk: Desk, publishing: Publishing) -> None:
    first = desk.claim(SMALL, uuid=ONE)
    before, revision = everything(), first.instance.revision
    publishing.placement.requests.clear()
    with Boundaries(publishing.placement) as boundaries:
        again = desk.claim(SMALL, uuid=ONE)

    assert again.allocations == first.allocations
    assert (again.instance.node, again.instance.revision) == (first.instance.node, revision)
    assert set(publishing.placement.requests.seen) == {f"GET /allocations/{ONE}"}
    # That there is one already is found by trying to add it.
    assert boundaries.passed == ["before insert instances"]
    assert everything() == before
    assert faults(publishing.context) == []


@pytest.mark.parametrize(
    "other",
    [
        {"flavor": flavor("small", 2)},
        {"flavor": flavor("another")},
        {"flavor": flavor("small", **NOVAS)},
        {"project_id": "another"},
        {"user_id": "another"},
    ],
    ids=["vcpus", "name", "extra specs", "project", "user"],
)
def test_a_uuid_is_of_one_instance(
    desk: Desk, publishing: Publishing, other: dict[str, Any]
) -> None:
    desk.claim(SMALL, uuid=ONE)
    before = everything()
    publishing.placement.requests.clear()
    asked = {"flavor": SMALL, "project_id": PROJECT, "user_id": USER} | other
    with pytest.raises(AllocationRefused, match="a uuid of its own"):
        desk.claims.claim(asked.pop("flavor"), uuid=ONE, **asked)

    assert publishing.placement.requests.writes == []
    assert everything() == before
    row = Instance.get_by_uuid(publishing.context, ONE)
    assert (row.flavor.name, row.flavor.vcpus, row.project_id) == ("small", 1, PROJECT)
    assert faults(publishing.context) == []


@pytest.mark.parametrize("lost", [False, True])
def test_an_instance_that_is_elsewhere_is_not_claimed_for_where_it_was_to_be(
    desk: Desk, publishing: Publishing, lost: bool
) -> None:
    desk.claim(SMALL, uuid=ONE, suits=lambda node: node.hypervisor_hostname == "cn-0")
    if lost:
        desk.client.delete_allocations(ONE)
    before = everything()
    with pytest.raises(AllocationRefused, match="it is on node cn-0 of host"):
        desk.claim(SMALL, uuid=ONE, suits=lambda node: node.hypervisor_hostname == "cn-1")

    assert everything() == before


def test_a_flavor_that_was_changed_since_is_another(desk: Desk, publishing: Publishing) -> None:
    kept = flavor("kept")
    desk.claim(kept, uuid=ONE)
    kept.vcpus = 2
    with pytest.raises(AllocationRefused):
        desk.claim(kept, uuid=ONE)
    assert sum(one["VCPU"] for one in held()[ONE].values()) == 1
    assert faults(publishing.context) == []


def test_one_that_lost_its_allocation_gets_it_back_on_its_node(
    desk: Desk, publishing: Publishing
) -> None:
    node = desk.claim(SMALL, uuid=ONE).instance.node
    desk.client.delete_allocations(ONE)  # somebody has, by hand
    assert faults(publishing.context) == [f"{ONE} has no allocation"]
    desk.claim(SMALL, uuid=ONE)
    assert held() == {ONE: {str(node): {"VCPU": 1}}}
    assert faults(publishing.context) == []


# Cut short.


def states(publishing: Publishing, act: Callable[[], object]) -> list[str]:
    """The boundaries of an act that nobody cuts short; afterwards all is as before."""
    moments = Moments(publishing.state_path)
    beginning = moments.take()
    with Boundaries(publishing.placement) as boundaries:
        act()
    moments.go_back(beginning)
    return boundaries.passed


@pytest.mark.parametrize("then", ["claimed again", "released"])
def test_a_claim_that_dies_at_any_step_is_finished_or_undone(
    desk: Desk, publishing: Publishing, then: str
) -> None:
    warm(desk)
    moments = Moments(publishing.state_path)
    beginning = moments.take()
    passed = states(publishing, lambda: desk.claim(SMALL, uuid=ONE))
    assert len(passed) >= 8  # two for each of the instance, the allocation, its place and the node
    for number, name in between(passed):
        moments.go_back(beginning)
        with (
            Boundaries(publishing.placement, crash_at=number) as boundaries,
            pytest.raises(Crash),
        ):
            desk.claim(SMALL, uuid=ONE)
        assert boundaries.passed[-1] == name
        assert not unknown(publishing.context), name

        with anew(publishing) as late:
            if then == "claimed again":
                node = late.claim(SMALL, uuid=ONE).instance.node
                expected = {ONE: {str(node): {"VCPU": 1}}}
            else:
                expected = {}
                if name == "before insert instances":
                    with pytest.raises(ObjectNotFound):
                        late.claims.release(ONE)
                else:
                    late.claims.release(ONE)
        assert held() == expected, name
        assert settled(publishing) == [], name
        assert noted(publishing.context) == taken(publishing.context), name
        assert there_are(publishing.context) == list(expected), name


def test_a_claim_that_dies_takes_nothing_from_who_comes_next(
    desk: Desk, publishing: Publishing
) -> None:
    for _ in range(3):
        desk.claim(SMALL)
    moments = Moments(publishing.state_path)
    beginning = moments.take()
    for number, name in between(states(publishing, lambda: desk.claim(SMALL, uuid=ONE))):
        moments.go_back(beginning)
        with Boundaries(publishing.placement, crash_at=number), pytest.raises(Crash):
            desk.claim(SMALL, uuid=ONE)
        has_it = ONE in held()
        with anew(publishing) as late:
            if has_it:  # the last one
                with pytest.raises(NoCandidates):
                    late.claim(SMALL)
                late.claim(SMALL, uuid=ONE)
            else:
                late.claim(SMALL)
                if name != "before insert instances":
                    with pytest.raises(NoCandidates):
                        late.claim(SMALL, uuid=ONE)
                    assert ONE not in there_are(publishing.context)
        assert len(held()) == 4, name
        assert settled(publishing) == [], name


@pytest.mark.parametrize("then", ["claimed again", "released"])
def test_a_process_that_is_killed_in_a_claim_leaves_what_can_be_finished_or_undone(
    desk: Desk, publishing: Publishing, placement_url: tuple[str, Requests], then: str
) -> None:
    publishing.restarted().sync()  # Placement was emptied, to be served
    url, _requests = placement_url
    moments = Moments(publishing.state_path)
    beginning = moments.take()
    lived = killing.run(play, "claim", ONE, url, publishing.state_path)
    assert lived.code == 0, "its traceback is on standard error"
    assert faults(publishing.context) == []
    assert len(lived.boundaries) >= 8
    for number, name in [*enumerate(lived.boundaries)][:: 1 if then == "released" else 3]:
        moments.go_back(beginning)
        killed = killing.run(play, "claim", ONE, url, publishing.state_path, kill_at=number)
        assert (killed.code, killed.boundaries[-1]) == (-signal.SIGKILL, name)
        assert not unknown(publishing.context), name
        with anew(publishing) as late:
            if then == "claimed again":
                late.claim(SMALL, uuid=ONE)
            elif number > 0:
                late.claims.release(ONE)
        assert held().keys() == ({ONE} if then == "claimed again" else set()), name
        assert settled(publishing) == [], name


# The node.


def gone(context: Context, node: str) -> None:
    """Have the row of a node be no more."""
    [row] = ComputeNodeList.get_by_filters(context, host=HOST, hypervisor_hostname=node)
    row.destroy()


def test_nothing_is_left_of_a_claim_whose_node_goes_meanwhile(
    desk: Desk, publishing: Publishing
) -> None:
    warm(desk)
    moments = Moments(publishing.state_path)
    beginning = moments.take()

    context = publishing.context

    def on_first() -> Any:
        return desk.claim(SMALL, uuid=ONE, suits=lambda node: node.hypervisor_hostname == "cn-0")

    with Boundaries(publishing.placement, reads=True) as whole:
        on_first()
    ends: set[type] = set()
    for number, name in between(whole.passed):
        moments.go_back(beginning)
        with Boundaries(
            publishing.placement, reads=True, act_at=number, act=lambda: gone(context, "cn-0")
        ):
            try:
                on_first()
            except (NoCandidates, ObjectNotFound) as error:
                ends.add(type(error))
                assert there_are(context) == [], name
                assert held() == {}, name
            else:
                ends.add(type(None))
        assert faults(context) == [], name
    assert ends == {NoCandidates, ObjectNotFound, type(None)}


def test_a_node_that_has_no_row_is_passed_by(desk: Desk, publishing: Publishing) -> None:
    gone(publishing.context, "cn-1")
    assert {desk.claim(SMALL).instance.node for _ in range(2)} == {"cn-0"}
    with pytest.raises(NoCandidates):
        desk.claim(SMALL)
    assert len(held()) == 2
    assert faults(publishing.context) == []


def test_a_claim_that_was_cut_short_goes_on_where_it_was_only_if_that_is_a_node(
    desk: Desk, publishing: Publishing
) -> None:
    passed = states(publishing, lambda: desk.claim(SMALL, uuid=ONE))
    number = passed.index("after POST /allocations")
    with Boundaries(publishing.placement, crash_at=number), pytest.raises(Crash):
        desk.claim(SMALL, uuid=ONE)
    [node] = held()[ONE]
    gone(publishing.context, node)

    with pytest.raises(AllocationRefused, match="Release it"):
        desk.claim(SMALL, uuid=ONE)
    desk.claims.release(ONE)

    assert held() == {}
    assert faults(publishing.context) == []
