"""The reshape that moves allocations from the root to the providers of its devices."""

from collections import Counter
from collections.abc import Iterable, Mapping
from copy import deepcopy
from uuid import NAMESPACE_OID, uuid5

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.driver import Allocations
from wharfinger.exceptions import BackendError
from wharfinger_libvirt.config import MdevTypeSection
from wharfinger_libvirt.domains import Domain
from wharfinger_libvirt.host_snapshot import HostSnapshot
from wharfinger_libvirt.mdev import Share
from wharfinger_libvirt.nodedev import Mdev, NodeDevice
from wharfinger_libvirt.reshape import Move

ROOT, DISK = "root", "disk"
#: Devices. In these tests, the uuid of a device's provider is the device's name.
FIRST, SECOND, THIRD = "pci_1", "pci_2", "pci_3"


def uuid_of(name: str) -> str:
    return str(uuid5(NAMESPACE_OID, name))


def mdev(name: str, device: str, type_id: str = "a", *, active: bool = True) -> NodeDevice:
    return NodeDevice(
        name=f"mdev_{name}_{device}",
        parent=device,
        mdev=Mdev(type_id=type_id, active=active, uuid=uuid_of(name)),
    )


def domain(consumer: str, *mdevs: str) -> Domain:
    return Domain(uuid=consumer, mdevs=tuple(uuid_of(name) for name in mdevs))


def share(device: str, total: int, *, blocked: bool = False) -> Share:
    return Share(
        device=NodeDevice(name=device),
        mdev_type=MdevTypeSection(section="gpus:a", type_id="a"),
        total=total,
        blocked=blocked,
    )


def move(
    *shares: Share,
    mdevs: Iterable[NodeDevice] = (),
    domains: Iterable[Domain] = (),
    resource_class: str = "VGPU",
    instances: Mapping[str, str] | None = None,
    other_types: Iterable[str] = (),
) -> Move:
    return Move(
        driver="gpus",
        resource_class=resource_class,
        root_uuid=ROOT,
        devices={share.device.name: share for share in shares},
        host=HostSnapshot(
            hostname="host",
            cpus=1,
            memory_mb=1,
            devices=tuple(mdevs),
            domains=tuple(domains),
        ),
        instances=instances or {},
        other_types=frozenset(other_types),
    )


def held(**consumers: dict[str, dict[str, int]]) -> Allocations:
    """Return the allocations of consumers, by provider and class."""
    return {
        consumer: {
            "allocations": {uuid: {"resources": dict(use)} for uuid, use in providers.items()},
            "project_id": "project",
            "user_id": "user",
            "consumer_generation": 3,
        }
        for consumer, providers in consumers.items()
    }


def on_root(**amounts: int) -> Allocations:
    """Return consumers that have VGPU only on the root."""
    return held(**{consumer: {ROOT: {"VGPU": amount}} for consumer, amount in amounts.items()})


def moved(moving: Move, allocations: Allocations) -> dict[str, dict[str, int]]:
    """Move the allocations; return each consumer's amounts of the class by device."""
    moving.apply(allocations)
    return {
        consumer: {
            uuid: part["resources"][moving.resource_class]
            for uuid, part in its["allocations"].items()
            if moving.resource_class in part["resources"]
        }
        for consumer, its in allocations.items()
    }


# Known devices.


def test_amounts_move_to_the_devices_of_the_mdevs() -> None:
    moving = move(
        share(FIRST, 4),
        share(SECOND, 4),
        mdevs=[mdev("1", SECOND), mdev("2", FIRST), mdev("3", FIRST)],
        domains=[domain("one", "1"), domain("two", "2", "3")],
    )
    assert moved(moving, on_root(one=1, two=2)) == {"one": {SECOND: 1}, "two": {FIRST: 2}}


def test_amount_may_be_split_over_devices() -> None:
    moving = move(
        share(FIRST, 4),
        share(SECOND, 4),
        mdevs=[mdev("1", SECOND), mdev("2", FIRST), mdev("3", SECOND)],
        domains=[domain("one", "1", "2", "3")],
    )
    assert moved(moving, on_root(one=3)) == {"one": {SECOND: 2, FIRST: 1}}


def test_domain_with_more_mdevs_than_allocated_moves_the_allocated_amount() -> None:
    moving = move(
        share(FIRST, 4),
        share(SECOND, 4),
        mdevs=[mdev("1", SECOND), mdev("2", FIRST)],
        domains=[domain("one", "1", "2")],
    )
    assert moved(moving, on_root(one=1)) == {"one": {SECOND: 1}}


def test_known_devices_take_precedence_over_unknown_ones() -> None:
    moving = move(
        share(FIRST, 1),
        share(SECOND, 1),
        mdevs=[mdev("1", FIRST)],
        domains=[domain("known", "1")],
    )
    assert moved(moving, on_root(a_stranger=1, known=1)) == {
        "a_stranger": {SECOND: 1},
        "known": {FIRST: 1},
    }


def test_migration_uses_the_mdevs_of_its_instance() -> None:
    moving = move(
        share(FIRST, 4),
        share(SECOND, 4),
        mdevs=[mdev("1", SECOND)],
        domains=[domain("instance", "1")],
        instances={"migration": "instance"},
    )
    assert moved(moving, on_root(migration=1)) == {"migration": {SECOND: 1}}


def test_mdev_of_two_domains_counts_once() -> None:
    moving = move(
        share(FIRST, 4),
        share(SECOND, 1),
        mdevs=[mdev("1", SECOND)],
        domains=[domain("one", "1"), domain("two", "1")],
    )
    assert moved(moving, on_root(one=1, two=1)) == {"one": {SECOND: 1}, "two": {FIRST: 1}}


def test_mdev_named_twice_counts_once() -> None:
    moving = move(
        share(FIRST, 1),
        share(SECOND, 4),
        mdevs=[mdev("1", SECOND)],
        domains=[domain("one", "1", "1")],
    )
    assert moved(moving, on_root(one=2)) == {"one": {SECOND: 1, FIRST: 1}}


def test_active_mdev_counts_if_several_have_the_same_uuid() -> None:
    moving = move(
        share(FIRST, 4),
        share(SECOND, 4),
        share(THIRD, 4),
        mdevs=[
            mdev("1", FIRST, active=False),
            mdev("1", SECOND),
            mdev("1", THIRD, active=False),
        ],
        domains=[domain("one", "1")],
    )
    assert moved(moving, on_root(one=1)) == {"one": {SECOND: 1}}


# Unknown devices.


@pytest.mark.parametrize(
    ("mdevs", "domains"),
    [
        ([], []),
        ([mdev("1", SECOND)], []),
        ([], [domain("one", "1")]),
        ([mdev("1", "pci_9")], [domain("one", "1")]),
        ([mdev("1", SECOND)], [domain("one")]),
        ([mdev("1", SECOND)], [domain("two", "1")]),
    ],
    ids=["nothing", "no domain", "no such mdev", "no such device", "no mdev", "another's mdev"],
)
def test_amount_of_unknown_devices_goes_to_free_devices_in_order(
    mdevs: list[NodeDevice], domains: list[Domain]
) -> None:
    moving = move(share(FIRST, 2), share(SECOND, 4), mdevs=mdevs, domains=domains)
    assert moved(moving, on_root(one=3)) == {"one": {FIRST: 2, SECOND: 1}}


def test_rest_of_a_domain_with_fewer_mdevs_goes_to_free_devices() -> None:
    moving = move(
        share(FIRST, 1),
        share(SECOND, 4),
        mdevs=[mdev("1", SECOND)],
        domains=[domain("one", "1")],
    )
    assert moved(moving, on_root(one=3)) == {"one": {SECOND: 2, FIRST: 1}}


def test_defined_mdev_selects_its_device_if_it_has_room() -> None:
    moving = move(
        share(FIRST, 1),
        share(SECOND, 1),
        mdevs=[mdev("1", SECOND, active=False), mdev("2", SECOND, active=False)],
        domains=[domain("one", "1"), domain("two", "2")],
    )
    assert moved(moving, on_root(one=1, two=1)) == {"one": {SECOND: 1}, "two": {FIRST: 1}}


def test_active_mdev_takes_precedence_over_a_defined_one() -> None:
    moving = move(
        share(FIRST, 1),
        share(SECOND, 1),
        mdevs=[mdev("1", SECOND, active=False), mdev("2", SECOND)],
        domains=[domain("one", "1"), domain("two", "2")],
    )
    assert moved(moving, on_root(one=1, two=1)) == {"one": {FIRST: 1}, "two": {SECOND: 1}}


def test_mdev_of_another_type_selects_its_device_if_it_has_room() -> None:
    moving = move(
        share(FIRST, 1),
        share(SECOND, 1),
        mdevs=[mdev("1", SECOND, "b"), mdev("2", SECOND, "a"), mdev("3", FIRST, "b")],
        domains=[domain("one", "1"), domain("two", "2")],
    )
    assert moved(moving, on_root(one=1, two=1)) == {"one": {FIRST: 1}, "two": {SECOND: 1}}


def test_mdev_of_a_type_with_another_class_is_ignored() -> None:
    moving = move(
        share(FIRST, 4),
        share(SECOND, 4),
        share(THIRD, 0, blocked=True),
        mdevs=[mdev("1", SECOND, "large"), mdev("2", THIRD, "large")],
        domains=[domain("one", "1", "2")],
        other_types=["large"],
    )
    assert moved(moving, on_root(one=2)) == {"one": {FIRST: 2}}


# Existing allocations on devices.


def test_existing_allocations_take_room_on_their_devices() -> None:
    moving = move(share(FIRST, 4), share(SECOND, 4))
    allocations = held(
        new={FIRST: {"VGPU": 3}}, old={ROOT: {"VGPU": 3}}, both={ROOT: {"VGPU": 1}, FIRST: {"X": 9}}
    )
    assert moved(moving, allocations) == {
        "new": {FIRST: 3},
        "old": {FIRST: 1, SECOND: 2},
        "both": {SECOND: 1},
    }


def test_existing_allocation_of_a_consumer_is_for_its_mdevs_there() -> None:
    moving = move(
        share(FIRST, 4),
        share(SECOND, 4),
        mdevs=[mdev("1", SECOND), mdev("2", FIRST)],
        domains=[domain("one", "1", "2")],
    )
    allocations = held(one={ROOT: {"VGPU": 1}, SECOND: {"VGPU": 1}})
    assert moved(moving, allocations) == {"one": {SECOND: 1, FIRST: 1}}


def test_moved_amount_is_added_to_an_existing_allocation() -> None:
    moving = move(share(FIRST, 4))
    allocations = held(one={ROOT: {"VGPU": 2}, FIRST: {"VGPU": 1}})
    assert moving.apply(allocations) == {FIRST: 3}
    assert allocations == held(one={FIRST: {"VGPU": 3}})


# Unrelated allocations.


def test_other_classes_providers_and_attributes_stay() -> None:
    moving = move(share(FIRST, 4))
    allocations = held(
        one={ROOT: {"VCPU": 2, "VGPU": 1}, DISK: {"DISK_GB": 5}},
        two={ROOT: {"VCPU": 4}},
    )
    moving.apply(allocations)
    assert allocations == held(
        one={ROOT: {"VCPU": 2}, DISK: {"DISK_GB": 5}, FIRST: {"VGPU": 1}},
        two={ROOT: {"VCPU": 4}},
    )


def test_root_without_allocations_is_left_out() -> None:
    allocations = on_root(one=1)
    move(share(FIRST, 4)).apply(allocations)
    assert allocations == held(one={FIRST: {"VGPU": 1}})


def test_each_class_moves_to_its_own_devices() -> None:
    allocations = held(one={ROOT: {"VGPU": 1, "CUSTOM_X": 2}})
    move(share(FIRST, 4)).apply(allocations)
    assert allocations == held(one={ROOT: {"CUSTOM_X": 2}, FIRST: {"VGPU": 1}})
    move(share(SECOND, 4), resource_class="CUSTOM_X").apply(allocations)
    assert allocations == held(one={FIRST: {"VGPU": 1}, SECOND: {"CUSTOM_X": 2}})


def test_move_without_allocations_changes_nothing() -> None:
    allocations = held(one={ROOT: {"VCPU": 1}})
    assert move(share(FIRST, 4)).apply(allocations) == {}
    assert move(share(FIRST, 4)).apply({}) == {}
    assert allocations == held(one={ROOT: {"VCPU": 1}})


# Devices to which no allocation can move.


def test_blocked_device_gets_only_allocations_of_its_own_mdevs() -> None:
    moving = move(
        share(FIRST, 0, blocked=True),
        share(SECOND, 4),
        mdevs=[mdev("1", FIRST, "b"), mdev("2", FIRST, "b")],
        domains=[domain("own", "1")],
    )
    assert moved(moving, on_root(other=1, own=2)) == {
        "other": {SECOND: 1},
        "own": {FIRST: 1, SECOND: 1},
    }


def test_blocked_device_gets_no_allocation_of_a_defined_mdev() -> None:
    moving = move(
        share(FIRST, 0, blocked=True),
        share(SECOND, 4),
        mdevs=[mdev("1", FIRST, "b"), mdev("2", FIRST, active=False)],
        domains=[domain("one", "2")],
    )
    assert moved(moving, on_root(one=1)) == {"one": {SECOND: 1}}


def test_device_beyond_the_limit_gets_no_allocation() -> None:
    moving = move(
        share(FIRST, 0),
        share(SECOND, 1),
        mdevs=[mdev("1", FIRST, active=False)],
        domains=[domain("one", "1")],
    )
    assert moved(moving, on_root(one=1)) == {"one": {SECOND: 1}}


# No room.


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ([share(FIRST, 2), share(SECOND, 1)], "room for 2 more VGPU of consumer two"),
        ([share(FIRST, 2), share(SECOND, 9, blocked=True)], "room for 3 more VGPU of consumer two"),
        ([share(FIRST, 2), share(SECOND, 0)], "room for 3 more VGPU of consumer two"),
        ([], "room for 2 more VGPU of consumer one"),
    ],
    ids=["full", "blocked", "limited", "no devices"],
)
def test_move_without_room_is_an_error_and_changes_nothing(
    shares: list[Share], message: str
) -> None:
    allocations = on_root(one=2, two=3)
    before = deepcopy(allocations)
    with pytest.raises(
        BackendError,
        match=f"^driver gpus: moving VGPU from the root provider .* {message}",
    ):
        move(*shares).apply(allocations)
    assert allocations == before


def test_device_with_more_allocated_than_offered_has_no_room() -> None:
    moving = move(share(FIRST, 1), share(SECOND, 1))
    allocations = held(new={FIRST: {"VGPU": 5}}, old={ROOT: {"VGPU": 2}})
    with pytest.raises(BackendError, match="room for 1 more VGPU of consumer old"):
        moving.apply(allocations)


# Random allocations and devices.

CONSUMERS = ("one", "two", "three")
DEVICES = (FIRST, SECOND, THIRD)
AMOUNTS = st.integers(1, 3)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Move, Allocations]:
    names = [str(number) for number in range(8)]
    mdevs = [
        mdev(
            name,
            draw(st.sampled_from([*DEVICES, "pci_9"])),
            draw(st.sampled_from("ab")),
            active=draw(st.booleans()),
        )
        for name in draw(st.lists(st.sampled_from(names), unique=True))
    ]
    domains = [
        domain(consumer, *draw(st.lists(st.sampled_from(names), max_size=4)))
        for consumer in draw(st.lists(st.sampled_from(CONSUMERS), unique=True))
    ]
    shares = []
    for device in draw(st.lists(st.sampled_from(DEVICES), min_size=1, unique=True)):
        active = sum(
            one.parent == device and one.mdev == Mdev(type_id="a", active=True, uuid=one.mdev.uuid)
            for one in mdevs
            if one.mdev
        )
        total = active + draw(st.integers(0, 4))
        shares.append(share(device, total, blocked=total == 0 and draw(st.booleans())))
    allocations = held(
        **{
            consumer: draw(
                st.dictionaries(
                    st.sampled_from([ROOT, *(one.device.name for one in shares), DISK]),
                    st.dictionaries(
                        st.sampled_from(["VGPU", "VCPU"]), AMOUNTS, min_size=1, max_size=2
                    ),
                    min_size=1,
                )
            )
            for consumer in draw(st.lists(st.sampled_from(CONSUMERS), unique=True))
        }
    )
    return move(*shares, mdevs=mdevs, domains=domains), allocations


def amounts(allocations: Allocations) -> Counter[tuple[str, str]]:
    """Return the amounts by consumer and class, added over all providers except DISK.

    The amounts of DISK are separate.
    """
    found: Counter[tuple[str, str]] = Counter()
    for consumer, its in allocations.items():
        for uuid, part in its["allocations"].items():
            assert part["resources"]
            for resource_class, amount in part["resources"].items():
                where = f"{uuid} " if uuid == DISK else ""
                found[consumer, where + resource_class] += amount
    return found


@given(worlds())
def test_random_move_keeps_the_amounts_of_each_consumer(world: tuple[Move, Allocations]) -> None:
    moving, allocations = world
    before = deepcopy(allocations)
    try:
        totals = moving.apply(allocations)
    except BackendError:
        assert allocations == before
        return
    assert amounts(allocations) == amounts(before)
    holding: Counter[str] = Counter()
    for consumer, its in allocations.items():
        kept = {key: part for key, part in its.items() if key != "allocations"}
        assert kept == {key: part for key, part in before[consumer].items() if key != "allocations"}
        assert "VGPU" not in its["allocations"].get(ROOT, {"resources": {}})["resources"]
        for uuid in moving.devices:
            part = its["allocations"].get(uuid, {"resources": {}})["resources"]
            holding[uuid] += part.get("VGPU", 0)
    assert totals == {uuid: total for uuid, total in holding.items() if total}
    for uuid, one in moving.devices.items():
        already = sum(
            its["allocations"].get(uuid, {"resources": {}})["resources"].get("VGPU", 0)
            for its in before.values()
        )
        mdevs = [
            device
            for device in moving.host.devices
            if device.parent == one.device.name and device.mdev and device.mdev.active
        ]
        assert holding[uuid] <= max(already, len(mdevs) if one.blocked else one.total)
