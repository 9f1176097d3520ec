"""The selected nodes that Ironic last reported, and their changes."""

from collections.abc import Iterable
from time import monotonic
from typing import Final, Protocol
from uuid import uuid4

from wharfinger.exceptions import BackendError
from wharfinger_ironic import feed
from wharfinger_ironic.config import MAX_PAGES
from wharfinger_ironic.feed import ChangeFeed
from wharfinger_ironic.node import Node

#: The pause of the change feed after a complete list, as a multiple of the list's duration.
_PAUSE: Final = 10


class _Source(feed.Source, Protocol):  # ``Ironic`` of the module ``client``
    def check_sees_all(self) -> None: ...

    def has(self, uuid: str) -> bool: ...

    def last(self) -> str | None: ...

    def page(self, after: str | None) -> list[Node]: ...


class Fleet:
    """The selected nodes of Ironic."""

    def __init__(self, source: _Source, instance: str, max_pages: int = MAX_PAGES) -> None:
        self._source: Final = source
        self._instance: Final = instance
        self._max_pages: Final = max_pages
        self._feed: Final = ChangeFeed(source)
        self._id: Final = uuid4().hex
        self._last_change = 0
        self._changed: dict[str, int] = {}
        self._is_listed = False
        self._pause_ends = 0.0
        self.nodes: dict[str, Node] = {}

    def refresh(self) -> None:
        """Read all selected nodes. Raises BackendError, also if the list may be incomplete."""
        started = monotonic()
        try:
            listed = self._read_complete_list()
        finally:
            now = monotonic()
            self._pause_ends = now + _PAUSE * (now - started)
        if self._is_listed:
            self._note(listed.values())
        self._changed = {uuid: turn for uuid, turn in self._changed.items() if uuid in listed}
        self.nodes, self._is_listed = listed, True

    def has(self, uuid: str) -> bool:
        """Ask Ironic whether it has a selected node with this uuid. Raises BackendError."""
        return self._source.has(uuid)

    def begin_following(self) -> str:
        """Restart the feed; return a mark to find later changes. Raises BackendError."""
        self._feed.begin()
        return self._mark()

    def changed_since(self, mark: str) -> tuple[set[str], str]:
        """Return the uuids of nodes that may have changed, and the next ``mark``.

        Raises BackendError.
        """
        if not self._is_listed:
            self.refresh()
        latest, is_all = self._feed.read(len(self.nodes))
        if is_all or monotonic() < self._pause_ends:
            self._note(latest)
        else:
            self.refresh()
            is_all = True
        if is_all:
            self._feed.advance()
        life, _, turn = mark.partition(":")
        if life != self._id:
            return set(self.nodes), self._mark()  # another process's mark: all may have changed
        changed = {uuid for uuid, its in self._changed.items() if its > int(turn)}
        return changed, self._mark()

    def _mark(self) -> str:
        return f"{self._id}:{self._last_change}"

    def _note(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            if self.nodes.get(node.uuid) != node:
                self._last_change += 1
                self._changed[node.uuid] = self._last_change
                self.nodes[node.uuid] = node

    def _read_complete_list(self) -> dict[str, Node]:
        self._source.check_sees_all()
        last = self._source.last()
        listed: dict[str, Node] = {}
        after: str | None = None
        pages = 0
        while page := self._source.page(after):
            pages += 1
            if pages > self._max_pages:
                raise self._incomplete(
                    f"the list has not ended after {self._max_pages} pages ({len(listed)} nodes). "
                    "Check that the URL is Ironic's; if there are more nodes, raise "
                    f"[{self._instance}] max_pages"
                )
            for node in page:
                if node.uuid in listed:
                    raise self._incomplete(f"the list has node {node.uuid} more than once")
                listed[node.uuid] = node
            after = page[-1].uuid
        if last not in listed:
            last = self._source.last()  # that node may be deleted, or the first nodes may be new
        if last is not None and last not in listed:
            raise self._incomplete(f"the list lacks its last node, {last}")
        return listed

    def _incomplete(self, reason: str) -> BackendError:
        return BackendError(driver=self._instance, operation="listing the nodes", reason=reason)
