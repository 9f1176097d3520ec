"""Copy devices in Cyborg's database, which is quicker than a discovery."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final
from uuid import uuid4

from sqlalchemy import Connection, Engine, MetaData, Table, delete, insert, select

#: Rows of devices, by the name of their table.
Rows = Mapping[str, Sequence[Mapping[str, Any]]]

#: The tables of devices. A table that refers to another one comes later.
_DEVICES: Final = ("devices", "controlpath_ids", "deployables", "attributes", "attach_handles")
#: The tables of requests for devices.
_REQUESTS: Final = ("device_profiles", "extended_accelerator_requests")
#: The distance between the ids of two copies. It exceeds every id in the original.
_APART: Final = 1000


class DeviceTables:
    """The devices in Cyborg's database."""

    def __init__(self, engine: Engine) -> None:
        self._engine: Final = engine

    def read(self, deployable: str) -> Rows:
        """Return the rows of this deployable and its device."""
        with self._engine.begin() as connection:
            (part,) = self._where(connection, "deployables", name=deployable)
            its, device = {"deployable_id": part["id"]}, {"device_id": part["device_id"]}
            return {
                "devices": self._where(connection, "devices", id=part["device_id"]),
                "controlpath_ids": self._where(connection, "controlpath_ids", **device),
                "deployables": [part],
                "attributes": self._where(connection, "attributes", **its),
                "attach_handles": self._where(connection, "attach_handles", **its),
            }

    def write(self, devices: Sequence[Rows]) -> None:
        """Insert devices into the database."""
        with self._engine.begin() as connection:
            for name in _DEVICES:
                rows = [row for device in devices for row in device[name]]
                connection.execute(insert(self._tables[name]), rows)

    def clear(self) -> None:
        """Delete all devices, device profiles and accelerator requests."""
        with self._engine.begin() as connection:
            for name in reversed(_DEVICES + _REQUESTS):
                connection.execute(delete(self._tables[name]))

    def _where(self, connection: Connection, name: str, /, **values: Any) -> list[dict[str, Any]]:
        rows = select(self._tables[name]).filter_by(**values)
        return [dict(row) for row in connection.execute(rows).mappings()]

    @cached_property
    def _tables(self) -> Mapping[str, Table]:
        schema = MetaData()
        schema.reflect(self._engine, only=_DEVICES + _REQUESTS)
        return schema.tables


def copied(device: Rows, number: int, texts: Mapping[str, str]) -> Rows:
    """Return the rows of a device's copy, with these texts replaced."""

    def other(column: str, value: Any) -> Any:
        if column == "uuid":
            return str(uuid4())
        if isinstance(value, int) and (column == "id" or column.endswith("_id")):
            return value + _APART * number
        for old, new in texts.items() if isinstance(value, str) else ():
            value = value.replace(old, new)
        return value

    return {
        table: [{column: other(column, value) for column, value in row.items()} for row in rows]
        for table, rows in device.items()
    }
