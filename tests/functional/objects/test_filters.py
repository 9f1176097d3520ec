"""Lists with filters: one or several values of a field."""

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.lab.samples import node, service, uuid
from wharfinger.exceptions import InvalidObject, ObjectNotFound
from wharfinger.objects import (
    ComputeNode,
    ComputeNodeList,
    Context,
    Flavor,
    Instance,
    Migration,
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


#: Filters, and the numbers of the nodes that match.
FOUND: list[tuple[dict[str, Any], list[int]]] = [
    ({}, list(range(10))),
    ({"host": "host-1"}, [1, 3, 5, 7, 9]),
    ({"host": "nowhere"}, []),
    ({"host": "host-1", "driver_instance": "gpus"}, [1, 3]),
    ({"vcpus": [8, 2, 77]}, [2, 8]),
    ({"vcpus": (3,)}, [3]),
    ({"vcpus": {5, 6}}, [5, 6]),
    ({"vcpus": frozenset({5})}, [5]),
    ({"vcpus": []}, []),
    ({"vcpus": [], "host": "host-1"}, []),
    ({"host": ["host-1", "x"], "driver_instance": ["gpus", "metal"]}, [1, 3, 5, 7, 9]),
    ({"host": ["host-0", "x"], "vcpus": [1, 2, 3, 4]}, [2, 4]),
    ({"last_seen": SEEN}, [7]),
    ({"last_seen": None}, [0, 1, 2, 3, 4, 5, 6, 8, 9]),
    ({"last_seen": [SEEN, None]}, list(range(10))),
    ({"last_seen": [None]}, [0, 1, 2, 3, 4, 5, 6, 8, 9]),
]


def test_filters_return_matching_objects_in_order_of_creation(
    context: Context, nodes: ComputeNodeList
) -> None:
    for filters, found in FOUND:
        assert vcpus(context, **filters) == found, filters
    wanted = [uuid("node 3"), *(uuid(number) for number in range(600)), uuid("node 3")]
    assert vcpus(context, uuid=wanted) == [3]
    written = nodes[4].uuid.upper()
    assert vcpus(context, uuid=written) == [4]
    assert ComputeNode.get_by_uuid(context, written).vcpus == 4


def test_filter_with_more_values_than_a_statement_allows_returns_all(context: Context) -> None:
    every = [node(context, number, vcpus=number) for number in range(600)]
    ComputeNodeList(context, objects=every).create()
    wanted = [uuid(f"node {number}") for number in range(700)]
    wanted.reverse()
    assert vcpus(context, uuid=wanted) == list(range(600))


def test_filter_by_true_or_false_matches(context: Context) -> None:
    service(context, 1, disabled=True).create()
    service(context, 2, forced_down=True).create()
    [disabled] = ServiceList.get_by_filters(context, disabled=True)
    [forced] = ServiceList.get_by_filters(context, disabled=False, forced_down=True)
    assert (disabled.host, forced.host) == ("host-1", "host-2")


def test_filter_with_a_value_of_the_wrong_type_is_refused(
    context: Context, nodes: ComputeNodeList
) -> None:
    # Without this check, MySQL would read "many" as 0, and PostgreSQL would raise its own error.
    wrong: list[dict[str, Any]] = [
        {"vcpus": "many"},
        {"host": 7},
        {"host": {"host-1": True}},
        {"host": "a\0b"},
        {"last_seen": "soon"},
        {"uuid": ["x", "\0"]},
    ]
    for filters in wrong:
        with pytest.raises(InvalidObject, match=next(iter(filters))):
            ComputeNodeList.get_by_filters(context, **filters)
    for name in ("colour", "capabilities", "pci_stats", "id", "deleted", "self"):
        with pytest.raises(InvalidObject, match=f"ComputeNode.*'{name}'"):
            ComputeNodeList.get_by_filters(context, **{name: 1})


def test_get_of_an_unknown_key_raises_not_found(context: Context) -> None:
    for key in ("00000000-0000-0000-0000-000000000000", "x", "", "a\0b", "\ud800"):
        is_not_found(context, key)


def is_not_found(context: Context, key: str) -> None:
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
