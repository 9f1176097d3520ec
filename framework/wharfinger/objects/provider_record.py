"""Provider records: what a driver instance stores about a resource provider."""

from collections.abc import Iterable
from typing import Any, ClassVar, Self

from wharfinger.db.row_statements import NotIn
from wharfinger.db.tables import INSTANCE, NAME
from wharfinger.objects import base, field_base, field_types
from wharfinger.objects.base import Step, register
from wharfinger.objects.database_context import Context
from wharfinger.objects.persistence import RowList, RowObject


@register
class ProviderRecord(RowObject):
    """Record that a driver instance on a host keeps of one resource provider.

    ``applied``, ``intended`` and ``live`` are JSON texts of a ``wharfinger.providers.Provider``.

    - ``host``, ``driver_instance``: the service host and the driver instance.
    - ``provider_uuid``: the resource provider.
    - ``mode``: ``own`` if the driver instance creates the provider, ``overlay`` if another program
      does.
    - ``applied``: the data that the driver instance has written; None without any.
    - ``intended``: the data that a plan in progress writes; None without one.
    - ``live``: the last known state of the provider in Placement; None if unknown.
    - ``own_reserved``: the ``reserved`` amounts to restore when the last reservation ends, by
      resource class.
    - ``reservations``: the reasons for which the driver instance reserves the provider.
    - ``reserved_since``: the starts of these reservations by reason, in seconds since the epoch.
    - ``absent_since``: since when the backend or Placement lacks the provider, in seconds since
      the epoch, or None.
    - ``absence``: that moment also in uptime of the host: JSON text of a
      ``wharfinger.providers.provider.Absence``, or None.
    - ``undone``: the values that another program has undone: JSON text of a map from names to
      ``wharfinger.providers.fights.Undone``. None without one.
    - ``revision``: the number of writes; unset for a new record.
    """

    HISTORY = (
        Step("1.0", "first version"),
        Step("1.1", "since when it is reserved", ("reserved_since",)),
        Step("1.2", "its absence is counted in uptime", ("absence",)),
        Step("1.3", "how often it was written", ("revision",)),
        Step("1.4", "the values that another program has undone", ("undone",)),
    )
    TABLE = "provider_records"
    KEY = "provider_uuid"
    host: str
    driver_instance: str
    provider_uuid: str
    mode: str
    applied: str | None
    intended: str | None
    live: str | None
    own_reserved: dict[str, int]
    reservations: list[str]
    reserved_since: dict[str, float]
    absent_since: float | None
    absence: str | None
    undone: str | None
    revision: int
    fields = {
        "host": field_types.name(),
        "driver_instance": field_types.text(INSTANCE),
        "provider_uuid": field_types.uuid(),
        "mode": field_types.one_of("own", "overlay"),
        "applied": field_types.text(nullable=True),
        "intended": field_types.text(nullable=True),
        "live": field_types.text(nullable=True),
        "own_reserved": field_types.counts_by_name(default={}),
        "reservations": field_types.texts(default=[]),
        "reserved_since": field_types.ratios_by_name(default={}),
        "absent_since": field_types.ratio(nullable=True),
        "absence": field_types.text(NAME, nullable=True),
        "undone": field_types.text(nullable=True),
        "revision": field_types.count(),
    }

    @property
    def is_new(self) -> bool:
        """Return whether the record has no revision."""
        return "revision" not in self

    @property
    def has_changes(self) -> bool:
        """Return whether a field other than the revision has changed."""
        return bool(self.obj_what_changed() - {"revision"})

    def row(self) -> dict[str, Any]:
        """Return values to write, by column. Raises FieldUnset."""
        if not self.is_new:
            return self._row(self.obj_what_changed() - {"revision"})
        self.obj_set_defaults()
        return self._row(self.fields.keys() - {"revision", "host", "driver_instance"})

    def note_written(self, host: str, driver_instance: str, has_revision: bool) -> None:
        """Update this object after its row was written."""
        if has_revision:
            self.revision = 1 if self.is_new else self.revision + 1
        self.host, self.driver_instance = host, driver_instance
        self.obj_reset_changes()


@register
class ProviderRecordList(RowList[ProviderRecord]):
    """Provider records.

    - ``objects``: the records.
    """

    HISTORY = (
        Step("1.0", "ProviderRecord 1.0"),
        Step("1.1", "ProviderRecord 1.1, get_reserved"),
        Step("1.2", "ProviderRecord 1.2"),
        Step("1.3", "ProviderRecord 1.3"),
        Step("1.4", "ProviderRecord 1.4, get_undone"),
    )
    KIND = ProviderRecord
    objects: list[ProviderRecord]
    fields = {"objects": field_base.ListOfObjectsField("ProviderRecord")}
    child_versions: ClassVar[dict[str, str]] = {
        "1.0": "1.0",
        "1.1": "1.1",
        "1.2": "1.2",
        "1.3": "1.3",
        "1.4": "1.4",
    }

    @classmethod
    @base.remotable
    def get_reserved(cls, context: Context) -> Self:
        """Return the records of providers that a driver reserves, of all driver instances."""
        return cls._select(context, reservations=NotIn(["[]"]))

    @classmethod
    @base.remotable
    def get_undone(cls, context: Context) -> Self:
        """Return all records with values that other programs have undone."""
        return cls._select(context, undone=NotIn([""]))

    @classmethod
    @base.remotable
    def replace(
        cls,
        context: Context,
        host: str,
        driver_instance: str,
        records: "ProviderRecordList",
        forgotten: Iterable[str],
    ) -> None:
        """Write and delete provider records. Only older releases call this."""
        rows = {one.key: one._row(one.obj_what_changed() - {"revision"}) for one in records}
        scope = {"host": host, "driver_instance": driver_instance}
        context.db.replace(
            ProviderRecord.TABLE,
            {name: ProviderRecord._wanted(name, value) for name, value in scope.items()},
            ProviderRecord.KEY,
            {**dict.fromkeys(ProviderRecord._wanted(ProviderRecord.KEY, forgotten)), **rows},
        )
