"""Invariants of Placement's contents after each cycle, and the providers that a change concerns."""

from dataclasses import replace
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import pytest

from wharfinger.conformance.exceptions import Violation
from wharfinger.conformance.placement_diff import at_and_below, concerned
from wharfinger.conformance.tree_invariants import TreeInvariants, check_agreement
from wharfinger.driver import ComputeDriver
from wharfinger.objects import ComputeNode
from wharfinger.providers import Inventory, Provider
from wharfinger.providers.ownership import Publisher

OWNER = "CUSTOM_OWNER_LAB"
PUBLISHER = Publisher("lab", OWNER)


def provider(name: str, parent: str | None = None, **more: Any) -> Provider:
    return Provider(
        uuid=uuid(name),
        name=name,
        root_uuid=uuid(name.partition("_")[0]),
        parent_uuid=None if parent is None else uuid(parent),
        **{"traits": PUBLISHER.traits, **more},
    )


def uuid(name: str) -> str:
    return str(uuid5(NAMESPACE_URL, name))


def contents(*providers: Provider) -> dict[str, Provider]:
    return {one.name: one for one in providers}


class Driver(ComputeDriver):
    """A driver of one node with ``memory_mb`` of memory."""

    host = "here"
    memory_mb = 1024

    def __init__(self) -> None:
        pass

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        return ["node"]

    def get_available_resource(self, nodename: str) -> ComputeNode:
        return ComputeNode(host="here", hypervisor_hostname=nodename, memory_mb=self.memory_mb)


def invariants(*theirs: Provider, renames: bool = False) -> TreeInvariants:
    return TreeInvariants(contents(*theirs), PUBLISHER, may_rename=renames)


def test_check_untagged_provider_below_a_tagged_one_raises() -> None:
    late = provider("node_late", "node", traits=frozenset({"CUSTOM_LAB"}))

    with pytest.raises(Violation, match="provider node_late has the owner traits none"):
        invariants().check(Driver(), contents(provider("node"), late), [])


def test_check_untagged_provider_from_before_is_of_another_program() -> None:
    theirs = provider("node_theirs", "node", traits=frozenset())

    invariants(theirs).check(Driver(), contents(provider("node"), theirs), [])


def test_check_provider_with_another_owner_raises_only_for_things_of_the_backend() -> None:
    foreign = provider("node_foreign", "node", traits=frozenset({"OWNER_NOVA"}))
    found = contents(provider("node"), foreign)

    invariants().check(Driver(), found, [])
    with pytest.raises(Violation, match="OWNER_NOVA"):
        invariants().check(Driver(), found, ["node_foreign"])


def test_check_name_with_another_uuid_raises() -> None:
    known = invariants()
    known.check(Driver(), contents(provider("node"), provider("node_a", "node")), [])

    with pytest.raises(Violation, match="provider node_a now has the uuid"):
        other = replace(provider("node_a", "node"), uuid=uuid("other"))
        known.check(Driver(), contents(provider("node"), other), [])


@pytest.mark.parametrize("renames", [False, True])
def test_check_uuid_with_another_name_raises_unless_renames_happen(renames: bool) -> None:
    known = invariants(renames=renames)
    known.check(Driver(), contents(provider("node"), provider("node_a", "node")), [])
    other = contents(provider("node"), replace(provider("node_a", "node"), name="node_b"))

    if renames:
        known.check(Driver(), other, [])
    else:
        with pytest.raises(Violation, match="provider node_b now has the uuid"):
            known.check(Driver(), other, [])


def test_check_node_with_other_memory_raises_if_its_tree_is_as_before() -> None:
    driver, known = Driver(), invariants()
    known.check(driver, contents(provider("node")), [])
    driver.memory_mb = 512

    with pytest.raises(Violation, match="512"):
        known.check(driver, contents(provider("node")), [])


def test_check_node_with_other_memory_accepts_it_with_another_tree() -> None:
    driver, known = Driver(), invariants()
    known.check(driver, contents(provider("node")), [])
    driver.memory_mb = 512

    known.check(driver, contents(provider("node"), provider("node_a", "node")), [])


@pytest.mark.parametrize(
    ("inventories", "agrees"),
    [
        ({}, True),
        ({"VCPU": 8}, True),
        ({"VCPU": 6, "PCPU": 2}, True),
        ({"VCPU": 8, "PCPU": 2}, True),
        ({"VCPU": 6}, False),
    ],
)
def test_check_agreement_accepts_totals_of_cpus(inventories: dict[str, int], agrees: bool) -> None:
    node = ComputeNode(host="here", hypervisor_hostname="node", vcpus=8)
    totals = {kind: Inventory(total=total) for kind, total in inventories.items()}
    root = provider("node", inventories=totals)

    if agrees:
        check_agreement(node, root)
    else:
        with pytest.raises(Violation, match="vcpus 8"):
            check_agreement(node, root)


def test_check_agreement_node_with_another_uuid_raises() -> None:
    node = ComputeNode(host="here", hypervisor_hostname="node", uuid=uuid("other"))

    with pytest.raises(Violation, match="the ComputeNode of node node has uuid"):
        check_agreement(node, provider("node"))


def test_concerned_by_a_change_are_parents_children_and_sharing_providers_and_no_siblings() -> None:
    pool = provider("pool", traits=frozenset({"MISC_SHARES_VIA_AGGREGATE"}))
    found = contents(
        provider("node"),
        provider("node_a", "node"),
        provider("node_b", "node_a"),
        provider("node_c", "node_b"),
        provider("node_d", "node_a"),
        provider("other"),
        pool,
    )

    assert concerned(found, {}, "node_b") == {"node", "node_a", "node_b", "node_c", "pool"}


def test_at_and_below_an_unknown_thing_is_empty() -> None:
    assert at_and_below(contents(provider("node")), "other") == []
