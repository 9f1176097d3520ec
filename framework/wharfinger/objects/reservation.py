"""Reservations of resource providers that are stored in the database."""

from datetime import datetime
from typing import Any, ClassVar, Final

from wharfinger.objects import field_base, field_types
from wharfinger.objects.base import Step, register
from wharfinger.objects.persistence import KeptList, KeptObject

#: ``releasing``: the allocation may still exist. ``released``: it is deleted. ``cleaning``: the
#: backend has started cleaning.
RELEASE_PHASES: Final = ("releasing", "released", "cleaning")


@register
class Reservation(KeptObject):
    """Stored reservation of a whole provider, which then gets no more allocations.

    Several holders may reserve one provider, each once.

    - ``uuid``: the uuid of the reservation.
    - ``provider_uuid``: the resource provider.
    - ``reason``: the purpose: cleaning, maintenance, programming, operator, ...
    - ``holder``: the person, program or operation that reserves the provider.
    - ``since``: the start, in UTC.
    - ``expected_end``: the expected end, in UTC; None if unknown. The reservation does not end by
      itself.
    - ``own_reserved``: the ``reserved`` amounts to restore when the last reservation ends, by
      resource class.
    - ``consumer_uuid``: the consumer whose release or lost allocation is the reason; None for other
      reasons.
    - ``phase``: one of RELEASE_PHASES; None without a release.
    - ``revision``: see KeptObject.
    """

    HISTORY = (
        Step("1.0", "first version"),
        Step(
            "1.1",
            "the amounts to restore, and the release of consumers",
            ("own_reserved", "consumer_uuid", "phase"),
        ),
    )
    TABLE = "reservations"
    UNIQUE = "provider and holder"
    uuid: str
    provider_uuid: str
    reason: str
    holder: str
    since: datetime
    expected_end: datetime | None
    own_reserved: dict[str, int]
    consumer_uuid: str | None
    phase: str | None
    fields = {
        "uuid": field_types.uuid(),
        "provider_uuid": field_types.uuid(),
        "reason": field_types.name(),
        "holder": field_types.name(),
        "since": field_types.moment(),
        "expected_end": field_types.moment(nullable=True),
        "own_reserved": field_types.counts_by_name(default={}),
        "consumer_uuid": field_types.uuid(nullable=True),
        "phase": field_types.one_of(*RELEASE_PHASES, nullable=True),
    }

    def _new_row(self) -> dict[str, Any]:
        if not self.obj_attr_is_set("since"):
            self.since = field_types.now()
        return super()._new_row()


@register
class ReservationList(KeptList[Reservation]):
    """Reservations.

    - ``objects``: the reservations.
    """

    HISTORY = (Step("1.0", "Reservation 1.0"), Step("1.1", "Reservation 1.1"))
    KIND = Reservation
    objects: list[Reservation]
    fields = {"objects": field_base.ListOfObjectsField("Reservation")}
    child_versions: ClassVar[dict[str, str]] = {"1.0": "1.0", "1.1": "1.1"}
