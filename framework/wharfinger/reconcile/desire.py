"""Ask the driver for the provider tree of each node, and check it."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Final

import os_traits

from wharfinger.driver import Allocations, ComputeDriver
from wharfinger.driver.signatures import takes_migrations
from wharfinger.exceptions import (
    BackendError,
    InvalidTree,
    NotFound,
    PermissionRefused,
    PlacementUnavailable,
    ProviderRenamed,
    ReshapeNeeded,
    WharfingerError,
)
from wharfinger.objects import Migration
from wharfinger.providers import DesiredProvider, Provider, ProviderTree, PublishingMode, ownership
from wharfinger.providers.plan_draft import own_view
from wharfinger.providers.provider import Record
from wharfinger.reconcile import known_children
from wharfinger.reconcile.cycle_state import CycleState
from wharfinger.reconcile.detachment import former_roots
from wharfinger.reconcile.driver_calls import as_problem, guarded, wrong_answer
from wharfinger.reconcile.reshape_allocation_checks import edited
from wharfinger.tracker.node_rows import Node

#: The name of the operation in errors that a driver reports itself.
REPORTED: Final = "publishing"
_DISABLED: Final = os_traits.COMPUTE_STATUS_DISABLED

#: Returns the allocations of the providers with these uuids, in the form that a driver edits.
AllocationsOf = Callable[[Iterable[str]], Allocations]


def collect_desired(
    state: CycleState, driver: ComputeDriver, allocations_of: AllocationsOf
) -> CycleState:
    """Return the state with the provider trees that the driver reports.

    Trees for which the driver fails are blocked: they can only be reserved or disabled. Raises
    PlacementUnavailable, PermissionRefused and NotFound.
    """
    trees, roots = _driver_views(state)
    listed = state.every_node.listed
    sharing = {root.uuid: root for root in roots.values() if root.shares}
    root_by_node = {
        node.name: _root_of(node, roots, listed, state.records)
        for node in (*state.nodes.nodes, *state.nodes.failed)
    }
    root_uuids = {name: root.uuid for name, root in root_by_node.items()}
    known = known_children.known_children(state)
    outside = _outside_trees(trees, {*root_uuids.values(), *(listed - state.nodes.listed)})
    moves = _by_node(state.rows.migrations, driver.host)
    desired: dict[str, DesiredProvider] = {}
    reshapes: dict[str, tuple[Allocations, Allocations]] = {}
    children_of: dict[str, Mapping[str, list[str]]] = {}
    taken: dict[str, tuple[str, str]] = {}
    renamed: list[WharfingerError] = []
    problems = [*state.nodes.problems]
    failed = {root_uuids[node.name] for node in state.nodes.failed}
    for node in state.nodes.nodes:
        root_uuid = root_uuids[node.name]
        if root_uuid in state.blocked:
            continue
        placed = node.with_root(root_uuid)
        others = [provider for uuid, provider in sharing.items() if uuid != root_uuid]
        # The name may cover several roots.
        children = {**known.get(root_uuid, {}), **known.get(node.name, {})}
        own = trees.get(root_uuid, [])
        if children and outside:
            own = _with_children(own, root_uuid, children, outside, state.records)
        try:
            root = replace(root_by_node[node.name], name=node.name)
            tree = _tree(state, root, [*own, *others], children)
            reshape = guarded(
                driver.name,
                f"update_provider_tree({node.name})",
                partial(
                    _update,
                    driver,
                    tree,
                    node.name,
                    partial(allocations_of, [one.uuid for one in own]),
                    moves.get(node.name, ()),
                ),
            )
            wanted = _check(driver, tree, placed, taken)
        except (PlacementUnavailable, PermissionRefused, NotFound):
            raise  # not the driver's error: the next node would fail too, or all is read again
        except (WharfingerError, ValueError) as error:
            failed.add(root_uuid)
            problems.append(as_problem(driver, node.name, error))
            continue
        _merge(desired, wanted, placed)
        if reshape is not None:
            reshapes[root_uuid] = reshape
        live = state.live.get(root_uuid)
        if live and live.name != node.name and desired[root_uuid].mode is PublishingMode.OVERLAY:
            renamed.append(
                ProviderRenamed(
                    provider=node.name, uuid=live.uuid, renamed=live.name, instance=driver.name
                )
            )
        children_of[root_uuid] = children
    replacing = known_children.problems_of_replaced(state.reservations, desired, children_of)
    reported = [
        BackendError(driver=driver.name, operation=REPORTED, reason=str(problem))
        for problem in guarded(driver.name, "get_problems", lambda: list(driver.get_problems()))
    ]
    state = replace(
        state.block(failed, *problems),
        # A root that was found by its name has another uuid than its node.
        scope=None if state.scope is None else state.scope.union(root_uuids.values()),
        roots=root_uuids,
        desired=desired,
        reshapes=reshapes,
        held=frozenset(replacing),
        other_problems=(*state.other_problems, *reported, *renamed, *replacing.values()),
    )
    if state.blocked:
        # A sharing provider may be in the tree of a node that failed.
        state = replace(state, blocked=state.blocked | (sharing.keys() - desired.keys()))
    return _with_service_status(state)


def _merge(
    desired: dict[str, DesiredProvider], of_node: Iterable[DesiredProvider], node: Node
) -> None:
    for wanted in of_node:
        uuid = wanted.provider.uuid
        before = desired.get(uuid)
        if before is None or not before.stated:
            desired[uuid] = wanted
        elif wanted.stated:
            reasons = dict.fromkeys((*before.reservations, *wanted.reservations))
            desired[uuid] = replace(wanted, reservations=tuple(reasons))
    if node.reported_uuid not in (None, node.uuid):
        desired[node.uuid] = replace(desired[node.uuid], reported_uuid=node.reported_uuid)


def _with_service_status(state: CycleState) -> CycleState:
    disabled = state.rows.service_disabled
    if disabled is False:
        return state
    changed = {}
    for uuid in state.roots.values():
        wanted = state.stated(uuid)
        if wanted and (disabled or _DISABLED in state.record(uuid).claimed_traits):
            traits = wanted.provider.traits | {_DISABLED}
            changed[uuid] = replace(wanted, provider=replace(wanted.provider, traits=traits))
    return replace(state, desired={**state.desired, **changed})


def _driver_views(state: CycleState) -> tuple[dict[str, list[Provider]], dict[str, Provider]]:
    trees: dict[str, list[Provider]] = {}
    roots: dict[str, Provider] = {}
    wanted = None
    if state.scope is not None:
        wanted = _roots_of_nodes(state) | former_roots(state.reservations).keys()
    for uuid, provider in state.live.items():
        if wanted is not None and provider.root_uuid not in wanted:
            continue
        record = state.record(uuid)
        seen = own_view(provider, record)
        if _DISABLED in seen.traits and _DISABLED in record.claimed_traits:
            # The framework has added the trait, and the driver does not report it.
            seen = replace(seen, traits=seen.traits - {_DISABLED})
        trees.setdefault(seen.root_uuid, []).append(seen)
        if seen.parent_uuid is None:
            roots[seen.name] = roots[uuid] = seen
    return trees, roots


def _root_of(
    node: Node, roots: Mapping[str, Provider], listed: Set[str], records: Mapping[str, Record]
) -> Provider:
    by_uuid, by_name = roots.get(node.uuid), roots.get(node.name)
    if by_name is not None and by_name.uuid in listed:
        by_name = None  # two nodes may swap names: this is still the root of another node
    if by_uuid and by_name and node.reported_uuid:
        record = records.get(by_uuid.uuid)
        if record and not record.is_own:
            return by_name  # its publisher has renamed the old root, and created a new one
    return by_uuid or by_name or Provider(uuid=node.uuid, name=node.name, root_uuid=node.uuid)


def _roots_of_nodes(state: CycleState) -> set[str]:
    keys = {key for pair in state.nodes.roots.items() for key in pair}
    found = set()
    for uuid, provider in state.live.items():
        if provider.parent_uuid is None:
            applied = state.record(uuid).applied
            names = {uuid, provider.name, applied.name if applied else None}
            if not keys.isdisjoint(names) or provider.shares:
                found.add(uuid)
    return found


def _tree(
    state: CycleState,
    root: Provider,
    providers: Iterable[Provider],
    children: Mapping[str, Sequence[str]],
) -> ProviderTree:
    def is_others(uuid: str) -> bool:
        live, record = state.live.get(uuid), state.record(uuid)
        if live is None:
            return ownership.is_overlaid(record)
        return ownership.is_others(live, state.publisher, record)

    others = (one for one in providers if one.uuid != root.uuid)
    uuids = {name: known[0] for name, known in children.items()}
    return ProviderTree.from_providers([root, *others], is_others, uuids)


def _outside_trees(trees: Mapping[str, list[Provider]], roots: Set[str]) -> dict[str, Provider]:
    return {
        one.uuid: one
        for root, providers in trees.items()
        if root not in roots
        for one in providers
        if not (one.uuid == root and one.shares)
    }


def _with_children(
    own: list[Provider],
    root_uuid: str,
    children: Mapping[str, Sequence[str]],
    outside: Mapping[str, Provider],
    records: Mapping[str, Record],
) -> list[Provider]:
    known = {uuids[0] for uuids in children.values()}
    found: dict[str, Provider] = {}
    for one in outside.values():
        above: Provider | None = one
        while above and above.uuid not in known:
            above = outside.get(above.parent_uuid or "")
        if above:
            record = records.get(one.uuid)
            parent = record.applied.parent_uuid if record and record.applied else one.parent_uuid
            found[one.uuid] = replace(one, root_uuid=root_uuid, parent_uuid=parent)
    there = {root_uuid, *found, *(one.uuid for one in own)}
    return own + [
        one if one.parent_uuid in there else replace(one, parent_uuid=root_uuid)
        for one in found.values()
    ]


def _by_node(moves: Iterable[Migration], host: str) -> dict[str, list[Migration]]:
    found: dict[str, list[Migration]] = {}
    for one in moves:
        nodes = {
            one.known(f"{end}_node")
            for end in ("source", "dest")
            if one.known(f"{end}_compute") == host
        }
        for node in nodes - {None}:
            found.setdefault(node, []).append(one)
    return found


def _update(
    driver: ComputeDriver,
    tree: ProviderTree,
    node: str,
    allocations: Callable[[], Allocations],
    migrations: Sequence[Migration],
) -> tuple[Allocations, Allocations] | None:
    moves = {"migrations": list(migrations)} if takes_migrations(type(driver)) else {}
    reshape: tuple[Allocations, Allocations] | None = None
    within = set(tree.get_provider_uuids())
    problem = ", but its capabilities say that it never reshapes"
    try:
        try:
            driver.update_provider_tree(tree, node, allocations=None, **moves)
        except ReshapeNeeded:
            if not driver.capabilities.supports("reshape"):
                raise
            problem = " again when it was called with the allocations"
            before = allocations()
            after = deepcopy(before)
            driver.update_provider_tree(tree, node, allocations=after, **moves)
            within.update(tree.get_provider_uuids())
            reshape = before, edited(driver.name, node, before, after, within=within)
    except ReshapeNeeded:
        raise BackendError(
            driver=driver.name,
            operation=f"update_provider_tree({node})",
            reason=f"the driver raised ReshapeNeeded{problem}. Correct the driver.",
        ) from None
    _add_capability_traits(driver, tree, node)
    return reshape


def _add_capability_traits(driver: ComputeDriver, tree: ProviderTree, node: str) -> None:
    traits = driver.capabilities_as_traits()
    if not isinstance(traits, Mapping):
        operation = f"capabilities_as_traits (of {node})"
        raise wrong_answer(driver.name, operation, "a dict from trait to bool", traits)
    if traits and tree.exists(node) and tree.is_stated(node):
        tree.add_traits(node, *(trait for trait, has in traits.items() if has))
        tree.remove_traits(node, *(trait for trait, has in traits.items() if not has))


def _check(
    driver: ComputeDriver, tree: ProviderTree, node: Node, taken: dict[str, tuple[str, str]]
) -> list[DesiredProvider]:
    if not (tree.exists(node.name) and tree.exists(node.uuid)):
        raise InvalidTree(
            driver=driver.name,
            provider=node.name,
            problem="the driver removed the root of a node that it lists",
        )
    desired = tree.desired()
    # One name must have one uuid, and one uuid must have one parent and name. ``taken`` maps each
    # name and uuid to that meaning, and to the node.
    takes: dict[str, tuple[str, str]] = {}
    for wanted in desired:
        if not wanted.stated:
            continue
        provider = wanted.provider
        meanings = {
            provider.name: (provider.uuid, node.name),
            provider.uuid: (f"{provider.parent_uuid} {provider.name}", node.name),
        }  # with one key if the name is the uuid
        for key, (meaning, _node) in meanings.items():
            other, other_node = taken.get(key, (meaning, node.name))
            if other != meaning:
                raise InvalidTree(
                    driver=driver.name,
                    provider=provider.name,
                    problem=f"node {node.name} has this provider, and node {other_node} has "
                    f"another provider with this name or uuid ({key})",
                )
        takes |= meanings
    taken |= takes
    return desired
