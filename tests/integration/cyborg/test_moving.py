"""Instances with vGPUs of nova, of Cyborg or of both, and moves between them.

The real libvirt and Cyborg drivers have published the providers. The owners' gates are on: requests
use only providers with an owner trait.
"""

from collections.abc import Iterator
from typing import Final

import pytest

from tests.lab.allocating import AT_ONCE, Desk, faults, flavor, held
from tests.lab.cyborg_harness import Harness
from tests.lab.cycles import everything
from tests.lab.two_owners import CYBORGS, HOST, NOVAS, PROFILE, TwoOwners
from wharfinger.exceptions import NoCandidates
from wharfinger.objects import Instance, InstanceList

#: Flavors with a vGPU of nova, with one of Cyborg by a device profile, and with one of each.
OF_NOVA = flavor("of-nova", 2, **{"resources:VGPU": "1"})
OF_CYBORG = flavor("of-cyborg", 2, **{"accel:device_profile": PROFILE})
OF_BOTH = flavor("of-both", 2, **{"resources:VGPU": "1", "accel:device_profile": PROFILE})

#: An instance's allocation of a vGPU, and on the host.
ONE: Final = {"VGPU": 1}
CPUS: Final = {"VCPU": 2}
NO_CHANGE: Final = "gpus: no change\nfpgas: no change\n"


@pytest.fixture(scope="module")
def lab(shared_cyborg: Harness) -> Iterator[TwoOwners]:
    with TwoOwners(shared_cyborg) as lab:
        yield lab


@pytest.fixture
def desk(lab: TwoOwners) -> Iterator[Desk]:
    """The claims and moves of one process; no allocation exists before and after the test."""
    before = published()
    with Desk(lab.client, lab.context, lab.config, down_time=AT_ONCE) as desk:
        yield desk
        for one in InstanceList.get_by_filters(lab.context):
            desk.claims.release(one.uuid)
    assert not held()
    assert published() == before


def published() -> dict[str, object]:
    """Return the published providers with their reservations."""
    return {
        name: (one["parent"], one["traits"], one["inventories"])
        for name, one in everything().items()
    }


def node_of(desk: Desk, uuid: str) -> tuple[str | None, str | None, str]:
    one = Instance.get_by_uuid(desk.context, uuid)
    return one.host, one.node, one.flavor.name


def test_drivers_have_published_both_vgpus_and_the_gates_are_on(lab: TwoOwners) -> None:
    assert lab.gates() == {"OWNER_NOVA": True, "OWNER_CYBORG": True}
    root = lab.provider(HOST)
    assert (root["parent"], "OWNER_NOVA" in root["traits"]) == (None, True)
    for name, owner, total in ((NOVAS, "OWNER_NOVA", 8), (CYBORGS, "OWNER_CYBORG", 1)):
        one = lab.provider(name)
        assert one["parent"] == HOST
        assert one["inventories"] == {"VGPU": (total, 0)}
        assert {trait for trait in one["traits"] if trait.startswith("OWNER_")} == {owner}


def test_instance_is_resized_from_novas_vgpu_to_cyborgs_and_back(
    lab: TwoOwners, desk: Desk
) -> None:
    one = desk.claim(OF_NOVA).instance.uuid
    assert held() == {one: {HOST: CPUS, NOVAS: ONE}}

    there = desk.moves.start(one, OF_CYBORG)
    assert held() == {
        there.uuid: {HOST: CPUS, NOVAS: ONE},
        one: {HOST: CPUS, CYBORGS: ONE},
    }
    assert node_of(desk, one) == (HOST, HOST, "of-nova")
    assert lab.sync() == NO_CHANGE  # the drivers have nothing to write
    desk.moves.confirm(one)
    assert held() == {one: {HOST: CPUS, CYBORGS: ONE}}
    assert node_of(desk, one) == (HOST, HOST, "of-cyborg")

    desk.moves.start(one, OF_NOVA)
    desk.moves.confirm(one)
    assert held() == {one: {HOST: CPUS, NOVAS: ONE}}
    assert node_of(desk, one) == (HOST, HOST, "of-nova")
    assert not faults(desk.context)


def test_reverted_resize_restores_the_allocations(desk: Desk) -> None:
    for first, then in ((OF_NOVA, OF_CYBORG), (OF_CYBORG, OF_NOVA)):
        one = desk.claim(first).instance.uuid
        before = held()

        desk.moves.start(one, then)
        assert len(held()) == 2
        desk.moves.revert(one)

        assert held() == before
        assert not faults(desk.context)
        desk.claims.release(one)


def test_instance_may_have_vgpus_of_both_owners(lab: TwoOwners, desk: Desk) -> None:
    one = desk.claim(OF_BOTH).instance.uuid
    assert held() == {one: {HOST: CPUS, NOVAS: ONE, CYBORGS: ONE}}
    assert lab.sync() == NO_CHANGE

    desk.moves.start(one, OF_NOVA)
    desk.moves.confirm(one)
    assert held() == {one: {HOST: CPUS, NOVAS: ONE}}

    desk.moves.start(one, OF_BOTH)
    desk.moves.confirm(one)
    assert held() == {one: {HOST: CPUS, NOVAS: ONE, CYBORGS: ONE}}
    assert not faults(desk.context)


def test_last_unit_of_one_owner_is_not_used_for_a_request_of_the_other_owner(desk: Desk) -> None:
    first = desk.claim(OF_CYBORG).instance.uuid
    for wanted in (OF_CYBORG, OF_BOTH):
        with pytest.raises(NoCandidates):  # nova's eight free units of the class are not used
            desk.claim(wanted)
    eight = [desk.claim(OF_NOVA).instance.uuid for _ in range(8)]
    desk.claims.release(first)
    with pytest.raises(NoCandidates):  # Cyborg's free unit of the class is not used
        desk.claim(OF_NOVA)
    assert {name for one in eight for name in held()[one]} == {HOST, NOVAS}

    # An instance with nova's VGPU is resized to Cyborg's. Another instance then gets its former
    # VGPU.
    desk.moves.start(eight[0], OF_CYBORG)
    with pytest.raises(NoCandidates):
        desk.claim(OF_NOVA)
    desk.moves.confirm(eight[0])
    again = desk.claim(OF_NOVA).instance.uuid
    assert held()[again] == {HOST: CPUS, NOVAS: ONE}
    assert not faults(desk.context)


def test_program_shows_the_moves(lab: TwoOwners, desk: Desk) -> None:
    for name, option in (("n", "resources:VGPU=1"), ("c", f"accel:device_profile={PROFILE}")):
        made = lab.run("flavor", "create", name, "--ram", "1024", "--property", option)
        assert made.code == 0, made.err
    claimed = lab.run("instance", "claim", "--flavor", "n", "-f", "json")
    uuid = claimed.json()["uuid"]
    moved = lab.run("instance", "resize", uuid, "--flavor", "c", "-f", "json")

    assert moved.code == 0, moved.err
    assert f"`wharfinger instance confirm {uuid}`" in moved.err
    assert moved.json()["status"] == "resize finished"
    its = [(one["consumer"], one["provider"]) for one in moved.json()["allocations"]]
    assert sorted(its) == [
        ("instance", HOST),
        ("instance", CYBORGS),
        ("migration", HOST),
        ("migration", NOVAS),
    ]
    confirmed = lab.run("instance", "confirm", uuid)
    assert (confirmed.code, confirmed.err) == (0, "")
    assert "is confirmed: flavor c, on node gpu-host-1" in confirmed.out
    assert lab.run("instance", "release", uuid).out == f"instance {uuid}: released\n"
