"""Lists by filters: of values that a field has, one or several."""

from datetime import UTC, datetime

import pytest

from tests.lab.samples import node, service, uuid
from wharfinger.exceptions import InvalidObject, ObjectNotFound
from wharfinger.objects import (
    ComputeNode,
    ComputeNodeList,
    Context,
    Flavor,
    Instance,
    InstanceList,
    Migration,
    MigrationList,
    ReservationList,
    Service,
    ServiceList,
)

SEEN = datetime(2031, 5, 1, 10, tzinfo=UTC)


@pytest.fixture
def nodes(context: Context) -> ComputeNodeList:
    """Ten nodes of two hosts and two instances."""
    every = ComputeNodeList(
        context,
        objects=[
            node(
                context,
                number,
                host=f"host-{number % 2}",
                driver_instance="gpus" if number < 4 else "metal",
                vcpus=number,
                last_seen=SEEN if number == 7 else None,
            )
            for number in range(10)
        ],
    )
    every.create()
    return every


def vcpus(context: Context, **filters: object) -> list[int]:
    return [one.vcpus for one in ComputeNodeList.get_by_filters(context, **filters)]


def test_without_filters_all_are_found_in_the_order_of_their_creation(
    context: Context, nodes: ComputeNodeList
) -> None:
    assert vcpus(context) == list(range(10))


def test_a_value_of_a_field_is_a_filter(context: Context, nodes: ComputeNodeList) -> None:
    assert vcpus(context, host="host-1") == [1, 3, 5, 7, 9]
    assert vcpus(context, host="nowhere") == []


def test_several_filters_hold_together(context: Context, nodes: ComputeNodeList) -> None:
    assert vcpus(context, host="host-1", driver_instance="gpus") == [1, 3]


def test_one_of_several_values_is_enough(context: Context, nodes: ComputeNodeList) -> None:
    assert vcpus(context, vcpus=[8, 2, 77]) == [2, 8]
    assert vcpus(context, vcpus=(3,)) == [3]
    assert vcpus(context, vcpus={5, 6}) == [5, 6]
    assert vcpus(context, vcpus=frozenset({5})) == [5]


def test_of_no_values_none_is_enough(context: Context, nodes: ComputeNodeList) -> None:
    assert vcpus(context, vcpus=[]) == []
    assert vcpus(context, vcpus=[], host="host-1") == []


def test_two_filters_can_have_several_values(context: Context, nodes: ComputeNodeList) -> None:
    found = vcpus(context, host=["host-1", "x"], driver_instance=["gpus", "metal"])
    assert found == [1, 3, 5, 7, 9]
    assert vcpus(context, host=["host-0", "x"], vcpus=[1, 2, 3, 4]) == [2, 4]


def test_more_values_than_a_statement_takes_are_asked_for(context: Context) -> None:
    every = [node(context, number, vcpus=number) for number in range(1100)]
    ComputeNodeList(context, objects=every).create()
    wanted = [uuid(f"node {number}") for number in range(1200)]
    wanted.reverse()
    assert vcpus(context, uuid=wanted) == list(range(1100))


def test_a_value_that_is_asked_for_twice_is_found_once(
    context: Context, nodes: ComputeNodeList
) -> None:
    wanted = [uuid("node 3"), *(uuid(number) for number in range(600)), uuid("node 3")]
    assert vcpus(context, uuid=wanted) == [3]


def test_nothing_is_a_value_too(context: Context, nodes: ComputeNodeList) -> None:
    assert vcpus(context, last_seen=None) == [0, 1, 2, 3, 4, 5, 6, 8, 9]


def test_nothing_may_be_one_of_several_values(context: Context, nodes: ComputeNodeList) -> None:
    assert vcpus(context, last_seen=[SEEN, None]) == list(range(10))
    assert vcpus(context, last_seen=[None]) == [0, 1, 2, 3, 4, 5, 6, 8, 9]


def test_true_and_false_are_values(context: Context) -> None:
    service(context, 1, disabled=True).create()
    service(context, 2, forced_down=True).create()
    [disabled] = ServiceList.get_by_filters(context, disabled=True)
    [forced] = ServiceList.get_by_filters(context, disabled=False, forced_down=True)
    assert (disabled.host, forced.host) == ("host-1", "host-2")


def test_a_time_is_a_value(context: Context, nodes: ComputeNodeList) -> None:
    assert vcpus(context, last_seen=SEEN) == [7]


@pytest.mark.parametrize("name", ["colour", "capabilities", "pci_stats", "id", "deleted", "self"])
def test_what_is_no_field_of_one_value_is_no_filter(context: Context, name: str) -> None:
    with pytest.raises(InvalidObject, match=f"ComputeNode.*'{name}'"):
        ComputeNodeList.get_by_filters(context, **{name: 1})


@pytest.mark.parametrize(
    "filters",
    [
        {"vcpus": "many"},
        {"host": 7},
        {"host": {"host-1": True}},
        {"host": "a\0b"},
        {"last_seen": "soon"},
        {"uuid": ["x", "\0"]},
    ],
    ids=str,
)
def test_what_a_field_cannot_have_is_no_filter(
    context: Context, nodes: ComputeNodeList, filters: dict[str, object]
) -> None:
    # Or MySQL takes "many" for 0, and PostgreSQL the question for an error of its own.
    with pytest.raises(InvalidObject, match=next(iter(filters))):
        ComputeNodeList.get_by_filters(context, **filters)


def test_a_uuid_is_found_however_it_is_written(context: Context, nodes: ComputeNodeList) -> None:
    written = nodes[4].uuid.upper()
    assert vcpus(context, uuid=written) == [4]
    assert ComputeNode.get_by_uuid(context, written).vcpus == 4


@pytest.mark.parametrize("key", ["00000000-0000-0000-0000-000000000000", "x", "", "a\0b", "\ud800"])
def test_what_is_not_there_is_not_found(context: Context, key: str) -> None:
    for kind in (ComputeNode, Service, Instance, Migration):
        with pytest.raises(ObjectNotFound) as caught:
            kind.get_by_uuid(context, key)
        assert caught.value.facts["kind"] == kind.obj_name()
    with pytest.raises(ObjectNotFound):
        Flavor.get_by_flavor_id(context, key)
    with pytest.raises(ObjectNotFound):
        Flavor.get_by_name(context, key)
    with pytest.raises(ObjectNotFound):
        Service.get_by_host_and_binary(context, key, "wharfinger-agent")


def test_an_empty_database_has_no_objects(context: Context) -> None:
    for kind in (ComputeNodeList, ServiceList, InstanceList, MigrationList, ReservationList):
        assert len(kind.get_by_filters(context)) == 0
