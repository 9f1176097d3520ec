"""Read and write nodes in Ironic's database, which is quicker than Ironic's API."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, Final

from sqlalchemy import Connection, Engine, MetaData, Table, delete, insert, select


@dataclass(frozen=True, slots=True)
class Row:
    """The rows of a node and of its traits."""

    #: The columns of the node, without its ``id``.
    columns: Mapping[str, Any]
    #: The columns of each trait.
    traits: Sequence[Mapping[str, Any]]


class Rows:
    """The nodes in Ironic's database."""

    def __init__(self, engine: Engine) -> None:
        self._engine: Final = engine

    def uuids(self) -> list[str]:
        """Return the uuids of all nodes, the oldest first."""
        with self._engine.begin() as connection:
            nodes = self._nodes
            return [*connection.execute(select(nodes.c.uuid).order_by(nodes.c.id)).scalars()]

    def read(self, uuid: str | None = None) -> Row | None:
        """Return a node, by default the oldest one, or None without one."""
        nodes, traits = self._nodes, self._traits
        wanted = select(nodes).order_by(nodes.c.id)
        if uuid is not None:
            wanted = wanted.where(nodes.c.uuid == uuid)
        with self._engine.begin() as connection:
            node = connection.execute(wanted).mappings().first()
            if node is None:
                return None
            its = connection.execute(select(traits).where(traits.c.node_id == node["id"]))
            return Row(
                {name: value for name, value in node.items() if name != "id"},
                [dict(trait) for trait in its.mappings()],
            )

    def write(self, row: Row, changes: Sequence[Mapping[str, Any]]) -> None:
        """Insert a copy of a node and its traits for each mapping of changed columns."""
        if changes:
            with self._engine.begin() as connection:
                connection.execute(
                    insert(self._nodes), [{**row.columns, **more} for more in changes]
                )
                self._give_traits(connection, row.traits, len(changes))

    def _give_traits(
        self, connection: Connection, traits: Sequence[Mapping[str, Any]], count: int
    ) -> None:
        ids = self._nodes.c.id
        newest = connection.execute(select(ids).order_by(ids.desc()).limit(count)).scalars().all()
        if had := [{**trait, "node_id": id} for trait, id in product(traits, newest)]:
            connection.execute(insert(self._traits), had)

    def clear(self) -> None:
        """Delete all nodes, and all rows that belong to a node."""
        with self._engine.begin() as connection:
            for table in self._schema.tables.values():
                if "node_id" in table.c:
                    connection.execute(delete(table))
            connection.execute(delete(self._nodes))

    @cached_property
    def _schema(self) -> MetaData:
        schema = MetaData()
        schema.reflect(self._engine)
        return schema

    @property
    def _nodes(self) -> Table:
        return self._schema.tables["nodes"]

    @property
    def _traits(self) -> Table:
        return self._schema.tables["node_traits"]
