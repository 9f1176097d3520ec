"""Values at the limits of fields are stored unchanged: lengths, numbers, times and scripts."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.lab.samples import SORTS, flavor, gpus, instance, migration, node, reservation, service
from wharfinger.exceptions import ObjectExists
from wharfinger.objects import (
    ComputeNode,
    ComputeNodeList,
    Context,
    Flavor,
    Instance,
    Migration,
    ReservationList,
    Service,
)

MOST = 2**31 - 1
#: Marks tests that run on each database in every run, because column types differ.
ON_EACH = pytest.mark.parametrize("kept", ["in_file", "by_postgresql", "by_mariadb"], indirect=True)
BEYOND = "nördlich ⚓ 🦑 \u200d\U0010ffff"


@ON_EACH
def test_names_that_differ_in_case_differ(context: Context) -> None:
    node(context, 1, hypervisor_hostname="node").create()
    node(context, 2, hypervisor_hostname="Node").create()
    node(context, 3, hypervisor_hostname="nöde").create()
    found = ComputeNodeList.get_by_filters(context, hypervisor_hostname="Node")
    assert [one.hypervisor_hostname for one in found] == ["Node"]
    assert len(ComputeNodeList.get_by_filters(context)) == 3
    service(context, 1, host="HOST").create()
    service(context, 2, host="host").create()
    assert Service.get_by_host_and_binary(context, "host", "wharfinger-agent").host == "host"
    flavor(context, 1, name="Small").create()
    flavor(context, 2, name="small").create()
    assert Flavor.get_by_name(context, "Small").flavorid == "id-1"


@ON_EACH
def test_names_that_look_alike_differ(context: Context) -> None:
    node(context, 1, hypervisor_hostname="node").create()
    for number, other in enumerate(("node ", " node", "n\u0303ode", "node\t"), start=2):
        node(context, number, hypervisor_hostname=other).create()
        found = ComputeNodeList.get_by_filters(context, hypervisor_hostname=other)
        assert [one.hypervisor_hostname for one in found] == [other]


@ON_EACH
def test_text_in_any_script_is_stored(context: Context) -> None:
    one = node(
        context,
        host=BEYOND,
        hypervisor_hostname=BEYOND,
        capabilities={BEYOND: True},
    )
    one.create()
    found = ComputeNode.get_by_uuid(context, one.uuid)
    assert (found.host, found.hypervisor_hostname) == (BEYOND, BEYOND)
    assert found.capabilities == {BEYOND: True}
    [same] = ComputeNodeList.get_by_filters(context, host=[BEYOND, "x"])
    assert same.uuid == one.uuid


@ON_EACH
@pytest.mark.parametrize("character", ["a", "🦑"])
def test_longest_names_are_stored(context: Context, character: str) -> None:
    longest = character * 255
    one = node(
        context,
        host=longest,
        hypervisor_hostname=longest,
        driver_instance=character * 64,
        owner=longest,
    )
    one.create()
    found = ComputeNode.get_by_uuid(context, one.uuid)
    assert found.host == found.hypervisor_hostname == found.owner == longest
    assert found.driver_instance == character * 64
    service(context, 1, host=longest, binary=longest).create()
    assert Service.get_by_host_and_binary(context, longest, longest).topic == "wharfinger"
    with pytest.raises(ObjectExists):
        service(context, 2, host=longest, binary=longest).create()
    service(context, 3, host=longest, binary=longest[:-1] + "b").create()


@pytest.mark.parametrize("character", ["a", "🦑"])
def test_long_texts_are_stored(context: Context, character: str) -> None:
    one = flavor(
        context,
        description=character * 65535,
        extra_specs={f"resources:{number}": character * 100 for number in range(700)},
    )
    one.create()
    found = Flavor.get_by_flavor_id(context, one.flavorid)
    assert found.description == one.description
    assert found.extra_specs == one.extra_specs


def test_many_capabilities_and_owners_are_stored(context: Context) -> None:
    many = {f"COMPUTE_{'X' * 200}_{number}": True for number in range(500)}
    one = node(context, capabilities=many)
    one.create()
    assert ComputeNode.get_by_uuid(context, one.uuid).capabilities == many
    other = service(context, owners=list(many))
    other.create()
    assert Service.get_by_uuid(context, other.uuid).owners == list(many)


@ON_EACH
def test_largest_and_smallest_numbers_are_stored(context: Context) -> None:
    one = node(context, vcpus=MOST, vcpus_used=0, memory_mb=MOST, cpu_allocation_ratio=0)
    one.ram_allocation_ratio, one.disk_allocation_ratio = 1e300, 0.1 + 0.2
    one.create()
    found = ComputeNode.get_by_uuid(context, one.uuid)
    assert (found.vcpus, found.vcpus_used, found.memory_mb) == (MOST, 0, MOST)
    assert (found.cpu_allocation_ratio, found.ram_allocation_ratio) == (0, 1e300)
    assert found.disk_allocation_ratio == 0.1 + 0.2


@ON_EACH
def test_times_are_stored(context: Context) -> None:
    moments = [
        datetime(1000, 1, 1, tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(2038, 1, 19, 3, 14, 8, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
    ]
    for number, moment in enumerate(moments):
        reservation(context, number, since=moment, expected_end=moment).create()
    found = ReservationList.get_by_filters(context)
    assert [(one.since, one.expected_end) for one in found] == [(one, one) for one in moments]


def test_time_of_another_zone_is_the_same_time(context: Context) -> None:
    moment = datetime.fromisoformat("2031-05-01T12:30:00.999999+05:30")
    reservation(context, since=moment).create()
    [found] = ReservationList.get_by_filters(context)
    assert found.since == datetime(2031, 5, 1, 7, tzinfo=UTC)


def test_texts_that_resemble_other_values_stay_texts(context: Context) -> None:
    texts = ["", " ", "null", "'; DROP TABLE flavors; --", "a\nb", "%s", "\\"]
    for number, text in enumerate(texts):
        values = {"description": text, "extra_specs": {text: text}, "name": text or "named"}
        one = flavor(context, number, **values)
        one.create()
        found = Flavor.get_by_flavor_id(context, one.flavorid)
        assert (found.description, found.extra_specs) == (text, {text: text})
        assert Flavor.get_by_name(context, one.name).flavorid == one.flavorid


def test_pci_devices_are_stored_with_their_node(context: Context) -> None:
    one = node(context, pci_stats=gpus())
    one.create()
    found = ComputeNode.get_by_uuid(context, one.uuid)
    assert found.pci_stats is not None
    assert [(each.vendor_id, each.numa_node, each.count) for each in found.pci_stats] == [
        ("10de", 0, 2),
        ("8086", None, 1),
    ]
    found.pci_stats[0].count = 7  # a change of a device is a change of the node
    found.pci_stats.objects *= 200
    found.save()
    again = ComputeNode.get_by_uuid(context, one.uuid)
    assert again.pci_stats is not None
    assert (again.pci_stats[0].count, len(again.pci_stats)) == (7, 400)
    again.pci_stats = None
    again.save()
    assert ComputeNode.get_by_uuid(context, one.uuid).pci_stats is None


def test_instance_keeps_its_flavor_after_the_flavor_changes(context: Context) -> None:
    kind = flavor(context, extra_specs={"resources:VGPU": "1"})
    kind.create()
    one = instance(context, flavor=kind, host="host-1", node="node-1")
    one.create()
    kind.extra_specs = {}
    kind.save()
    found = Instance.get_by_uuid(context, one.uuid)
    assert found.flavor.extra_specs == {"resources:VGPU": "1"}
    assert (found.host, found.node) == ("host-1", "node-1")
    found.flavor = kind
    found.host = None
    found.save()
    again = Instance.get_by_uuid(context, one.uuid)
    assert (again.flavor.extra_specs, again.host) == ({}, None)


def test_unsaved_change_of_a_flavor_is_stored_only_in_its_instance(
    context: Context,
) -> None:
    kind = flavor(context)
    kind.create()
    kind.vcpus = 8
    one = instance(context, flavor=kind)
    for write in (one.create, one.save):
        one.flavor = kind
        write()
        assert kind.obj_what_changed() == {"vcpus"}
        assert not one.obj_what_changed()
    kind.save()
    assert Flavor.get_by_flavor_id(context, kind.flavorid).vcpus == 8
    assert Instance.get_by_uuid(context, one.uuid).flavor.vcpus == 8


def test_migration_keeps_both_flavors(context: Context) -> None:
    one = migration(context, dest_compute="host-2", dest_node="node-2")
    one.create()
    found = Migration.get_by_uuid(context, one.uuid)
    assert (found.old_flavor.name, found.new_flavor.name) == ("flavor-1", "flavor-2")
    assert (found.source_compute, found.dest_node) == ("host-1", "node-2")


@pytest.mark.parametrize("sort", SORTS)
def test_object_is_saved_with_the_values_that_were_read(context: Context, sort: str) -> None:
    make: Any = SORTS[sort].make
    one = make(context)
    one.create()
    one.obj_reset_changes()
    one._changed_fields.update(one.fields.keys() - {one.KEY})
    one.save()
    assert one.revision == 2
