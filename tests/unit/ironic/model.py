"""A simulated Ironic in memory for the driver's listings of nodes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from tests.unit.ironic.samples import node
from wharfinger.exceptions import BackendError
from wharfinger_ironic import feed, fleet
from wharfinger_ironic.client import Latest
from wharfinger_ironic.node import Node

#: The correct time at the start of the model.
BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Row:
    """A node in Ironic's database, with all its former states."""

    number: int
    uuid: str
    updated: datetime | None = None
    history: list[Node] = field(default_factory=list)

    @property
    def node(self) -> Node:
        return self.history[-1]


class Model:
    """Ironic's nodes, and the requests for them, which the driver calls a Source.

    ``now`` are the correct seconds since the start; ``skew`` is how far the API's clock is ahead.
    ``asked`` has the requests, each with its number of rows.
    """

    def __init__(self, *, nulls_first: bool = False, has_date: bool = True, page: int = 8) -> None:
        self.nulls_first = nulls_first
        self.has_date = has_date
        self.page_size = page
        self.now = 0.0
        self.skew = 0.0
        self.takes = 0.0
        self.rows: dict[str, Row] = {}
        self.asked: list[tuple[str, int]] = []
        self.fails_at: int | None = None
        self.meanwhile: list[tuple[int, Callable[[], object]]] = []
        self._count = 0

    # Changes in Ironic.

    def create(self, count: int = 1) -> list[str]:
        """Enroll ``count`` nodes that were never updated."""
        made = []
        for _ in range(count):
            self._count += 1
            uuid = str(UUID(int=self._count, version=4))
            self.rows[uuid] = Row(self._count, uuid, history=[node(uuid=uuid)])
            made.append(uuid)
        return made

    def update(
        self, uuid: str, reason: str | None, *, skew: float = 0.0, whole: bool = False
    ) -> None:
        """Update a node; the time of the update is ``skew`` seconds ahead."""
        self.date(uuid, BEGINNING + timedelta(seconds=self.now + skew), whole=whole)
        row = self.rows[uuid]
        row.history.append(node(uuid=uuid, maintenance=reason is not None, last_error=reason))

    def date(self, uuid: str, stamp: datetime | None, *, whole: bool = False) -> None:
        """Set the time of a node's last update."""
        self.rows[uuid].updated = stamp.replace(microsecond=0) if stamp and whole else stamp

    def delete(self, uuid: str) -> None:
        del self.rows[uuid]

    def nodes(self) -> dict[str, Node]:
        return {uuid: row.node for uuid, row in self.rows.items()}

    # Answers.

    def check_sees_all(self) -> None:
        self._begin()
        self.asked.append(("check", 0))

    def has(self, uuid: str) -> bool:
        return uuid in self.rows

    def last(self) -> str | None:
        self._begin()
        found = self._by_number()[-1:]
        self.asked.append(("last", len(found)))
        return found[0].uuid if found else None

    def page(self, after: str | None) -> list[Node]:
        self._begin()
        if after is not None and after not in self.rows:
            raise failed(f"node {after} could not be found")
        begin = self.rows[after].number if after else 0
        later = [row.node for row in self._by_number() if row.number > begin]
        found = later[: self.page_size]
        self.asked.append(("page", len(found)))
        return found

    def latest(self, limit: int) -> Latest:
        self._begin()
        limit = min(limit, self.page_size)
        found = self._by_date()[:limit]
        self.asked.append(("latest", len(found)))
        date = BEGINNING + timedelta(seconds=self.now + self.skew)
        return Latest(
            nodes=tuple(row.node for row in found),
            updated=tuple(row.updated for row in found),
            answered=date.replace(microsecond=0) if self.has_date else None,
            has_more=len(found) == limit,  # also true if the last page is full
        )

    def never_updated_come_last(self) -> bool:
        self._begin()
        found = self._by_date()[-1:]
        self.asked.append(("nulls", len(found)))
        return any(row.updated is None for row in found)

    def _begin(self) -> None:
        """Begin a request: run the acts of ``meanwhile`` that are due; then fail if it is set."""
        self.now += self.takes
        due = [act for when, act in self.meanwhile if when <= 0]
        self.meanwhile = [(when - 1, act) for when, act in self.meanwhile if when > 0]
        for act in due:
            act()
        if self.fails_at is not None:
            self.fails_at -= 1
            if self.fails_at < 0:
                self.fails_at = None
                raise failed("the lab has it fail")

    def _by_number(self) -> list[Row]:
        return sorted(self.rows.values(), key=lambda row: row.number)

    def _by_date(self) -> list[Row]:
        def key(row: Row) -> tuple[bool, datetime, int]:
            is_high = (row.updated is None) is self.nulls_first
            return is_high, row.updated or BEGINNING, row.number

        return sorted(self.rows.values(), key=key, reverse=True)


def failed(reason: str) -> BackendError:
    return BackendError(driver="metal", operation="asking", reason=reason)


@contextmanager
def sizes(small: int, middle: int, page: int) -> Iterator[None]:
    """Set the sizes of answers, so that few nodes are enough for a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feed, "SIZES", (small, middle, page))
        patch.setattr(feed, "PAGE", page)
        yield


@contextmanager
def clock(model: Model) -> Iterator[None]:
    """Let the driver use the model's time."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (feed, fleet):
            patch.setattr(module, "monotonic", lambda: model.now)
        yield
