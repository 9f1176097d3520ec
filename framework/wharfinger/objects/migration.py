"""Migrations: moves of instances to another node or flavor."""

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, ClassVar, Final, Self

from wharfinger.db.row_statements import NotIn, Rows
from wharfinger.exceptions import ConcurrentSave, ObjectExists
from wharfinger.objects import base, field_base, field_types
from wharfinger.objects.base import Step, register
from wharfinger.objects.database_context import Context
from wharfinger.objects.flavor import Flavor
from wharfinger.objects.instance import Instance
from wharfinger.objects.persistence import KeptList, KeptObject, object_errors

#: The types of moves, as in nova.
MIGRATION_TYPES: Final = ("resize", "migration", "live-migration", "evacuation")

#: nova's statuses of a move, each with its possible next statuses. A final status has no next one.
#: Unlike in nova, a move whose revert fails returns to finished.
MIGRATION_STATUSES: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "accepted": frozenset({"queued", "preparing", "pre-migrating", "done", "failed", "error"}),
        "queued": frozenset({"preparing", "cancelled", "failed", "error"}),
        "preparing": frozenset({"running", "cancelled", "failed", "error"}),
        "running": frozenset({"completed", "cancelled", "failed", "error"}),
        "pre-migrating": frozenset({"migrating", "done", "failed", "error"}),
        "migrating": frozenset({"post-migrating", "failed", "error"}),
        "post-migrating": frozenset({"finished", "error"}),
        "finished": frozenset({"confirming", "reverting", "error"}),
        "confirming": frozenset({"confirmed", "error"}),
        "reverting": frozenset({"reverted", "finished", "error"}),
        "confirmed": frozenset(),
        "reverted": frozenset(),
        "completed": frozenset(),
        "done": frozenset(),
        "cancelled": frozenset(),
        "failed": frozenset(),
        "error": frozenset(),
    }
)
#: The statuses that are not final: the move holds resources on both nodes.
IN_PROGRESS: Final = tuple(status for status, after in MIGRATION_STATUSES.items() if after)
_ENDS: Final = ("source_compute", "dest_compute")
#: The final statuses. An unknown status counts as in progress.
OVER: Final = tuple(MIGRATION_STATUSES.keys() - set(IN_PROGRESS))


class _Status(field_types.Word):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(MIGRATION_STATUSES, **kwargs)
        self.transitions = MIGRATION_STATUSES

    def _coerce(self, obj: Any, attr: str, value: Any) -> str:
        wanted = super()._coerce(obj, attr, value)
        if obj is None or attr not in obj:
            return wanted
        before = getattr(obj, attr)
        if wanted != before and wanted not in self.transitions[before]:
            after = ", ".join(sorted(self.transitions[before])) or "none"
            raise field_base.wrong(attr, wanted, f"a possible status after {before} ({after})")
        return wanted


@register
class Migration(KeptObject):
    """A move of an instance to another node or flavor.

    - ``uuid``: the uuid of the move, and of the consumer of the source's allocation.
    - ``instance_uuid``: the instance that moves.
    - ``migration_type``: one of MIGRATION_TYPES.
    - ``status``: one of MIGRATION_STATUSES; an impossible next status raises ValueError.
    - ``source_compute``, ``source_node``: the service host and the ``hypervisor_hostname`` of the
      source.
    - ``dest_compute``, ``dest_node``: those of the destination, None while unknown.
    - ``old_flavor``, ``new_flavor``: the flavors at the source and at the destination.
    - ``created_at``: when the move was created, in UTC.
    - ``updated_at``: when the move was last changed, in UTC; None if never.
    - ``revision``: see KeptObject.
    """

    HISTORY = (
        Step("1.0", "first version"),
        Step("1.1", "a move whose revert fails returns to finished"),
    )
    TABLE = "migrations"
    uuid: str
    instance_uuid: str
    migration_type: str
    status: str
    source_compute: str
    source_node: str
    dest_compute: str | None
    dest_node: str | None
    old_flavor: Flavor
    new_flavor: Flavor
    created_at: datetime
    updated_at: datetime | None
    fields = {
        "uuid": field_types.uuid(),
        "instance_uuid": field_types.uuid(),
        "migration_type": field_types.one_of(*MIGRATION_TYPES),
        "status": _Status(default="accepted"),
        "source_compute": field_types.name(),
        "source_node": field_types.name(),
        "dest_compute": field_types.name(nullable=True),
        "dest_node": field_types.name(nullable=True),
        "old_flavor": field_base.ObjectField("Flavor"),
        "new_flavor": field_base.ObjectField("Flavor"),
        "created_at": field_types.moment(),
        "updated_at": field_types.moment(nullable=True),
    }
    obj_relationships: ClassVar[dict[str, list[tuple[str, str]]]] = {
        "old_flavor": [("1.0", "1.0")],
        "new_flavor": [("1.0", "1.0")],
    }

    @classmethod
    @base.remotable
    def get_by_uuid(cls, context: Context, uuid: str) -> Self:
        """Return the move with this uuid; raises ObjectNotFound."""
        return cls._get(context, uuid=uuid)

    @base.remotable
    def create(self) -> None:
        """Add the move to the database; raises FieldUnset, ObjectExists and ConcurrentSave.

        An instance has at most one move in progress.
        """
        with object_errors(type(self), [self]):
            self._context.db.write((Instance.TABLE, self.TABLE), self._add)
        self._created()

    @property
    def is_in_progress(self) -> bool:
        """Return whether the status is not final, or cannot be read."""
        return "status" not in self or self.status in IN_PROGRESS

    def _new_row(self) -> dict[str, Any]:
        if not self.obj_attr_is_set("created_at"):
            self.created_at = field_types.now()
        return super()._new_row()

    def _add(self, instances: Rows, migrations: Rows) -> None:
        row = self._new_row()
        if self.is_in_progress:
            self._lock_instance_at_source(instances)
            # The database itself refuses the same uuid.
            others = {"instance_uuid": self.instance_uuid, "uuid": NotIn([self.uuid])}
            if migrations.select({**others, "status": NotIn(OVER)}):
                raise ObjectExists(
                    kind=self.obj_name(), key=self.uuid, unique="instance in progress"
                )
        migrations.insert([row])

    def _lock_instance_at_source(self, instances: Rows) -> None:
        place = {"host": self.source_compute, "node": self.source_node}
        held = instances.hold(Instance.KEY, [self.instance_uuid], {}, list(place))
        for uuid, row in held.items():
            if not place.items() <= row.items():
                raise ConcurrentSave(kind=Instance.obj_name(), keys=[uuid])

    def _change(self) -> Any:
        self.updated_at = field_types.now()
        return super()._change()


@register
class MigrationList(KeptList[Migration]):
    """Moves of instances.

    - ``objects``: the moves.
    """

    HISTORY = (Step("1.0", "Migration 1.0"), Step("1.1", "Migration 1.1"))
    KIND = Migration
    objects: list[Migration]
    fields = {"objects": field_base.ListOfObjectsField("Migration")}
    child_versions: ClassVar[dict[str, str]] = {"1.0": "1.0", "1.1": "1.1"}

    @classmethod
    @base.remotable
    def get_in_progress_by_host(cls, context: Context, host: str) -> Self:
        """Return the moves in progress from or to a service host."""
        rows = context.db.read(
            [Migration.TABLE], lambda migrations: rows_in_progress(migrations, host)
        )
        return cls._of(context, [Migration._from_row(context, row) for row in rows])


def rows_in_progress(migrations: Rows, host: str) -> list[dict[str, Any]]:
    """Return the rows of moves in progress from or to a service host, oldest first."""
    found = {
        row["id"]: row
        for end in _ENDS
        for row in migrations.select({end: host, "status": NotIn(OVER)})
    }
    return [found[number] for number in sorted(found)]
