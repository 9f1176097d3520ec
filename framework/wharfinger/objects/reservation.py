"""Full reservations of providers that outlive the process which made them."""

from datetime import datetime
from typing import Any, ClassVar, Final

from wharfinger.objects import field_base, field_types
from wharfinger.objects.base import Step, register
from wharfinger.objects.persistence import KeptList, KeptObject

#: The allocation may still be there; it is not, and no cleaning has been seen yet; it has been.
RELEASE_PHASES: Final = ("releasing", "released", "cleaning")


@register
class Reservation(KeptObject):
    """Stored reservation of a whole provider: nothing more is placed on it.

    Several holders may reserve one provider, each once: it is free when no reservation is left. A
    reservation that a driver reports is not stored: it lasts as long as the driver reports it.

    - ``uuid``: its own.
    - ``provider_uuid``: the resource provider.
    - ``reason``: what it is held for: cleaning, maintenance, programming, operator, ...
    - ``holder``: who holds it, and releases it.
    - ``since``: from when on, in UTC.
    - ``expected_end``: when that will be over, in UTC; nothing ends by itself then. None where
      that is not known.
    - ``own_reserved``: by resource class, the ``reserved`` amounts from before it, to be restored
      when the last one ends.
    - ``consumer_uuid``: the consumer whose release or lost allocation is the reason; None for other
      reservations.
    - ``phase``: how far that is, one of RELEASE_PHASES; None for others.
    - ``revision``: how often it was saved.
    """

    HISTORY = (
        Step("1.0", "first version"),
        Step(
            "1.1",
            "the figures to restore, and the release of consumers",
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

    - ``objects``: each of them.
    """

    HISTORY = (Step("1.0", "Reservation 1.0"), Step("1.1", "Reservation 1.1"))
    KIND = Reservation
    objects: list[Reservation]
    fields = {"objects": field_base.ListOfObjectsField("Reservation")}
    child_versions: ClassVar[dict[str, str]] = {
        "1.0": "1.0",
        "1.1": "1.1",
    }
