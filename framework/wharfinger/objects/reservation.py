"""Full reservations of providers that outlive the process which made them."""

from datetime import datetime
from typing import Any, ClassVar

from wharfinger.objects import kinds
from wharfinger.objects.base import fields, register
from wharfinger.objects.kept import KeptList, KeptObject


@register
class Reservation(KeptObject):
    """That somebody holds all of a provider, so that nothing more is placed on it.

    Several may hold one provider, each once: it is free when none is left. What drivers report is
    not kept here: that lives as long as they report it.

    - ``uuid``: its own.
    - ``provider_uuid``: the resource provider.
    - ``reason``: what it is held for: cleaning, maintenance, programming, operator, ...
    - ``holder``: who holds it, and releases it.
    - ``since``: from when on, in UTC.
    - ``expected_end``: when that will be over, in UTC; nothing ends by itself then. None where
      nobody knows.
    - ``revision``: how often it was saved.
    """

    TABLE = "reservations"
    UNIQUE = "provider and holder"
    uuid: str
    provider_uuid: str
    reason: str
    holder: str
    since: datetime
    expected_end: datetime | None
    fields = {
        "uuid": kinds.uuid(),
        "provider_uuid": kinds.uuid(),
        "reason": kinds.name(),
        "holder": kinds.name(),
        "since": kinds.moment(),
        "expected_end": kinds.moment(nullable=True),
    }

    def _new_row(self) -> dict[str, Any]:
        if not self.obj_attr_is_set("since"):
            self.since = kinds.now()
        return super()._new_row()


@register
class ReservationList(KeptList[Reservation]):
    """Reservations.

    - ``objects``: each of them.
    """

    KIND = Reservation
    objects: list[Reservation]
    fields = {"objects": fields.ListOfObjectsField("Reservation")}
    child_versions: ClassVar[dict[str, str]] = {"1.0": "1.0"}  # type: ignore[misc]
