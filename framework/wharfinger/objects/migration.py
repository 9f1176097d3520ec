"""Moves of instances from one node to another."""

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, ClassVar, Final, Self

from wharfinger.db.rows import NotIn
from wharfinger.objects import kinds
from wharfinger.objects.base import Step, base, fields, register
from wharfinger.objects.context import Context
from wharfinger.objects.flavor import Flavor
from wharfinger.objects.kept import KeptList, KeptObject

#: nova's kinds of moves.
MIGRATION_TYPES: Final = ("resize", "migration", "live-migration", "evacuation")

#: nova's statuses, and where each leads: none, it is over. What cannot be reverted is finished
#: again, which is not nova's. A resize or cold migration goes from
#: accepted by way of migrating to finished, and waits there to be confirmed or reverted; a live
#: migration from queued by way of running to completed; an evacuation from accepted to done.
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
#: Those in which a move still counts at both ends.
IN_PROGRESS: Final = tuple(status for status, after in MIGRATION_STATUSES.items() if after)
_ENDS: Final = ("source_compute", "dest_compute")
_OVER: Final = tuple(MIGRATION_STATUSES.keys() - set(IN_PROGRESS))


class _Status(fields.StateMachine):
    """A status, which changes only to one that it leads to."""

    ALLOWED_TRANSITIONS = {status: set(after) for status, after in MIGRATION_STATUSES.items()}

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(tuple(MIGRATION_STATUSES), **kwargs)

    def coerce(self, obj: Any, attr: str, value: Any) -> str:
        """As in StateMachine; the status that it has is no change."""
        wanted = self.default if value is None else value
        if obj is not None and obj.obj_attr_is_set(attr) and getattr(obj, attr) == wanted:
            return str(wanted)
        try:
            return super().coerce(obj, attr, wanted)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{attr}: {error}") from error


@register
class Migration(KeptObject):
    """A move: while it is in progress its source still counts.

    - ``uuid``: also the consumer that holds the source's allocation.
    - ``instance_uuid``: the instance that moves.
    - ``migration_type``: one of MIGRATION_TYPES.
    - ``status``: one of MIGRATION_STATUSES, and from each only to those that it leads to
      (ValueError).
    - ``source_compute``, ``source_node``: the service host and the ``hypervisor_hostname`` that
      it comes from.
    - ``dest_compute``, ``dest_node``: where it goes, None while that is not known.
    - ``old_flavor``, ``new_flavor``: what it takes at the source, and at the destination.
    - ``created_at``, ``updated_at``: when it began, and was last saved, in UTC; None before.
    - ``revision``: how often it was saved.
    """

    HISTORY = (
        Step("1.0", "first version"),
        Step("1.1", "a move that cannot be reverted is finished again"),
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
        "uuid": kinds.uuid(),
        "instance_uuid": kinds.uuid(),
        "migration_type": kinds.one_of(*MIGRATION_TYPES),
        "status": _Status(default="accepted"),
        "source_compute": kinds.name(),
        "source_node": kinds.name(),
        "dest_compute": kinds.name(nullable=True),
        "dest_node": kinds.name(nullable=True),
        "old_flavor": fields.ObjectField("Flavor"),
        "new_flavor": fields.ObjectField("Flavor"),
        "created_at": kinds.moment(),
        "updated_at": kinds.moment(nullable=True),
    }
    obj_relationships: ClassVar[dict[str, list[tuple[str, str]]]] = {  # type: ignore[misc]
        "old_flavor": [("1.0", "1.0")],
        "new_flavor": [("1.0", "1.0")],
    }

    @classmethod
    @base.remotable
    def get_by_uuid(cls, context: Context, uuid: str) -> Self:
        """The migration of a uuid; raises ObjectNotFound."""
        return cls._get(context, uuid=uuid)

    @property
    def is_in_progress(self) -> bool:
        """Whether it still counts at both ends: what is not known to be over does."""
        return "status" not in self or self.status in IN_PROGRESS

    def _new_row(self) -> dict[str, Any]:
        if not self.obj_attr_is_set("created_at"):
            self.created_at = kinds.now()
        return super()._new_row()

    def _change(self) -> Any:
        self.updated_at = kinds.now()
        return super()._change()


@register
class MigrationList(KeptList[Migration]):
    """Migrations.

    - ``objects``: each of them.
    """

    HISTORY = (Step("1.0", "Migration 1.0"), Step("1.1", "Migration 1.1"))
    KIND = Migration
    objects: list[Migration]
    fields = {"objects": fields.ListOfObjectsField("Migration")}
    child_versions: ClassVar[dict[str, str]] = {  # type: ignore[misc]
        "1.0": "1.0",
        "1.1": "1.1",
    }

    @classmethod
    @base.remotable
    def get_in_progress_by_host(cls, context: Context, host: str) -> Self:
        """Those in progress that come from a service host, or go to it."""
        # A status that is not known here, of a later version perhaps, is not known to be over.
        under_way = cls._select(context, status=NotIn(_OVER))
        return cls._of(
            context,
            [
                one
                for one in under_way
                if any(end in one and getattr(one, end) == host for end in _ENDS)
            ],
        )
