"""The framework's ProviderTree compared with nova's: the same calls leave the same tree.

So a compute driver of nova can edit the framework's tree. The two refuse different names on purpose
(docs/reference/driver-contract.rst); these tests use only names that both accept.
"""

from typing import Any
from uuid import NAMESPACE_DNS, uuid5

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.providers import ProviderTree

provider_tree = pytest.importorskip(
    "nova.compute.provider_tree", reason="only the tox environment nova has nova"
)

NAMES = ("root", "other", "numa", "gpu", "card")
TRAITS = ("HW_CPU_X86_VMX", "CUSTOM_FAST", "MISC_SHARES_VIA_AGGREGATE", "OWNER_NOVA")
CLASSES = ("VCPU", "CUSTOM_MAGIC")
PARTS = ("uuid", "name", "generation", "parent_uuid", "inventory", "traits", "aggregates")
FULL = {"reserved": 0, "min_unit": 1, "max_unit": 8, "step_size": 1, "allocation_ratio": 1.0}


def uuid_of(name: str) -> str:
    return str(uuid5(NAMESPACE_DNS, name))


names = st.sampled_from(NAMES)
#: Names and uuids, by which both trees find providers.
keys = names | names.map(uuid_of)
traits = st.lists(st.sampled_from(TRAITS), max_size=3)
aggregates = st.lists(st.sampled_from(["a", "b"]).map(uuid_of), max_size=2)
inventories = st.dictionaries(
    st.sampled_from(CLASSES), st.integers(1, 8).map(lambda total: {"total": total, **FULL})
)
calls = st.one_of(
    st.tuples(st.just("new_root"), names),
    st.tuples(st.just("new_child"), names, keys),
    st.tuples(st.just("remove"), keys),
    st.tuples(st.just("exists"), keys),
    st.tuples(st.just("get_provider_uuids"), keys),
    st.tuples(st.just("get_provider_uuids_in_tree"), keys),
    st.tuples(st.just("has_inventory"), keys),
    st.tuples(st.just("has_inventory_changed"), keys, inventories),
    st.tuples(st.just("update_inventory"), keys, inventories),
    st.tuples(st.just("has_sharing_provider"), st.sampled_from(CLASSES)),
    st.tuples(
        st.sampled_from(["has_traits", "have_traits_changed", "update_traits"]), keys, traits
    ),
    st.tuples(st.sampled_from(["add_traits", "remove_traits"]), keys, st.sampled_from(TRAITS)),
    st.tuples(
        st.sampled_from(["in_aggregates", "have_aggregates_changed", "update_aggregates"]),
        keys,
        aggregates,
    ),
    st.tuples(
        st.sampled_from(["add_aggregates", "remove_aggregates"]),
        keys,
        st.sampled_from(["a", "b"]).map(uuid_of),
    ),
)


@given(st.lists(calls, max_size=25))
def test_calls_leave_the_same_tree_as_in_nova(made: list[tuple[Any, ...]]) -> None:
    trees = [ProviderTree(), provider_tree.ProviderTree()]
    for tree in trees:
        tree.new_root("root", uuid_of("root"))
    for name, *arguments in made:
        ours, novas = (answer(tree, name, arguments) for tree in trees)
        assert ours == novas, (name, arguments)
    ours, novas = (contents(tree) for tree in trees)
    assert ours == novas


def answer(tree: Any, name: str, arguments: list[Any]) -> Any:
    """Return the result of a call, or ValueError if the call raises it."""
    more = {"uuid": uuid_of(arguments[0])} if name.startswith("new_") else {}
    try:
        return getattr(tree, name)(*arguments, **more)
    except ValueError:
        return ValueError


def contents(tree: Any) -> list[Any]:
    """Return the order and the contents of all providers."""
    return [
        tuple(getattr(tree.data(uuid), part) for part in PARTS)
        for uuid in tree.get_provider_uuids()
    ]
