"""Every operation of nova's ProviderTree, and the additions of Wharfinger."""

import copy
import threading
from collections.abc import Callable
from typing import Any

import pytest

from wharfinger.exceptions import InvalidInventory, InvalidName, ProviderExists, ProviderNotFound
from wharfinger.providers import (
    Inventory,
    Provider,
    ProviderData,
    ProviderTree,
    PublishingMode,
    names,
)

A = "00000000-0000-0000-0000-0000000000aa"
B = "00000000-0000-0000-0000-0000000000bb"
C = "00000000-0000-0000-0000-0000000000cc"
D = "00000000-0000-0000-0000-0000000000dd"
E, F, G = (f"00000000-0000-0000-0000-00000000000{digit}" for digit in "123")
AGGREGATE = "00000000-0000-0000-0000-0000000000ee"
SHARING = "MISC_SHARES_VIA_AGGREGATE"


@pytest.fixture
def tree() -> ProviderTree:
    """Two trees: host with the children gpu (which has the child part) and disk; and other."""
    tree = ProviderTree()
    tree.new_root("host", A, generation=1)
    tree.new_child("gpu", "host", B, 2)
    tree.new_child("part", B, C)
    tree.new_child("disk", A)
    tree.new_root("other", D)
    return tree


def order(tree: ProviderTree, top: str | None = None) -> list[str]:
    return [tree.data(uuid).name for uuid in tree.get_provider_uuids(top)]


# Structure.


def test_get_provider_uuids_has_parents_first_and_children_in_order(
    tree: ProviderTree,
) -> None:
    assert order(tree) == ["host", "gpu", "part", "disk", "other"]
    assert order(tree, "gpu") == order(tree, B) == ["gpu", "part"]


def test_get_provider_uuids_has_one_tree_after_another(tree: ProviderTree) -> None:
    tree.new_child("late", "gpu")

    assert order(tree) == ["host", "gpu", "part", "late", "disk", "other"]


def test_get_provider_uuids_in_tree_from_any_provider_has_the_whole_tree(
    tree: ProviderTree,
) -> None:
    for name_or_uuid in ("host", A, "gpu", C, "disk"):
        uuids = tree.get_provider_uuids_in_tree(name_or_uuid)
        assert uuids == tree.get_provider_uuids("host")
    assert tree.get_provider_uuids_in_tree("other") == [D]


def test_new_provider_returns_its_uuid_and_has_its_parent(tree: ProviderTree) -> None:
    uuid = tree.new_child("pf", "part", generation=7)
    data = tree.data("pf")
    assert (data.uuid, data.parent_uuid, data.generation) == (uuid, C, 7)
    assert tree.new_root("third", AGGREGATE) == AGGREGATE
    assert tree.data("third").parent_uuid is None


def test_new_provider_without_a_uuid_gets_a_stable_one() -> None:
    def build() -> list[str]:
        tree = ProviderTree()
        tree.new_root("host")
        tree.new_child("gpu", "host")
        return tree.get_provider_uuids()

    assert (
        build()
        == build()
        == [
            names.root_uuid("host"),
            names.child_uuid(names.root_uuid("host"), "gpu"),
        ]
    )


def test_new_child_without_a_uuid_keeps_the_known_one_if_it_is_free() -> None:
    host = Provider(uuid=A, name="host", root_uuid=A)
    tree = ProviderTree.from_providers([host], child_uuids={"gpu": B, "part": B})
    copied = copy.deepcopy(tree)

    assert tree.new_child("gpu", "host") == copied.new_child("gpu", "host") == B
    assert tree.new_child("part", "host") == names.child_uuid(A, "part")
    assert tree.new_child("other", "host", C) == C


@pytest.mark.parametrize(("name", "uuid"), [("new", A), ("gpu", AGGREGATE), ("host", None)])
def test_new_provider_with_a_name_or_uuid_of_any_tree_is_refused(
    tree: ProviderTree, name: str, uuid: str | None
) -> None:
    with pytest.raises(ProviderExists, match="already has"):
        tree.new_root(name, uuid)
    with pytest.raises(ProviderExists, match="already has"):
        tree.new_child(name, "other", uuid)
    assert order(tree) == ["host", "gpu", "part", "disk", "other"]


@pytest.mark.parametrize("uuid", [None, AGGREGATE])
@pytest.mark.parametrize("taken", [A, C])
def test_new_provider_named_by_the_uuid_of_another_is_refused(
    tree: ProviderTree, taken: str, uuid: str | None
) -> None:
    with pytest.raises(ProviderExists, match=taken):
        tree.new_child(taken, "other", uuid)
    with pytest.raises(ProviderExists, match=taken):
        tree.new_root(taken, uuid)
    assert order(tree) == ["host", "gpu", "part", "disk", "other"]


def test_new_provider_with_the_name_of_another_as_its_uuid_is_refused(tree: ProviderTree) -> None:
    tree.new_child(AGGREGATE, "other")
    with pytest.raises(ProviderExists, match=AGGREGATE):
        tree.new_child("new", "other", AGGREGATE)
    with pytest.raises(ProviderExists, match=AGGREGATE):
        tree.new_root("new", AGGREGATE)
    assert not tree.exists("new")


def test_new_provider_named_by_its_own_uuid_is_added(tree: ProviderTree) -> None:
    assert tree.new_root(AGGREGATE, AGGREGATE) == AGGREGATE
    tree.remove(AGGREGATE)
    assert tree.new_child(AGGREGATE, "other", AGGREGATE) == AGGREGATE


@pytest.mark.parametrize(("name", "uuid"), [("", None), ("a" * 201, None), ("new", "no-uuid")])
def test_new_provider_with_an_invalid_name_or_uuid_is_refused(
    tree: ProviderTree, name: str, uuid: str | None
) -> None:
    with pytest.raises(InvalidName):
        tree.new_root(name, uuid)
    with pytest.raises(InvalidName):
        tree.new_child(name, "host", uuid)


def test_remove_includes_all_descendants(tree: ProviderTree) -> None:
    tree.remove("gpu")
    assert order(tree) == ["host", "disk", "other"]
    assert not any(tree.exists(one) for one in ("gpu", B, "part", C))
    tree.remove(A)
    assert order(tree) == ["other"]


def test_new_provider_may_have_the_name_of_a_removed_one(tree: ProviderTree) -> None:
    tree.remove("host")
    tree.new_child("part", "other", B)
    assert order(tree) == ["other", "part"]


OPERATIONS: dict[str, Callable[[ProviderTree], object]] = {
    "get_provider_uuids": lambda tree: tree.get_provider_uuids("nothing"),
    "get_provider_uuids_in_tree": lambda tree: tree.get_provider_uuids_in_tree("nothing"),
    "new_child": lambda tree: tree.new_child("new", "nothing"),
    "remove": lambda tree: tree.remove("nothing"),
    "data": lambda tree: tree.data("nothing"),
    "subtree": lambda tree: tree.subtree("nothing"),
    "has_inventory": lambda tree: tree.has_inventory("nothing"),
    "has_inventory_changed": lambda tree: tree.has_inventory_changed("nothing", {}),
    "update_inventory": lambda tree: tree.update_inventory("nothing", {}),
    "has_traits": lambda tree: tree.has_traits("nothing", []),
    "have_traits_changed": lambda tree: tree.have_traits_changed("nothing", []),
    "update_traits": lambda tree: tree.update_traits("nothing", []),
    "add_traits": lambda tree: tree.add_traits("nothing", "CUSTOM_A"),
    "remove_traits": lambda tree: tree.remove_traits("nothing", "CUSTOM_A"),
    "in_aggregates": lambda tree: tree.in_aggregates("nothing", []),
    "have_aggregates_changed": lambda tree: tree.have_aggregates_changed("nothing", []),
    "update_aggregates": lambda tree: tree.update_aggregates("nothing", []),
    "add_aggregates": lambda tree: tree.add_aggregates("nothing", AGGREGATE),
    "remove_aggregates": lambda tree: tree.remove_aggregates("nothing", AGGREGATE),
    "update_resources": lambda tree: tree.update_resources("nothing", {}),
    "reserve": lambda tree: tree.reserve("nothing", "cleaning"),
    "set_publishing_mode": lambda tree: tree.set_publishing_mode("nothing", PublishingMode.OWN),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_unknown_provider_is_a_value_error_that_names_it(
    tree: ProviderTree, operation: str
) -> None:
    with pytest.raises(ValueError, match="no provider with the name or uuid nothing") as caught:
        OPERATIONS[operation](tree)
    assert isinstance(caught.value, ProviderNotFound)


# populate_from_iterable.


def as_dict(name: str, uuid: str, parent: str | None = None, **more: object) -> dict[str, object]:
    return {"name": name, "uuid": uuid, "parent_provider_uuid": parent, **more}


def test_populate_accepts_providers_in_any_order() -> None:
    tree = ProviderTree()
    tree.populate_from_iterable(
        [as_dict("part", C, B), as_dict("gpu", B, A, generation=3), {"name": "host", "uuid": A}]
    )
    assert order(tree) == ["host", "gpu", "part"]
    assert [tree.data(uuid).generation for uuid in (A, B, C)] == [None, 3, None]


def test_populate_with_nothing_changes_nothing(tree: ProviderTree) -> None:
    tree.populate_from_iterable([])
    assert order(tree) == ["host", "gpu", "part", "disk", "other"]


def test_populate_adds_children_below_existing_providers(tree: ProviderTree) -> None:
    tree.populate_from_iterable([as_dict("new", AGGREGATE, C)])
    assert order(tree, "gpu") == ["gpu", "part", "new"]


def test_populate_replaces_contents_and_drops_missing_descendants(
    tree: ProviderTree,
) -> None:
    for one in ("gpu", "part", "host"):
        tree.update_inventory(one, {"VGPU": {"total": 1}})
    tree.populate_from_iterable([as_dict("gpu", B, A, generation=9)])
    assert order(tree) == ["host", "disk", "gpu", "other"]
    assert tree.data("gpu").generation == 9
    assert not tree.has_inventory("gpu")
    assert tree.has_inventory("host")


def test_populate_keeps_descendants_that_are_included(tree: ProviderTree) -> None:
    tree.populate_from_iterable([as_dict("part", C, B), as_dict("gpu", B, A)])
    assert order(tree, "gpu") == ["gpu", "part"]


def test_populate_may_change_name_and_parent(
    tree: ProviderTree,
) -> None:
    tree.populate_from_iterable([as_dict("card", B, D), as_dict("part", C, B)])
    assert order(tree) == ["host", "disk", "other", "card", "part"]
    assert not tree.exists("gpu")
    assert tree.get_provider_uuids_in_tree("part") == [D, B, C]


def test_populate_frees_the_names_of_missing_descendants(tree: ProviderTree) -> None:
    tree.populate_from_iterable([as_dict("gpu", B, A), as_dict("part", AGGREGATE, A)])
    assert tree.data("part").uuid == AGGREGATE


@pytest.mark.parametrize(
    "records",
    [
        [as_dict("new", AGGREGATE, names.root_uuid("nobody"))],
        [as_dict("gpu", B, A), as_dict("new", AGGREGATE, C)],
        [as_dict("one", AGGREGATE, B), as_dict("gpu", B, AGGREGATE)],
        [as_dict("gpu", AGGREGATE, A)],
        [as_dict("same", AGGREGATE), as_dict("same", names.root_uuid("nobody"))],
        [as_dict("new", "no-uuid")],
        [as_dict("", AGGREGATE)],
    ],
    ids=[
        "orphan",
        "child of what is lost by replacing",
        "circle",
        "name of another",
        "one name twice",
        "no uuid",
        "no name",
    ],
)
def test_populate_with_a_provider_without_a_place_changes_nothing(
    tree: ProviderTree, records: list[dict[str, object]]
) -> None:
    tree.update_inventory("gpu", {"VGPU": {"total": 1}})
    before = [tree.data(uuid) for uuid in tree.get_provider_uuids()]
    with pytest.raises(ValueError):
        tree.populate_from_iterable(records)
    assert [tree.data(uuid) for uuid in tree.get_provider_uuids()] == before


def test_populate_accepts_uuids_of_parents_in_any_form() -> None:
    tree = ProviderTree()
    tree.populate_from_iterable([as_dict("host", A.upper()), as_dict("gpu", B, A.upper())])
    assert order(tree) == ["host", "gpu"]


# Contents.


def test_data_has_all_fields(tree: ProviderTree) -> None:
    tree.update_inventory("gpu", {"VGPU": {"total": 2, "reserved": 1}})
    tree.update_traits("gpu", ["CUSTOM_A"])
    tree.update_aggregates("gpu", [AGGREGATE])
    tree.update_resources("gpu", {"VGPU": {"one"}})
    assert tree.data("gpu") == ProviderData(
        uuid=B,
        name="gpu",
        generation=2,
        parent_uuid=A,
        inventory={"VGPU": Inventory(total=2, reserved=1).to_dict()},
        traits={"CUSTOM_A"},
        aggregates={AGGREGATE},
        resources={"VGPU": {"one"}},
    )


def test_data_changed_by_the_caller_changes_nothing_in_the_tree(tree: ProviderTree) -> None:
    tree.update_inventory("gpu", {"VGPU": {"total": 2}})
    tree.update_resources("gpu", {"VGPU": {"one"}})
    before, data = tree.data("gpu"), tree.data("gpu")
    data.inventory["VGPU"]["total"] = 5
    data.inventory["CUSTOM_A"] = {"total": 1}
    data.traits.add("CUSTOM_A")
    data.aggregates.add(AGGREGATE)
    data.resources["VGPU"].add("two")
    data.resources["CUSTOM_A"] = {"three"}
    assert before.resources == {"VGPU": {"one"}}
    assert tree.data("gpu") == before


def test_argument_changed_by_the_caller_changes_nothing_in_the_tree(tree: ProviderTree) -> None:
    inventory, traits = {"VGPU": {"total": 2}}, {"CUSTOM_A"}
    tree.update_inventory("gpu", inventory)
    tree.update_traits("gpu", traits)
    inventory["VGPU"]["total"] = 5
    inventory["CUSTOM_A"] = {"total": 1}
    traits.clear()
    assert tree.data("gpu").inventory == {"VGPU": Inventory(total=2).to_dict()}
    assert tree.data("gpu").traits == {"CUSTOM_A"}


def test_update_inventory_replaces_it_and_returns_whether_it_changed(
    tree: ProviderTree,
) -> None:
    assert not tree.has_inventory("gpu")
    assert tree.update_inventory("gpu", {"VGPU": {"total": 2}, "CUSTOM_A": {"total": 1}})
    assert tree.has_inventory("gpu")
    assert not tree.update_inventory("gpu", {"VGPU": Inventory(total=2), "CUSTOM_A": {"total": 1}})
    assert tree.update_inventory("gpu", {"VGPU": {"total": 2}})
    assert tree.data("gpu").inventory.keys() == {"VGPU"}
    assert tree.update_inventory("gpu", {})
    assert not tree.has_inventory("gpu")


def test_update_inventory_gives_missing_fields_placements_defaults(tree: ProviderTree) -> None:
    # In nova's tree, a missing field such as reserved would keep its value.
    tree.update_inventory("gpu", {"VGPU": {"total": 2, "reserved": 2}})
    assert tree.has_inventory_changed("gpu", {"VGPU": {"total": 2}})
    assert tree.update_inventory("gpu", {"VGPU": {"total": 2}})
    assert tree.data("gpu").inventory["VGPU"]["reserved"] == 0


@pytest.mark.parametrize("wrong", [{"VGPU": {"total": 0}}, {"NOPE": {"total": 1}}])
def test_update_inventory_with_an_invalid_one_changes_nothing(
    tree: ProviderTree, wrong: dict[str, Any]
) -> None:
    tree.update_inventory("gpu", {"VGPU": {"total": 2}})
    for ask in (tree.update_inventory, tree.has_inventory_changed):
        with pytest.raises((InvalidInventory, InvalidName)) as caught:
            ask("gpu", wrong)
        assert isinstance(caught.value, ValueError)
    assert tree.data("gpu").inventory["VGPU"]["total"] == 2


def test_traits_are_replaced_added_and_removed(tree: ProviderTree) -> None:
    assert tree.update_traits("gpu", ["CUSTOM_A", "CUSTOM_B"])
    assert not tree.update_traits("gpu", {"CUSTOM_B", "CUSTOM_A"})
    tree.add_traits("gpu", "CUSTOM_C", "CUSTOM_A")
    assert tree.data("gpu").traits == {"CUSTOM_A", "CUSTOM_B", "CUSTOM_C"}
    tree.remove_traits("gpu", "CUSTOM_A", "CUSTOM_X")
    assert tree.data("gpu").traits == {"CUSTOM_B", "CUSTOM_C"}
    tree.add_traits("gpu")
    tree.remove_traits("gpu")
    assert tree.data("gpu").traits == {"CUSTOM_B", "CUSTOM_C"}
    assert tree.update_traits("gpu", [])
    assert tree.data("gpu").traits == set()


def test_has_traits_and_have_traits_changed_compare(tree: ProviderTree) -> None:
    tree.update_traits("gpu", ["CUSTOM_A", "CUSTOM_B"])
    assert tree.has_traits("gpu", ["CUSTOM_A"])
    assert tree.has_traits("gpu", [])
    assert not tree.has_traits("gpu", ["CUSTOM_A", "CUSTOM_X"])
    assert not tree.have_traits_changed("gpu", ["CUSTOM_B", "CUSTOM_A"])
    assert tree.have_traits_changed("gpu", ["CUSTOM_A"])


def test_update_traits_with_an_invalid_one_is_refused(tree: ProviderTree) -> None:
    for give in (
        lambda: tree.update_traits("gpu", ["GOLD"]),
        lambda: tree.add_traits("gpu", "GOLD"),
    ):
        with pytest.raises(InvalidName, match="trait 'GOLD'"):
            give()
    assert tree.data("gpu").traits == set()


def test_trait_of_a_newer_placement_is_kept() -> None:
    newer = Provider(uuid=A, name="host", root_uuid=A, traits=frozenset(["HW_FROM_2031"]))
    tree = ProviderTree.from_providers([newer])
    tree.add_traits("host", "CUSTOM_A")
    assert tree.data("host").traits == {"HW_FROM_2031", "CUSTOM_A"}


def test_aggregates_are_replaced_added_and_removed(tree: ProviderTree) -> None:
    assert tree.update_aggregates("gpu", [A, B])
    assert not tree.update_aggregates("gpu", {B, A})
    tree.add_aggregates("gpu", C, A)
    assert tree.data("gpu").aggregates == {A, B, C}
    tree.remove_aggregates("gpu", A, D)
    assert tree.data("gpu").aggregates == {B, C}
    assert tree.in_aggregates("gpu", [B])
    assert tree.in_aggregates("gpu", [])
    assert not tree.in_aggregates("gpu", [A, B])
    assert not tree.have_aggregates_changed("gpu", [C, B])
    assert tree.have_aggregates_changed("gpu", [C])


def test_aggregate_in_any_form_of_its_uuid_is_the_same(tree: ProviderTree) -> None:
    tree.update_aggregates("gpu", [AGGREGATE.upper()])
    assert not tree.have_aggregates_changed("gpu", [AGGREGATE.upper()])
    assert tree.in_aggregates("gpu", [AGGREGATE.upper()])
    tree.remove_aggregates("gpu", AGGREGATE.upper())
    assert tree.data("gpu").aggregates == set()


def test_invalid_aggregate_is_refused(tree: ProviderTree) -> None:
    with pytest.raises(InvalidName, match="is not a uuid"):
        tree.add_aggregates("gpu", "rack-1")


def test_update_resources_replaces_them_and_returns_whether_they_changed(
    tree: ProviderTree,
) -> None:
    assert tree.update_resources("gpu", {"VGPU": {"one"}})
    assert not tree.update_resources("gpu", {"VGPU": {"one"}})
    assert tree.update_resources("gpu", {})
    assert tree.data("gpu").resources == {}


def test_generation_is_set_if_given(tree: ProviderTree) -> None:
    tree.update_inventory("gpu", {})
    assert tree.data("gpu").generation == 2
    tree.update_inventory("gpu", {}, generation=3)
    assert tree.data("gpu").generation == 3
    tree.update_traits("gpu", [], 4)
    assert tree.data("gpu").generation == 4
    tree.update_aggregates("gpu", [], generation=5)
    assert tree.data("gpu").generation == 5


# Sharing providers, and copies.


def test_sharing_provider_has_the_class_and_the_trait(tree: ProviderTree) -> None:
    tree.update_inventory("other", {"DISK_GB": {"total": 9}})
    tree.add_traits("host", SHARING)
    assert not tree.has_sharing_provider("DISK_GB")
    tree.add_traits("other", SHARING)
    assert tree.has_sharing_provider("DISK_GB")
    assert not tree.has_sharing_provider("VCPU")
    tree.remove_traits("other", SHARING)
    assert not tree.has_sharing_provider("DISK_GB")


def test_removed_sharing_provider_does_not_count(tree: ProviderTree) -> None:
    tree.update_inventory("other", {"DISK_GB": {"total": 9}})
    tree.update_traits("other", [SHARING])
    tree.remove("other")
    assert not tree.has_sharing_provider("DISK_GB")


def test_subtree_has_its_root_and_the_sharing_providers(tree: ProviderTree) -> None:
    tree.new_root("third", AGGREGATE)
    tree.update_traits("other", [SHARING])
    tree.update_inventory("other", {"DISK_GB": {"total": 9}})
    for top in ("host", A):
        subtree = tree.subtree(top)
        assert order(subtree) == ["host", "gpu", "part", "disk", "other"]
        assert subtree.has_sharing_provider("DISK_GB")
    assert order(tree.subtree("other")) == ["other"]


def test_subtree_has_no_resources_of_other_trees(tree: ProviderTree) -> None:
    tree.update_resources("other", {"VGPU": {"one"}})
    subtree = tree.subtree("host")
    subtree.new_root("other", D)
    assert subtree.data("other").resources == {}


def test_subtree_of_a_child_is_a_value_error(tree: ProviderTree) -> None:
    with pytest.raises(ValueError, match="gpu is not a root"):
        tree.subtree("gpu")


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda tree: tree.subtree("host")])
def test_copy_is_independent_of_the_tree(
    tree: ProviderTree, copied: Callable[[ProviderTree], ProviderTree]
) -> None:
    tree.update_inventory("gpu", {"VGPU": {"total": 2}})
    tree.update_resources("gpu", {"VGPU": {"one"}})
    other = copied(tree)
    assert other.data("gpu") == tree.data("gpu")
    other.update_inventory("gpu", {})
    other.remove("part")
    tree.new_child("new", "gpu")
    assert tree.data("gpu").inventory["VGPU"]["total"] == 2
    assert order(tree, "gpu") == ["gpu", "part", "new"]
    assert order(other, "gpu") == ["gpu"]


def test_deep_copy_has_every_tree(tree: ProviderTree) -> None:
    assert order(copy.deepcopy(tree)) == order(tree)


def test_each_tree_has_a_lock_of_its_own(tree: ProviderTree) -> None:
    with tree.lock:
        thread = threading.Thread(target=ProviderTree().new_root, args=("x",))
        thread.start()
        thread.join(10)
        assert not thread.is_alive()


# Desired providers, which the framework reads from the tree.


def test_desired_marks_only_edited_providers_as_stated(tree: ProviderTree) -> None:
    providers = [wanted.provider for wanted in tree.desired()]
    live = ProviderTree.from_providers(providers)
    assert [wanted.provider for wanted in live.desired()] == providers
    assert not any(wanted.stated for wanted in live.desired())
    live.has_traits("host", [])
    live.data("host")
    live.add_traits("gpu", "CUSTOM_A")
    live.reserve("part", "cleaning")
    live.set_publishing_mode("other", PublishingMode.OVERLAY)
    stated = {wanted.provider.name for wanted in live.desired() if wanted.stated}
    assert stated == {"gpu", "part", "other"}


def test_desired_marks_new_providers_as_stated(tree: ProviderTree) -> None:
    assert all(wanted.stated for wanted in tree.desired())


def test_desired_has_the_root_of_each_tree(tree: ProviderTree) -> None:
    roots = {wanted.provider.name: wanted.provider.root_uuid for wanted in tree.desired()}
    assert roots == {"host": A, "gpu": A, "part": A, "disk": A, "other": D}


def test_reserve_keeps_each_reason_once(tree: ProviderTree) -> None:
    for reason in ("cleaning", "maintenance", "cleaning"):
        tree.reserve("gpu", reason)
    by_name = {wanted.provider.name: wanted for wanted in tree.desired()}
    assert by_name["gpu"].reservations == ("cleaning", "maintenance")
    assert by_name["host"].reservations == ()


@pytest.mark.parametrize("reason", ["", 5, None, "\udc80", "two\nlines"], ids=repr)
def test_reserve_without_a_printable_reason_is_refused(tree: ProviderTree, reason: Any) -> None:
    with pytest.raises(InvalidName, match="reservation reason"):
        tree.reserve("gpu", reason)


def test_reserve_leaves_the_inventory_to_the_framework(tree: ProviderTree) -> None:
    tree.update_inventory("gpu", {"VGPU": {"total": 2}})
    tree.reserve("gpu", "cleaning")
    assert tree.data("gpu").inventory["VGPU"]["reserved"] == 0


def test_publishing_mode_is_own_by_default(tree: ProviderTree) -> None:
    tree.set_publishing_mode("host", PublishingMode.OVERLAY)
    modes = {wanted.provider.name: wanted.mode for wanted in tree.desired()}
    assert modes["host"] is PublishingMode.OVERLAY
    assert modes["gpu"] is PublishingMode.OWN


@pytest.mark.parametrize("is_copied", [False, True])
def test_publishing_mode_auto_is_overlay_for_providers_of_others(is_copied: bool) -> None:
    providers = [Provider(uuid=A, name="a", root_uuid=A), Provider(uuid=B, name="b", root_uuid=B)]
    tree = ProviderTree.from_providers(providers, {A}.__contains__)
    tree = copy.deepcopy(tree) if is_copied else tree
    tree.new_root("new", D)

    modes = {
        name: tree.set_publishing_mode(name, PublishingMode.AUTO) for name in ("a", "b", "new")
    }

    own, overlay = PublishingMode.OWN, PublishingMode.OVERLAY
    assert modes == {"a": overlay, "b": own, "new": own}
    assert {wanted.provider.name: wanted.mode for wanted in tree.desired()} == modes


@pytest.mark.parametrize(
    "providers",
    [
        [Provider(uuid=A, name="a", root_uuid=B, parent_uuid=B)],
        [Provider(uuid=A, name="a", root_uuid=A), Provider(uuid=B, name="a", root_uuid=B)],
        [
            Provider(uuid=A, name="a", root_uuid=A, parent_uuid=B),
            Provider(uuid=B, name="b", root_uuid=A, parent_uuid=A),
        ],
    ],
    ids=["no parent", "one name twice", "circle"],
)
def test_from_providers_with_broken_links_is_refused(providers: list[Provider]) -> None:
    with pytest.raises(ValueError):
        ProviderTree.from_providers(providers)


def test_tree_may_be_deeper_than_pythons_stack() -> None:
    tree = ProviderTree()
    tree.new_root("0")
    for depth in range(1, 3000):
        tree.new_child(str(depth), str(depth - 1))
    assert len(copy.deepcopy(tree).desired()) == 3000
    assert len(tree.get_provider_uuids_in_tree("2999")) == 3000
    tree.remove("0")
    assert tree.get_provider_uuids() == []


# A driver written for nova.


class NovaStyleDriver:
    """A driver that knows only nova's ProviderTree."""

    def __init__(self, cards: dict[str, int], sharing: str | None = None) -> None:
        self.cards = cards
        self.sharing = sharing

    def update_provider_tree(
        self, provider_tree: Any, nodename: str, allocations: Any = None
    ) -> None:
        inventory = provider_tree.data(nodename).inventory
        ratio = inventory.get("VCPU", {}).get("allocation_ratio", 4.0)
        result = {
            "VCPU": {
                "total": 16,
                "min_unit": 1,
                "max_unit": 16,
                "step_size": 1,
                "allocation_ratio": ratio,
                "reserved": 2,
            },
            "MEMORY_MB": {"total": 65536, "max_unit": 65536, "reserved": 512},
        }
        if provider_tree.has_sharing_provider("DISK_GB"):
            inventory.pop("DISK_GB", None)
        else:
            result["DISK_GB"] = {"total": 100, "max_unit": 100}
        inventory.update(result)
        provider_tree.update_inventory(nodename, inventory)
        provider_tree.add_traits(nodename, *self.traits()["have"])
        provider_tree.remove_traits(nodename, *self.traits()["lack"])
        self.update_cards(provider_tree, nodename)
        if self.sharing and provider_tree.exists(self.sharing):
            disk = provider_tree.data(self.sharing).inventory["DISK_GB"]
            disk["total"] += 50
            disk["max_unit"] = disk["total"]
            provider_tree.update_inventory(self.sharing, {"DISK_GB": disk})

    def traits(self) -> dict[str, list[str]]:
        return {"have": ["HW_CPU_X86_VMX", "COMPUTE_NODE"], "lack": ["HW_CPU_X86_SVM"]}

    def update_cards(self, provider_tree: Any, nodename: str) -> None:
        root = provider_tree.data(nodename)
        below = set(provider_tree.get_provider_uuids(nodename)) - {root.uuid}
        for uuid in below:
            name = provider_tree.data(uuid).name
            if name.startswith(nodename + "_pci_") and name[len(nodename) + 5 :] not in self.cards:
                provider_tree.remove(uuid)
        for address, free in self.cards.items():
            name = f"{nodename}_pci_{address}"
            if not provider_tree.exists(name):
                provider_tree.new_child(name, root.uuid)
            card = {"VGPU": {"total": free, "max_unit": free, "min_unit": 1, "step_size": 1}}
            if provider_tree.has_inventory_changed(name, card):
                provider_tree.update_inventory(name, card)
            if not provider_tree.has_traits(name, ["CUSTOM_NVIDIA_35"]):
                provider_tree.update_traits(name, {"CUSTOM_NVIDIA_35"})


def test_driver_written_for_nova_runs_unchanged() -> None:
    tree = ProviderTree()
    tree.new_root("host", A, generation=0)
    tree.update_traits("host", ["HW_CPU_X86_SVM", "CUSTOM_THEIRS"])
    NovaStyleDriver({"0000_41_00_0": 8, "0000_c1_00_0": 4}).update_provider_tree(tree, "host")
    assert order(tree) == ["host", "host_pci_0000_41_00_0", "host_pci_0000_c1_00_0"]
    host = tree.data("host")
    assert host.traits == {"HW_CPU_X86_VMX", "COMPUTE_NODE", "CUSTOM_THEIRS"}
    assert host.inventory.keys() == {"VCPU", "MEMORY_MB", "DISK_GB"}
    assert host.inventory["VCPU"] == {
        "total": 16,
        "reserved": 2,
        "min_unit": 1,
        "max_unit": 16,
        "step_size": 1,
        "allocation_ratio": 4.0,
    }
    card = tree.data("host_pci_0000_41_00_0")
    assert card.inventory == {"VGPU": Inventory(total=8, max_unit=8).to_dict()}
    assert card.traits == {"CUSTOM_NVIDIA_35"}


def test_driver_written_for_nova_finds_existing_providers() -> None:
    driver = NovaStyleDriver({"0000_41_00_0": 8, "0000_c1_00_0": 4})
    tree = ProviderTree()
    tree.new_root("host", A)
    driver.update_provider_tree(tree, "host")
    again = ProviderTree.from_providers(wanted.provider for wanted in tree.desired())
    driver.cards = {"0000_c1_00_0": 4}
    driver.update_provider_tree(again, "host")
    assert order(again) == ["host", "host_pci_0000_c1_00_0"]
    uuid = again.data("host_pci_0000_c1_00_0").uuid
    assert uuid == tree.data("host_pci_0000_c1_00_0").uuid


def test_driver_written_for_nova_updates_a_sharing_provider() -> None:
    tree = ProviderTree()
    tree.new_root("host", A)
    tree.new_root("nfs", D)
    tree.update_inventory("nfs", {"DISK_GB": {"total": 1000, "max_unit": 1000}})
    tree.update_traits("nfs", [SHARING])
    NovaStyleDriver({}, sharing="nfs").update_provider_tree(tree, "host")
    assert "DISK_GB" not in tree.data("host").inventory
    assert tree.data("nfs").inventory["DISK_GB"]["total"] == 1050


def test_remove_unreported_children_keeps_edited_providers() -> None:
    providers = [
        Provider(uuid=A, name="host", root_uuid=A),
        Provider(uuid=B, name="gone", root_uuid=A, parent_uuid=A),
        Provider(uuid=C, name="below gone", root_uuid=A, parent_uuid=B),
        Provider(uuid=D, name="reserved", root_uuid=A, parent_uuid=A),
        Provider(uuid=E, name="card", root_uuid=A, parent_uuid=A),
        Provider(uuid=F, name="part", root_uuid=A, parent_uuid=E),
        Provider(uuid=G, name="other part", root_uuid=A, parent_uuid=E),
    ]
    tree = ProviderTree.from_providers(providers)
    tree.reserve("reserved", "cleaning")
    tree.update_inventory("part", {})
    tree.new_child("new", "host")

    tree.remove_unreported_children("host")

    assert order(tree) == ["host", "reserved", "card", "part", "other part", "new"]
    tree.remove_unreported_children("card")
    assert order(tree, "card") == ["card", "part"]
    with pytest.raises(ProviderNotFound):
        tree.remove_unreported_children("gone")
