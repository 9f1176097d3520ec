"""Examine many drivers quickly, without slow parts of a run that do not matter for the result.

Drivers publish to the real Placement through its API, but the kit reads and empties Placement's
database directly. The installed distributions are listed only once.
"""

from collections import defaultdict
from functools import cache
from typing import Any, Final

import fixtures
from placement import db_api
from sqlalchemy import Connection, text

from tests.lab import placement as lab
from tests.lab.sqlite import StayingOpen
from wharfinger.conformance.placement import RunPlacement
from wharfinger.conformance.placement_diff import Contents
from wharfinger.driver import loader
from wharfinger.providers import Inventory, Provider

_PROVIDERS: Final = (
    "SELECT own.id, own.uuid, own.name, root.uuid, parent.uuid FROM resource_providers own"
    " JOIN resource_providers root ON root.id = own.root_provider_id"
    " LEFT JOIN resource_providers parent ON parent.id = own.parent_provider_id"
)
_FIGURES: Final = ("total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio")
_INVENTORIES: Final = (
    f"SELECT resource_provider_id, name, {', '.join(_FIGURES)} FROM inventories"
    " JOIN resource_classes ON resource_classes.id = resource_class_id"
)
_TRAITS: Final = (
    "SELECT resource_provider_id, name FROM resource_provider_traits"
    " JOIN traits ON traits.id = trait_id"
)
_AGGREGATES: Final = (
    "SELECT resource_provider_id, uuid FROM resource_provider_aggregates"
    " JOIN placement_aggregates ON placement_aggregates.id = aggregate_id"
)


class QuickPlacement(RunPlacement):
    """The Placement of this process, read and emptied through its database."""

    def contents(self) -> Contents:
        """Return all providers by name, as RunPlacement does."""
        with db_api.get_placement_engine().connect() as connection:
            inventories = _rows(connection, _INVENTORIES)
            traits = _rows(connection, _TRAITS)
            aggregates = _rows(connection, _AGGREGATES)
            return {
                name: Provider(
                    uuid=uuid,
                    name=name,
                    root_uuid=root,
                    parent_uuid=parent,
                    inventories={
                        kind: Inventory(**dict(zip(_FIGURES, figures, strict=True)))
                        for kind, *figures in inventories[key]
                    },
                    traits=frozenset(trait for (trait,) in traits[key]),
                    aggregates=frozenset(aggregate for (aggregate,) in aggregates[key]),
                )
                for key, uuid, name, root, parent in connection.execute(text(_PROVIDERS))
            }

    def empty(self) -> None:
        """Delete all allocations and providers, as RunPlacement does."""
        self._known.clear()
        lab.empty()


class InOneProcess(fixtures.Fixture):
    """Keeps databases open, and lists and loads installed drivers only once."""

    def _setUp(self) -> None:
        self.useFixture(StayingOpen())
        for name in ("entry_points", "load"):
            once = cache(vars(loader)[name])
            self.useFixture(fixtures.MonkeyPatch(f"{loader.__name__}.{name}", once))


def _rows(connection: Connection, query: str) -> dict[int, list[Any]]:
    """Return the rows of a query, grouped by their first column."""
    found: dict[int, list[Any]] = defaultdict(list)
    for key, *values in connection.execute(text(query)):
        found[key].append(values)
    return found
