"""Claims: what they write for an instance, and what happens if they are interrupted."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.functional.scheduling.hosts import AGGREGATE, publish
from tests.lab import forests
from tests.lab.allocating import CYBORGS, NOVAS, PROJECT, USER, Desk, faults, flavor, held
from tests.lab.claimants import (
    Boundaries,
    Posts,
    Rehearsal,
    anew,
    settled,
    there_are,
    unknown,
    warm,
)
from tests.lab.claiming import noted, taken
from tests.lab.cycles import HOST, Publishing, everything
from tests.lab.drawing import Draw
from tests.lab.drivers import also, flat
from tests.lab.histories import on
from tests.lab.reserving import summary
from tests.lab.samples import uuid
from wharfinger.exceptions import (
    AllocationRefused,
    DeviceProfileError,
    InvalidRequest,
    NoCandidates,
    ObjectNotFound,
)
from wharfinger.objects import ComputeNodeList, Context, Flavor, Instance
from wharfinger.providers import ProviderTree
from wharfinger.tracker import service_record

NOVA, CYBORG = "OWNER_NOVA", "OWNER_CYBORG"
ONE = uuid("an instance")
SMALL = flavor("small")
BOTH = flavor("both", **NOVAS, **CYBORGS, group_policy="none")
#: Number of nodes of other hosts: more than one request for candidates returns.
MANY = 1200


# Writes of a claim.


def test_claim_makes_three_requests_and_writes_instance_and_node(
    desk: Desk, publishing: Publishing
) -> None:
    warm(desk)
    publishing.placement.requests.clear()
    with Posts(publishing.placement) as posts:
        claimed = desk.claim(flavor("large", 2), uuid=ONE)

    paths = [request.partition("?")[0] for request in publishing.placement.requests.seen]
    assert paths == [f"GET /allocations/{ONE}", "GET /allocation_candidates", "POST /allocations"]
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


def test_claims_without_uuid_create_instances_until_no_inventory_is_free(
    desk: Desk, publishing: Publishing
) -> None:
    assert {desk.claim(SMALL, suits=on("cn-1")).instance.node for _ in range(2)} == {"cn-1"}
    with pytest.raises(NoCandidates, match="1 free candidate is elsewhere: on node cn-0 of"):
        desk.claim(SMALL, uuid=ONE, suits=on("cn-1"))
    uuids = {*held(), *(desk.claim(SMALL).instance.uuid for _ in range(2))}
    assert len(uuids) == 4
    with pytest.raises(NoCandidates, match="candidate explain --flavor small"):
        desk.claim(SMALL, uuid=ONE)

    assert held().keys() == uuids == {*there_are(publishing.context)}
    assert noted(publishing.context) == {(HOST, "cn-0"): (2, 0, 0), (HOST, "cn-1"): (2, 0, 0)}
    assert faults(publishing.context) == []


# Owners.


def test_claim_of_vgpus_without_owner_uses_only_those_of_nova(
    gpus: Desk, publishing: Publishing
) -> None:
    novas = gpus.claim(flavor("novas", **{"resources:VGPU": "1"}), uuid=ONE)

    assert held() == {ONE: {"cn-0": {"VCPU": 1}, "novas": {"VGPU": 1}}}
    assert novas.instance.node == "cn-0"
    for extra_specs in ({"resources:VGPU": "1"}, NOVAS):
        with pytest.raises(NoCandidates):
            gpus.claim(flavor("more", **extra_specs))
    assert there_are(publishing.context) == [ONE]
    assert faults(publishing.context) == []


def test_claim_of_vgpus_of_two_owners_gets_both_or_nothing(
    gpus: Desk, publishing: Publishing
) -> None:
    gpus.claim(BOTH, uuid=ONE)
    assert held() == {ONE: {"cn-0": {"VCPU": 1}, "novas": {"VGPU": 1}, "cyborgs": {"VGPU": 1}}}
    for one in (flavor("novas", **NOVAS), flavor("cyborgs", **CYBORGS), BOTH):
        with pytest.raises(NoCandidates):
            gpus.claim(one)
    gpus.claims.release(ONE)

    other = gpus.claim(flavor("cyborgs", **CYBORGS)).instance.uuid
    with pytest.raises(NoCandidates):
        gpus.claim(BOTH)
    assert held() == {other: {"cn-0": {"VCPU": 1}, "cyborgs": {"VGPU": 1}}}
    assert faults(publishing.context) == []


def test_claim_of_a_device_profile_uses_cyborgs_provider(
    gpus: Desk, publishing: Publishing, tmp_path: Path
) -> None:
    groups = [{"resources:VGPU": "1"}]
    profiles, conf = tmp_path / "profiles.json", tmp_path / "accelerator.conf"
    profiles.write_text(json.dumps({"device_profiles": [{"name": "gold", "groups": groups}]}))
    conf.write_text(f"[accelerator]\ndevice_profiles = {profiles}\n")
    wrong: list[tuple[dict[str, str], type[Exception]]] = [
        ({"accel:device_profile": "silver"}, DeviceProfileError),
        ({"resources:VGPU": "some"}, InvalidRequest),
    ]
    with Desk(gpus.client, gpus.context, conf) as desk:
        for extra_specs, refusal in wrong:
            with pytest.raises(refusal):
                desk.claim(flavor("wrong", **extra_specs), uuid=ONE)
            assert (there_are(publishing.context), held()) == ([], {})
        desk.claim(flavor("gold", **{"accel:device_profile": "gold"}), uuid=ONE)
    assert held() == {ONE: {"cn-0": {"VCPU": 1}, "cyborgs": {"VGPU": 1}}}
    assert faults(publishing.context) == []


def test_claim_or_resize_with_unknown_name_names_extra_spec(
    desk: Desk, publishing: Publishing
) -> None:
    wrong = {
        "resources:VGPUS": flavor("wrong", **{"resources:VGPUS": "1"}),
        "CUSTOM_PMEM_NAMESPACE_6GB": flavor("wrong", 9999, **{"hw:pmem": "6GB"}),
        "trait:CUSTOM_NOPE": flavor("wrong", **{"trait:CUSTOM_NOPE": "required"}),
    }
    for told, wanted in wrong.items():
        with pytest.raises(InvalidRequest, match=f"flavor wrong.*{told}"):
            desk.claim(wanted, uuid=ONE)
        assert there_are(publishing.context) == []
    desk.claim(SMALL, uuid=ONE)
    before = held()
    with pytest.raises(InvalidRequest, match=r"flavor wrong.*CUSTOM_NOPE"):
        desk.moves.start(ONE, wanted)
    assert held() == before
    assert faults(publishing.context) == []


# Trees.


def test_shared_disk_is_claimed_with_the_node_that_shares_it(
    publishing: Publishing, desk: Desk
) -> None:
    def shares(tree: ProviderTree) -> None:
        tree.update_aggregates("cn-1", [AGGREGATE])

    publishing.driver.nodes["cn-1"] = also(shares)(flat(VCPU=2))
    assert not publishing.cycle.sync().problems
    traits = "MISC_SHARES_VIA_AGGREGATE"
    publish(publishing.client, "disk", {"DISK_GB": 20}, traits, aggregate=AGGREGATE)
    service_record.report(publishing.context, HOST, [NOVA], complete=True)
    with pytest.raises(NoCandidates, match="which is not a node of a driver"):
        desk.claim(flavor("disk", 0, **{"resources:DISK_GB": "15"}), uuid=ONE)
    assert (held(), there_are(publishing.context)) == ({}, [])

    desk.claim(flavor("disk", **{"resources:DISK_GB": "15"}), uuid=ONE)

    assert held() == {ONE: {"cn-1": {"VCPU": 1}, "disk": {"DISK_GB": 15}}}
    assert Instance.get_by_uuid(publishing.context, ONE).node == "cn-1"
    with pytest.raises(NoCandidates):
        desk.claim(flavor("disk", **{"resources:DISK_GB": "15"}))
    assert faults(publishing.context) == []


def test_claim_ignores_any_number_of_nodes_of_other_hosts(
    publishing: Publishing, desk: Desk, request: pytest.FixtureRequest
) -> None:
    publishing.driver.nodes = {"cn-0": flat(VCPU=1)}
    publishing.allow_mass_removal = True
    for _ in range(2):  # a node is removed when two listings lack it
        publishing.restarted().sync()
    assert everything().keys() == {"cn-0"}
    others = tuple(
        forests.Provider(number, None, frozenset([NOVA]), {"VCPU": forests.Stock(4)})
        for number in range(MANY, 2 * MANY)
    )
    request.addfinalizer(forests.empty)  # deletes the providers
    forests.publish(others)
    with anew(publishing) as late:
        assert late.claim(SMALL, uuid=ONE).instance.node == "cn-0"
        with pytest.raises(NoCandidates, match=f"{MANY} free candidates are elsewhere"):
            late.claim(SMALL)
    assert held() == {ONE: {"cn-0": {"VCPU": 1}}}
    assert faults(publishing.context) == []


# The same instance again.


def test_second_claim_of_an_instance_changes_nothing(desk: Desk, publishing: Publishing) -> None:
    first = desk.claim(SMALL, uuid=ONE)
    before, revision = everything(), first.instance.revision
    publishing.placement.requests.clear()
    with Boundaries(publishing.placement) as boundaries:
        again = desk.claim(SMALL, uuid=ONE)

    assert again.allocations == first.allocations
    assert (again.instance.node, again.instance.revision) == (first.instance.node, revision)
    assert set(publishing.placement.requests.seen) == {f"GET /allocations/{ONE}"}
    assert boundaries.passed == []
    assert everything() == before
    assert faults(publishing.context) == []


def test_claim_with_the_uuid_of_another_instance_is_refused(
    desk: Desk, publishing: Publishing
) -> None:
    kept = flavor("small")
    desk.claim(kept, uuid=ONE)
    before = everything()
    kept.vcpus = 2
    publishing.placement.requests.clear()
    others: list[tuple[Flavor, dict[str, Any]]] = [
        *((one, {}) for one in (kept, flavor("another"), flavor("small", **NOVAS))),
        *((SMALL, {whose: "another"}) for whose in ("project_id", "user_id")),
    ]
    for other, whose in others:
        with pytest.raises(AllocationRefused, match="Use another uuid"):
            desk.claims.claim(other, uuid=ONE, **{"project_id": PROJECT, "user_id": USER, **whose})

    assert publishing.placement.requests.writes == []
    assert everything() == before
    row = Instance.get_by_uuid(publishing.context, ONE)
    assert (row.flavor.name, row.flavor.vcpus, row.project_id) == ("small", 1, PROJECT)
    assert faults(publishing.context) == []


def test_claim_of_an_instance_that_lost_its_allocation_accepts_only_its_node(
    desk: Desk, publishing: Publishing
) -> None:
    node = str(desk.claim(SMALL, uuid=ONE).instance.node)
    other = {"cn-0": "cn-1", "cn-1": "cn-0"}[node]
    for is_lost in (False, True):
        if is_lost:
            desk.client.delete_allocations(ONE)
        before = everything()
        with pytest.raises(AllocationRefused, match=f"the instance is on node {node} of host"):
            desk.claim(SMALL, uuid=ONE, suits=on(other))
        assert everything() == before
    assert faults(publishing.context) == [f"{ONE} has no allocation"]
    desk.claim(SMALL, uuid=ONE)
    assert held() == {ONE: {node: {"VCPU": 1}}}
    assert faults(publishing.context) == []


def test_claim_of_a_lost_allocation_that_another_consumer_has_succeeds_after_its_release(
    desk: Desk, publishing: Publishing
) -> None:
    node = str(desk.claim(SMALL, uuid=ONE).instance.node)
    desk.client.delete_allocations(ONE)
    taker = desk.claim(flavor("large", 2), suits=on(node)).instance.uuid

    with pytest.raises(NoCandidates):
        desk.claim(SMALL, uuid=ONE)
    desk.claims.release(taker)

    assert there_are(publishing.context) == [ONE]
    assert desk.claim(SMALL, uuid=ONE).instance.node == node


# Interrupted claims.


def test_claim_that_dies_at_any_step_is_finished_or_undone(
    desk: Desk, publishing: Publishing, draw: Draw
) -> None:
    for _ in range(3):  # one VCPU is left free
        desk.claim(SMALL)
    claim = Rehearsal(
        publishing.placement, publishing.state_path, lambda: desk.claim(SMALL, uuid=ONE)
    )
    assert (
        len(claim.steps) >= 5
    )  # they write the instance, its allocation, its node's name and the node
    for number, name in draw(claim.steps, 3):
        for then in ("claimed again", "released", "another is claimed"):
            claim.die(number)
            assert not unknown(publishing.context), name
            has_it, is_there = ONE in held(), name != "before insert instances"
            with anew(publishing) as late:
                if then == "claimed again":
                    late.claim(SMALL, uuid=ONE)
                elif then == "released" and is_there:
                    late.claims.release(ONE)
                elif then == "released":
                    with pytest.raises(ObjectNotFound):
                        late.claims.release(ONE)
                elif has_it:
                    with pytest.raises(NoCandidates):
                        late.claim(SMALL)
                    late.claim(SMALL, uuid=ONE)
                else:
                    late.claim(SMALL)
                    with pytest.raises(NoCandidates):
                        late.claim(SMALL, uuid=ONE)
            has_one = then == "claimed again" or (then != "released" and has_it)
            assert (ONE in held(), ONE in there_are(publishing.context)) == (has_one, has_one)
            assert len(held()) == (3 if then == "released" else 4), (name, then)
            assert settled(publishing) == [], (name, then)
            assert noted(publishing.context) == taken(publishing.context), (name, then)


# Nodes that are deleted or changed.


def gone(context: Context, node: str) -> None:
    [row] = ComputeNodeList.get_by_filters(context, host=HOST, hypervisor_hostname=node)
    row.destroy()


def test_claim_whose_node_is_deleted_meanwhile_leaves_nothing(
    desk: Desk, publishing: Publishing
) -> None:
    warm(desk)
    context = publishing.context
    claim = Rehearsal(
        publishing.placement,
        publishing.state_path,
        lambda: desk.claim(SMALL, uuid=ONE, suits=on("cn-0")),
        reads=True,
    )
    ends: set[type] = set()
    for number, name in claim.steps:
        try:
            claim.interrupted(number, lambda: gone(context, "cn-0"))
        except (NoCandidates, ObjectNotFound) as error:
            ends.add(type(error))
            assert (there_are(context), held()) == ([], {}), name
        else:
            ends.add(type(None))
        assert faults(context) == [], name
    assert ends == {NoCandidates, ObjectNotFound, type(None)}


def test_interrupted_claim_continues_only_if_its_allocation_is_on_a_node(
    desk: Desk, publishing: Publishing
) -> None:
    claim = Rehearsal(
        publishing.placement, publishing.state_path, lambda: desk.claim(SMALL, uuid=ONE)
    )
    claim.die_at("after POST /allocations")
    [node] = held()[ONE]
    gone(publishing.context, node)

    with pytest.raises(AllocationRefused, match="Release the instance"):
        desk.claim(SMALL, uuid=ONE)
    desk.claims.release(ONE)

    assert held() == {}
    assert faults(publishing.context) == []
