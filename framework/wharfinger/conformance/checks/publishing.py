"""Rules on the description and the publication of nodes (WHF-201 to 208)."""

from collections.abc import Mapping
from contextlib import suppress

from wharfinger.conformance.exceptions import Violation
from wharfinger.conformance.placement_diff import Contents, difference
from wharfinger.conformance.rules import Level, rule
from wharfinger.conformance.subject import Subject, describe, listed, tree_of, update
from wharfinger.conformance.tree_invariants import check_agreement
from wharfinger.exceptions import ReshapeNeeded, shown
from wharfinger.objects import ComputeNode
from wharfinger.providers import DesiredProvider, Inventory
from wharfinger.providers.names import MAX_PROVIDER_NAME, child_uuid
from wharfinger.providers.ownership import is_instance_trait, owners

#: A provider of another owner, below the driver's.
_OTHERS = "conformance-others"
_OTHERS_OWNER = "CUSTOM_OWNER_CONFORMANCE_OTHERS"
_OTHERS_CLASS = "CUSTOM_CONFORMANCE_OTHERS"

#: The fields of a ComputeNode that a driver sets. The framework sets the others.
_NODE: frozenset[str] = frozenset(
    {"uuid", "host", "hypervisor_hostname", "vcpus", "memory_mb", "local_gb", "pci_stats"}
)


@rule(
    "WHF-201",
    Level.MUST,
    "get_available_nodes returns a list of different names that are valid for providers. Without "
    "refresh, it returns the list of the last refresh.",
    "The name of a node is the name of its root provider. Placement has each name only once.",
    after=("WHF-101",),
)
def named(subject: Subject) -> None:
    """Check that node names are valid, and equal without refresh."""
    with subject.driver() as driver:
        names = [node.name for node in listed(driver).nodes]
        if (again := driver.get_available_nodes()) != names:
            found = f"get_available_nodes returns {names} with refresh, and {shown(again)} without"
            raise Violation(found, "the same list")


@rule(
    "WHF-202",
    Level.MUST,
    "get_available_resource returns a ComputeNode with the node's name and the driver's host, and "
    "without fields that the framework sets. Its uuid is that of the root of the node's tree. If "
    "both have the figures, its vcpus, memory_mb and local_gb are the totals of VCPU, MEMORY_MB "
    "and DISK_GB.",
    "The framework stores the ComputeNode by node and host. If it differs from the tree, operators "
    "see two different descriptions of one node.",
    after=("WHF-201",),
)
def nodes_described(subject: Subject) -> None:
    """Check the fields of each ComputeNode, also against the node's tree."""
    with subject.driver() as driver:
        for name in driver.get_available_nodes(refresh=True):
            node = driver.get_available_resource(name)
            if not isinstance(node, ComputeNode):
                found = f"get_available_resource({name}) returns {shown(node)}"
                raise Violation(found, "a ComputeNode")
            expected = {"hypervisor_hostname": name, "host": driver.host}
            for field, value in expected.items():
                if getattr(node, field) != value:
                    found = f"the ComputeNode of {name} has {field} {shown(getattr(node, field))}"
                    raise Violation(found, f"{field} {value}")
            if others := node.obj_what_changed() - _NODE:
                raise Violation(
                    f"the ComputeNode of node {name} sets fields that only the framework may set: "
                    f"{', '.join(sorted(others))}",
                    f"only the fields {', '.join(sorted(_NODE))}",
                )
        trees: Mapping[str, DesiredProvider] = {}
        with suppress(Exception):  # another rule checks whether trees can be described
            trees = describe(driver, subject.placement.contents(), refresh=False)
        for name in driver.get_available_nodes():
            root = trees.get(name)
            if root is not None and root.reported and name not in subject.placement.contents():
                check_agreement(driver.get_available_resource(name), root.provider)


@rule(
    "WHF-203",
    Level.MUST,
    "The driver describes each node without an error. The tree has only figures that Placement "
    "accepts, and only standard or CUSTOM_ classes and traits.",
    "Otherwise Placement rejects a request after half of the tree is written.",
    after=("WHF-201",),
)
def well_formed(subject: Subject) -> None:
    """Check that the driver describes its nodes without an error."""
    with subject.driver() as driver:
        try:
            reported = describe(driver, subject.placement.contents())
        except ReshapeNeeded:
            return  # another rule checks that
        if not any(one.stated for one in reported.values()):
            raise Violation(
                "the driver describes no provider with inventory or traits",
                "at least one provider with inventory or traits",
            )


@rule(
    "WHF-204",
    Level.MUST,
    "The driver adds no owner trait, and no trait of a driver instance.",
    "The framework adds these traits to each provider. The owner comes from the configuration.",
    after=("WHF-203",),
)
def untagged(subject: Subject) -> None:
    """Check that the driver adds no traits of owners or driver instances."""
    with subject.driver() as driver:
        live = subject.placement.contents()
        for name, one in _stated(describe(driver, live)).items():
            there = live[name].traits if name in live else frozenset()
            added = one.provider.traits - there
            if marks := {*owners(added), *filter(is_instance_trait, added)}:
                raise Violation(
                    f"the driver adds these traits to provider {name}: {', '.join(sorted(marks))}",
                    "no trait of an owner or of a driver instance, since the framework adds these",
                )


@rule(
    "WHF-205",
    Level.MUST,
    "The framework can publish all that the driver describes: a cycle with the real Placement "
    "ends without a problem, and each provider has one owner.",
    "A provider that the framework cannot publish is missing in Placement.",
    after=("WHF-202", "WHF-203", "WHF-204"),
)
def published(subject: Subject) -> None:
    """Check that the framework can publish all that the driver describes."""
    with subject.publishing() as publishing:
        contents = publishing.settle()
        owner = publishing.publisher.owner
        reported = _stated(describe(publishing.driver, contents))
    for name, one in reported.items():
        if name not in contents:
            raise Violation(
                f"the driver describes provider {name}, but the cycles do not create {name}",
                f"provider {name} in Placement",
            )
        found = owners(contents[name].traits)
        if found != {owner}:
            text = f"{name} has the owner traits {', '.join(sorted(found)) or '(none)'}"
            raise Violation(text, f"only {owner}")
        missing = one.provider.inventories.keys() - contents[name].inventories.keys()
        if one.reported and missing:
            raise Violation(
                f"in Placement, provider {name} lacks the resource classes "
                f"{', '.join(sorted(missing))}, which the driver describes",
                "all resource classes that the driver describes",
            )


@rule(
    "WHF-206",
    Level.SHOULD,
    "The name of a child provider begins with the name of its root.",
    "Placement has each name only once. If devices of two hosts have the same name, only one of "
    "them can be published.",
    supports="nested_providers",
    after=("WHF-203",),
)
def prefixed(subject: Subject) -> None:
    """Check that the names of child providers begin with the name of the root."""
    with subject.driver() as driver:
        for node in listed(driver).nodes:
            tree = tree_of(node.name, node.uuid, subject.placement.contents())
            update(driver, tree, node.name)
            for one in tree.desired():
                name = one.provider.name
                is_child = one.stated and one.provider.parent_uuid is not None
                if is_child and not name.startswith(node.name):
                    raise Violation(
                        f"child provider {name} is in the tree of node {node.name}, but its name "
                        "does not begin with the name of the node",
                        f"a name such as {node.name}_{name}",
                    )


@rule(
    "WHF-207",
    Level.SHOULD,
    "If an allocation_ratio is above 1, max_unit is at most the total.",
    "An instance cannot start with more units than the hardware has.",
    after=("WHF-203",),
)
def bounded(subject: Subject) -> None:
    """Check that max_unit is not above the total if allocation_ratio is above 1."""
    with subject.driver() as driver:
        live = subject.placement.contents()
        for name, one in _stated(describe(driver, live)).items():
            for kind, figures in one.provider.inventories.items():
                if figures.allocation_ratio > 1 and figures.max_unit > figures.total:
                    raise Violation(
                        f"provider {name} has an allocation_ratio above 1 for {kind}, and max_unit "
                        f"{figures.max_unit} above the total {figures.total}",
                        f"max_unit at most {figures.total}",
                    )


@rule(
    "WHF-208",
    Level.MUST,
    "The driver changes no provider of another owner, not even below its own providers.",
    "In a tree with two owners, each provider has to keep the values of its own owner.",
    after=("WHF-205",),
)
def others_kept(subject: Subject) -> None:
    """Check that the driver does not change providers of other owners."""
    placement = subject.placement
    with subject.publishing() as publishing:
        own = publishing.settle()
        theirs = _create_others(subject, own)
        before = placement.contents()
        with subject.driver() as fresh:
            reported = _stated(describe(fresh, before))
        if touched := theirs & reported.keys():
            raise Violation(
                "the driver describes or reserves another owner's providers: "
                f"{', '.join(sorted(touched))}",
                "no description or reservation from the driver for the providers of owner "
                f"{_OTHERS_OWNER}",
            )
        publishing.restart()
        publishing.sync()
        after = placement.contents()
    if any(after.get(name) != before[name] for name in theirs):
        raise Violation(difference(before, after), "no difference")


def _create_others(subject: Subject, own: Contents) -> set[str]:
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
    return {name: one for name, one in described.items() if one.stated}
