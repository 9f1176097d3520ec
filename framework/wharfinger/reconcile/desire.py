"""Asking a driver what its nodes have, one node at a time, each apart from the others."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Final

import os_traits
from oslo_log import log as logging

from wharfinger.driver import Allocations, ComputeDriver
from wharfinger.driver.signatures import takes_migrations
from wharfinger.exceptions import (
    BackendError,
    InvalidTree,
    NotFound,
    PermissionRefused,
    PlacementUnavailable,
    ReshapeNeeded,
    WharfingerError,
    shown,
)
from wharfinger.objects import Migration
from wharfinger.providers import DesiredProvider, Provider, ProviderTree, compute_status
from wharfinger.providers.function_traits import HeldFunction, said_since, with_function
from wharfinger.providers.merge import own_view
from wharfinger.providers.record import Record
from wharfinger.reconcile.allocation_edits import edited
from wharfinger.reconcile.circumstances import Circumstances
from wharfinger.reconcile.node_list import NodeListing, as_problem, guarded
from wharfinger.tracker.node import Node

LOG: Final = logging.getLogger(__name__)
_NO_RECORD: Final = Record()
#: What has failed where a driver itself says that it could not.
REPORTED: Final = "publishing"

#: From the providers of a tree to the allocations from them, as a driver edits them.
AllocationsOf = Callable[[Iterable[str]], Allocations]


@dataclass(slots=True)
class Answers:
    """What a driver said of all its nodes.

    ``desired`` are the providers by uuid, parents first. ``reshapes`` are, by root uuid,
    the allocations before and after the driver edited them. ``failed`` are the uuids of
    the roots of which nothing is known, with the errors in ``problems``. ``roots`` are the uuids
    of the roots by the names of their nodes. ``reported`` is what the driver cannot publish, and
    that keeps it from nothing else.
    """

    desired: dict[str, DesiredProvider] = field(default_factory=dict)
    reshapes: dict[str, tuple[Allocations, Allocations]] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    problems: list[WharfingerError] = field(default_factory=list)
    roots: dict[str, str] = field(default_factory=dict)
    reported: list[WharfingerError] = field(default_factory=list)

    def fail(self, root_uuid: str, live: Mapping[str, Provider]) -> None:
        """Note that nothing is known of a node, wherever its root stands now."""
        self.failed.add(root_uuid)
        if root_uuid in live:
            self.failed.add(live[root_uuid].root_uuid)

    def note_uuid(self, node: Node) -> None:
        """Note the uuid that the driver gives a node, if its root has another uuid in Placement."""
        wanted = self.desired[node.uuid]
        if node.reported_uuid not in (None, node.uuid):
            self.desired[node.uuid] = replace(wanted, reported_uuid=node.reported_uuid)

    def disable(self, root_uuid: str) -> None:
        """Have a root say that its service is disabled, unless it is somebody else's."""
        wanted = self.desired.get(root_uuid)
        if wanted and wanted.stated:
            root = compute_status.with_status(wanted.provider, disabled=True)
            self.desired[root_uuid] = replace(wanted, provider=root)

    def set_functions(
        self,
        functions: Mapping[str, HeldFunction],
        live: Mapping[str, Provider],
        records: Mapping[str, Record],
        mark: str,
    ) -> set[str]:
        """Have devices say which functions they hold, by provider uuid.

        Returns those whose jobs are not to be believed any more: another function has been said of
        them since, and not one that was said before, too; or they are not those that were
        programmed: what comes anew under an old name lacks our instance's ``mark``.
        """
        mine = {
            uuid: held
            for uuid, held in functions.items()
            if (wanted := self.desired.get(uuid)) and wanted.stated
        }
        since = {
            uuid: said_since(
                self.desired[uuid], live.get(uuid), records.get(uuid, _NO_RECORD), held
            )
            for uuid, held in mine.items()
        }
        anew = {uuid for uuid in mine if uuid in live and mark not in live[uuid].traits}
        superseded = anew.union(uuid for uuid, said in since.items() if said)
        for uuid, held in mine.items():
            self.desired[uuid] = with_function(
                self.desired[uuid],
                records.get(uuid, _NO_RECORD),
                held,
                superseded=not superseded.isdisjoint((uuid, *held.parts)),
            )
        # What was said before may be from a look at Placement that is older than the job's end.
        ended = anew.union(uuid for uuid, said in since.items() if said - mine[uuid].stale)
        return {uuid for uuid in ended if mine[uuid].trait is not None}

    def add(
        self,
        desired: list[DesiredProvider],
        reshape: tuple[Allocations, Allocations] | None,
    ) -> None:
        """Add what was said of a node; its root comes first.

        A sharing provider stands in the trees of several nodes: what one of them states of
        it holds.
        """
        for wanted in desired:
            uuid = wanted.provider.uuid
            before = self.desired.get(uuid)
            if before is None or not before.stated:
                self.desired[uuid] = wanted
            elif wanted.stated:
                reasons = dict.fromkeys((*before.reservations, *wanted.reservations))
                self.desired[uuid] = replace(wanted, reservations=tuple(reasons))
        if reshape is not None:
            self.reshapes[desired[0].provider.root_uuid] = reshape


def ask(
    driver: ComputeDriver,
    listing: NodeListing,
    live: Mapping[str, Provider],
    records: Mapping[str, Record],
    allocations_of: AllocationsOf,
    *,
    circumstances: Circumstances,
    unreadable: Mapping[str, WharfingerError] = MappingProxyType({}),
) -> Answers:
    """Have the driver edit the tree of each node, as Placement has it.

    ``live`` and ``records`` are by provider uuid. A node that fails is reported and leaves
    the others alone; ``unreadable`` are, by root uuid, trees of which Placement's answers
    cannot be understood, and which have failed with that. Where the service is disabled, its
    roots say so; where that is not known, they say what they said before.
    """
    disabled = circumstances.disabled
    answers = Answers(failed=set(unreadable), problems=[*listing.problems, *unreadable.values()])
    trees: dict[str, list[Provider]] = {}
    roots: dict[str, Provider] = {}
    for uuid, provider in live.items():
        seen = own_view(provider, records.get(uuid))
        if seen.traits >= compute_status.DISABLED and compute_status.says_disabled(
            records.get(uuid)
        ):
            # What is the driver's is what it says now.
            seen = compute_status.with_status(seen, disabled=False)
        trees.setdefault(seen.root_uuid, []).append(seen)
        if seen.parent_uuid is None:
            roots[seen.name] = roots[uuid] = seen

    listed = listing.listed

    def root_of(node: Node) -> Provider | None:
        by_name = roots.get(node.name)
        # Another node's root has this one's name until it is renamed.
        is_free = by_name is not None and by_name.uuid not in listed
        return roots.get(node.uuid) or (by_name if is_free else None)

    def root_uuid_of(node: Node) -> str:
        root = root_of(node)
        return root.uuid if root else node.uuid

    sharing = {root.uuid: root for root in roots.values() if shares(root)}
    taken: dict[str, tuple[str, str]] = {}
    for node in listing.nodes:
        root = root_of(node)
        root_uuid = answers.roots[node.name] = root.uuid if root else node.uuid
        if root_uuid in answers.failed:
            continue
        others = [provider for uuid, provider in sharing.items() if uuid != root_uuid]
        try:
            tree = _tree(node, root, [*trees.get(root_uuid, []), *others])
            reshape = guarded(
                driver.name,
                f"update_provider_tree({node.name})",
                partial(
                    _update,
                    driver,
                    tree,
                    node.name,
                    partial(allocations_of, [one.uuid for one in trees.get(root_uuid, ())]),
                    circumstances.migrations.get(node.name, ()),
                ),
            )
            answers.add(_check(driver, tree, node.name, taken), reshape)
            answers.note_uuid(node.under(root_uuid))
        except (PlacementUnavailable, PermissionRefused, NotFound):
            raise  # not the driver's: the next node would fare no better, or all is read again
        except (WharfingerError, ValueError) as error:
            answers.fail(root_uuid, live)
            answers.problems.append(as_problem(driver, node.name, error))
    for node in listing.failed:
        answers.fail(root_uuid_of(node), live)
    answers.reported += reported_problems(driver)
    if disabled is not False:
        for root_uuid in map(root_uuid_of, listing.nodes):
            if disabled or compute_status.says_disabled(records.get(root_uuid)):
                answers.disable(root_uuid)
    if answers.failed:
        # A sharing provider may be that of a node that failed.
        answers.failed |= sharing.keys() - answers.desired.keys()
    return answers


def reported_problems(driver: ComputeDriver) -> list[WharfingerError]:
    """What the driver cannot publish of all that it was asked for until now."""
    operation = "get_problems"
    problems = guarded(driver.name, operation, lambda: list(driver.get_problems()))
    return [
        BackendError(driver=driver.name, operation=REPORTED, reason=str(problem))
        for problem in problems
    ]


def _tree(node: Node, root: Provider | None, providers: list[Provider]) -> ProviderTree:
    """The node's tree as Placement has it, the root under the node's name."""
    if root is None:
        providers.append(Provider(uuid=node.uuid, name=node.name, root_uuid=node.uuid))
    return ProviderTree.from_providers(
        replace(provider, name=node.name)
        if provider is root and provider.name != node.name
        else provider
        for provider in providers
    )


def _update(
    driver: ComputeDriver,
    tree: ProviderTree,
    node: str,
    allocations: Callable[[], Allocations],
    migrations: Sequence[Migration],
) -> tuple[Allocations, Allocations] | None:
    """Have the driver edit the tree; returns the allocations of a reshape, before and after."""
    moves = {"migrations": list(migrations)} if takes_migrations(type(driver)) else {}
    reshape: tuple[Allocations, Allocations] | None = None
    within = set(tree.get_provider_uuids()) if _may_reshape(driver) else set()
    try:
        driver.update_provider_tree(tree, node, allocations=None, **moves)
    except ReshapeNeeded:
        if not _may_reshape(driver):
            raise BackendError(
                driver=driver.name,
                operation=f"update_provider_tree({node})",
                reason="it raised ReshapeNeeded, and its capabilities say that it never does",
            ) from None
        before = allocations()
        after = deepcopy(before)
        try:
            driver.update_provider_tree(tree, node, allocations=after, **moves)
            within.update(tree.get_provider_uuids())
            reshape = before, edited(driver.name, node, before, after, within=within)
        except ReshapeNeeded:
            raise BackendError(
                driver=driver.name,
                operation=f"update_provider_tree({node})",
                reason="it raised ReshapeNeeded again when it was given the allocations",
            ) from None
    _add_capability_traits(driver, tree, node)
    return reshape


def _may_reshape(driver: ComputeDriver) -> bool:
    return driver.capabilities.supports("reshape")


def _add_capability_traits(driver: ComputeDriver, tree: ProviderTree, node: str) -> None:
    traits = driver.capabilities_as_traits()
    if not isinstance(traits, Mapping):
        raise BackendError(
            driver=driver.name,
            operation=f"capabilities_as_traits (of {node})",
            reason=f"it has to return a dict from trait to bool, not {shown(traits)}",
        )
    if traits and tree.exists(node) and tree.is_stated(node):
        tree.add_traits(node, *(trait for trait, has in traits.items() if has))
        tree.remove_traits(node, *(trait for trait, has in traits.items() if not has))


def _check(
    driver: ComputeDriver, tree: ProviderTree, node: str, taken: dict[str, tuple[str, str]]
) -> list[DesiredProvider]:
    """What the driver left behind, if it can be published; notes the names it takes."""
    if not tree.exists(node):
        raise InvalidTree(
            driver=driver.name,
            provider=node,
            problem="the driver removed the root of a node that it lists",
        )
    desired = tree.desired()
    # A name stands for a uuid, and a uuid for a place: by each, what it stands for and where.
    takes: dict[str, tuple[str, str]] = {}
    for wanted in desired:
        if not wanted.stated:
            continue
        provider = wanted.provider
        meanings = {
            provider.name: (provider.uuid, node),
            provider.uuid: (f"{provider.parent_uuid} {provider.name}", node),
        }
        for key, (meaning, _node) in meanings.items():
            other, its = taken.get(key, (meaning, node))
            if other != meaning:
                raise InvalidTree(
                    driver=driver.name,
                    provider=provider.name,
                    problem=f"node {node} has it, and node {its} has another provider with this "
                    f"name or uuid ({key})",
                )
        takes |= meanings
    taken |= takes
    return desired


def shares(provider: Provider) -> bool:
    """Whether a provider is shared by several trees."""
    return os_traits.MISC_SHARES_VIA_AGGREGATE in provider.traits
