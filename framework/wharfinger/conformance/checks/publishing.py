"""Rules on a driver's descriptions, and on their publication (WHF-2..)."""

from collections.abc import Mapping
from contextlib import suppress

from wharfinger.conformance.exceptions import Violation
from wharfinger.conformance.placement_diff import Contents, difference
from wharfinger.conformance.rules import Level, rule
from wharfinger.conformance.subject import Subject, describe, listed, tree_of, update
from wharfinger.conformance.tree_invariants import see_agreement
from wharfinger.exceptions import ReshapeNeeded, shown
from wharfinger.objects import ComputeNode
from wharfinger.providers import DesiredProvider, Inventory
from wharfinger.providers.names import MAX_PROVIDER_NAME, child_uuid
from wharfinger.providers.ownership import is_instance_trait, owners

#: A provider of another owner, below the driver's.
_OTHERS = "conformance-others"
_OTHERS_OWNER = "CUSTOM_OWNER_CONFORMANCE_OTHERS"
_OTHERS_CLASS = "CUSTOM_CONFORMANCE_OTHERS"

#: The fields of a node that are a driver's to set.
_NODE: frozenset[str] = frozenset(
    {"uuid", "host", "hypervisor_hostname", "vcpus", "memory_mb", "local_gb", "pci_stats"}
)


@rule(
    "WHF-201",
    Level.MUST,
    "get_available_nodes returns a list of different names that can be providers', with and "
    "without refresh the same.",
    "A node's name is its root provider's, and those are unique in all of Placement.",
    after=("WHF-101",),
)
def named(subject: Subject) -> None:
    """Ask for the names twice."""
    with subject.driver() as driver:
        names = [node.name for node in listed(driver).nodes]
        if (again := driver.get_available_nodes()) != names:
            raise Violation(f"{names} with refresh, {shown(again)} without", "the same list")


@rule(
    "WHF-202",
    Level.MUST,
    "get_available_resource returns a ComputeNode of that name and host, with nothing in it that "
    "is the framework's to set. It agrees with the root of the node's tree: in its uuid, and its "
    "vcpus, memory_mb and local_gb with the totals of VCPU, MEMORY_MB and DISK_GB, if both have "
    "them.",
    "The framework keeps that object by node and host. Operators see two hosts where the object "
    "and the tree differ.",
    after=("WHF-201",),
)
def nodes_described(subject: Subject) -> None:
    """Look at each node's object."""
    with subject.driver() as driver:
        for name in driver.get_available_nodes(refresh=True):
            node = driver.get_available_resource(name)
            if not isinstance(node, ComputeNode):
                raise Violation(f"{name}: {shown(node)}", "a ComputeNode")
            expected = {"hypervisor_hostname": name, "host": driver.host}
            for field, value in expected.items():
                if getattr(node, field) != value:
                    raise Violation(f"{name}: {field} {shown(getattr(node, field))}", value)
            if others := node.obj_what_changed() - _NODE:
                raise Violation(
                    f"{name}: its ComputeNode sets {', '.join(sorted(others))}",
                    f"only {', '.join(sorted(_NODE))}",
                )
        trees: Mapping[str, DesiredProvider] = {}
        with suppress(Exception):  # that a tree cannot be described is another rule's
            trees = describe(driver, subject.placement.contents(), refresh=False)
        for name in driver.get_available_nodes():
            root = trees.get(name)
            if root is not None and root.reported and name not in subject.placement.contents():
                see_agreement(driver.get_available_resource(name), root.provider)


@rule(
    "WHF-203",
    Level.MUST,
    "Each node can be described, and what is written to the tree is well formed: figures that "
    "Placement takes, names of standard or CUSTOM_ classes and traits.",
    "Placement would refuse it when half of the tree is written.",
    after=("WHF-201",),
)
def well_formed(subject: Subject) -> None:
    """Let the driver describe each node."""
    with subject.driver() as driver:
        try:
            reported = describe(driver, subject.placement.contents())
        except ReshapeNeeded:
            return  # that is another rule's
        if not any(one.stated for one in reported.values()):
            raise Violation("no provider has inventory or traits", "at least one")


@rule(
    "WHF-204",
    Level.MUST,
    "A driver adds no owner trait, and none of those that mark instances.",
    "The framework tags what is published: one owner each, from the configuration.",
    after=("WHF-203",),
)
def untagged(subject: Subject) -> None:
    """Look at the traits that it adds."""
    with subject.driver() as driver:
        live = subject.placement.contents()
        for name, one in _stated(describe(driver, live)).items():
            there = live[name].traits if name in live else frozenset()
            added = one.provider.traits - there
            if marks := {*owners(added), *filter(is_instance_trait, added)}:
                raise Violation(f"{name}: + {', '.join(sorted(marks))}", "none of them")


@rule(
    "WHF-205",
    Level.MUST,
    "Everything that a driver says can be published: a cycle with the real Placement ends without "
    "a problem, and each provider has one owner.",
    "A provider that cannot be published is missing in Placement.",
    after=("WHF-202", "WHF-203", "WHF-204"),
)
def published(subject: Subject) -> None:
    """Publish, and compare Placement with the driver's description."""
    with subject.publishing() as publishing:
        contents = publishing.settle()
        owner = publishing.publisher.owner
        reported = _stated(describe(publishing.driver, contents))
    for name, one in reported.items():
        if name not in contents:
            raise Violation(f"{name} is not in Placement", "its description")
        found = owners(contents[name].traits)
        if found != {owner}:
            raise Violation(f"{name}: owner {', '.join(sorted(found)) or 'none'}", owner)
        if one.reported and one.provider.inventories.keys() - contents[name].inventories.keys():
            raise Violation(f"{name}: {sorted(contents[name].inventories)}", "all of its classes")


@rule(
    "WHF-206",
    Level.SHOULD,
    "The name of a child begins with its root's.",
    "Names are unique in all of Placement: two hosts with a device of one name would be in each "
    "other's way.",
    supports="nested_providers",
    after=("WHF-203",),
)
def prefixed(subject: Subject) -> None:
    """Look at the children's names."""
    with subject.driver() as driver:
        for node in listed(driver).nodes:
            tree = tree_of(node.name, node.uuid, subject.placement.contents())
            update(driver, tree, node.name)
            for one in tree.desired():
                name = one.provider.name
                is_child = one.stated and one.provider.parent_uuid is not None
                if is_child and not name.startswith(node.name):
                    raise Violation(f"{name} in the tree of {node.name}", f"{node.name}_{name}")


@rule(
    "WHF-207",
    Level.SHOULD,
    "Where an allocation_ratio is above 1, no instance gets more than the total (max_unit).",
    "An instance that is given more units than the hardware has cannot be started.",
    after=("WHF-203",),
)
def bounded(subject: Subject) -> None:
    """Look at the figures."""
    with subject.driver() as driver:
        live = subject.placement.contents()
        for name, one in _stated(describe(driver, live)).items():
            for kind, figures in one.provider.inventories.items():
                if figures.allocation_ratio > 1 and figures.max_unit > figures.total:
                    raise Violation(
                        f"{name} {kind}: total {figures.total}, max_unit {figures.max_unit}",
                        f"max_unit at most {figures.total}",
                    )


@rule(
    "WHF-208",
    Level.MUST,
    "The driver touches no provider of another owner, also not below its own providers.",
    "Two owners in one tree are the reason why there are owners.",
    after=("WHF-205",),
)
def others_kept(subject: Subject) -> None:
    """Put providers of another owner below the driver's, with the same classes, and publish."""
    placement = subject.placement
    with subject.publishing() as publishing:
        own = publishing.settle()
        theirs = _create_others(subject, own)
        before = placement.contents()
        with subject.driver() as fresh:
            reported = _stated(describe(fresh, before))
        if touched := theirs & reported.keys():
            text = ", ".join(sorted(touched))
            raise Violation(f"{text} is written to", f"nothing, since it is {_OTHERS_OWNER}'s")
        publishing.restart()
        publishing.sync()
        after = placement.contents()
    if any(after.get(name) != before[name] for name in theirs):
        raise Violation(difference(before, after), "no difference")


def _create_others(subject: Subject, own: Contents) -> set[str]:
    """Create another owner's providers below the first root and the first child."""
    parents = sorted(own.values(), key=lambda one: (one.parent_uuid is not None, one.name))
    first_child = [one for one in parents if one.parent_uuid is not None][:1]
    classes = {kind for one in own.values() for kind in one.inventories}
    names = set()
    for parent in [parents[0], *first_child]:
        name = f"{parent.name[: MAX_PROVIDER_NAME - len(_OTHERS) - 1]}_{_OTHERS}"
        subject.placement.create(
            name,
            {kind: Inventory(total=3) for kind in (*classes, _OTHERS_CLASS)},
            frozenset({_OTHERS_OWNER}),
            parent=parent.name,
            uuid=child_uuid(parent.uuid, name),
        )
        names.add(name)
    return names


def _stated(described: dict[str, DesiredProvider]) -> dict[str, DesiredProvider]:
    """The providers with inventory or traits."""
    return {name: one for name, one in described.items() if one.stated}
