"""Follow a driver's change feed (``changed_nodes``) by listings and polls."""

import time
from collections.abc import Callable, Set
from typing import Final

from wharfinger.conformance import clock_shift
from wharfinger.conformance.exceptions import Unproven, Violation
from wharfinger.conformance.placement_diff import Contents, trees
from wharfinger.conformance.rules import can_be_busy
from wharfinger.conformance.subject import Subject, as_contents, describe, listed, tree_of, update
from wharfinger.driver import ComputeDriver
from wharfinger.providers import DesiredProvider
from wharfinger.reconcile import driver_calls

#: Why it is unproven that the feed names a change.
NO_CHANGE: Final = "the harness can neither make a thing busy nor change it (change)"


class Follower:
    """Keeps descriptions of a driver's providers up to date by listings and polls."""

    def __init__(self, subject: Subject, driver: ComputeDriver) -> None:
        self._subject: Final = subject
        self._driver: Final = driver
        self._live: Final[Contents] = subject.placement.contents()
        self._uuids: dict[str, str] = {}
        #: The latest description of each provider, by name.
        self.described: dict[str, DesiredProvider] = {}
        #: The mark for the next poll.
        self.mark = self.ask(None)[1]

    @property
    def nodes(self) -> Set[str]:
        """The names of the nodes in the last listing."""
        return self._uuids.keys()

    def list_all(self) -> None:
        """List and describe all nodes. The mark stays."""
        self.described = describe(self._driver, {**self._live, **as_contents(self.described)})
        self._uuids = {one.name: one.uuid for one in listed(self._driver, refresh=False).nodes}

    def ask(self, mark: str | None) -> tuple[frozenset[str], str]:
        """Return the nodes that the feed names since a mark, and the next mark.

        None asks for a first mark. Raises Violation and BackendError.
        """
        names, following = driver_calls.changed_nodes(self._driver, mark)
        if self._uuids and (others := names - self.nodes):
            raise Violation(
                "changed_nodes names nodes that the last listing lacks: "
                f"{', '.join(sorted(others))}",
                "only nodes that get_available_nodes lists",
            )
        return names, following

    def poll(self) -> frozenset[str]:
        """Poll the feed, describe the nodes that it names, and return their names."""
        names, mark = self.ask(self.mark)
        self.described |= self.describe(names)
        self.mark = mark
        return names

    def describe(self, names: Set[str]) -> dict[str, DesiredProvider]:
        """Let the driver describe nodes without a new listing; return their providers by name."""
        by_root = trees({**self._live, **as_contents(self.described)})
        found: dict[str, DesiredProvider] = {}
        for name in sorted(names):
            known = self.described.get(name)
            root = known.provider.root_uuid if known else self._uuids[name]
            tree = tree_of(name, self._uuids[name], by_root.get(root, {}))
            update(self._driver, tree, name)
            found |= {one.provider.name: one for one in tree.desired()}
        return found

    def node_of(self, thing: str) -> str:
        """Return the name of the node whose tree has a thing's provider."""
        root = self.described[thing].provider.root_uuid
        return next(name for name, one in self.described.items() if one.provider.uuid == root)


class Changes:
    """Changes nodes and devices. Call ``make`` at most once for each.

    The constructor raises Unproven.
    """

    def __init__(self, subject: Subject) -> None:
        self._subject: Final = subject
        self._is_busy: Final = can_be_busy(subject)
        self._before: dict[str, DesiredProvider] = {}
        if not self._is_busy and not subject.can("change"):
            raise Unproven(NO_CHANGE)

    def make(self, thing: str, before: DesiredProvider | None = None) -> None:
        """Change a thing. ``is_seen`` may need ``before``, the old description."""
        if before is not None:
            self._before[thing] = before
        if self._is_busy:
            self._subject.harness.make_busy(thing)
        else:
            self._subject.harness.change(thing)

    def is_seen(self, thing: str, described: DesiredProvider) -> bool:
        """Return whether a description shows the change of a thing."""
        if self._is_busy:
            return bool(described.reservations) or all(
                one.is_fully_reserved for one in described.provider.inventories.values()
            )
        return described.provider != self._before[thing].provider


def soon(holds: Callable[[], bool], within: float, pause: float = 0.1) -> bool:
    """Wait up to ``within`` real seconds for a condition; return whether it holds."""
    deadline = clock_shift.real_seconds() + within
    while not holds():
        if clock_shift.real_seconds() > deadline:
            return False
        time.sleep(pause)
    return True
