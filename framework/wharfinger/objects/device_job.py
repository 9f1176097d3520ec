"""The programming of devices: who loads what into which, and how far that has got."""

from datetime import datetime
from typing import Any, ClassVar, Final

from wharfinger.db.tables import INSTANCE
from wharfinger.objects import kinds
from wharfinger.objects.base import fields, register
from wharfinger.objects.kept import KeptList, KeptObject

#: Nothing has been begun, the device may be at work, or it may have been: it stays reserved.
UNFINISHED: Final = ("reserving", "waiting", "programming", "unknown")
#: Of those, the ones in which the device is as it was before.
UNTOUCHED: Final = ("reserving", "waiting")
#: What a job comes to. ``programmed``: the device holds the image. ``failed``: it holds what it
#: held before.
FINISHED: Final = ("programmed", "failed")


@register
class DeviceJob(KeptObject):
    """The last programming of a device: each device has one at most.

    While it is unfinished the device is reserved, and no other job for it begins. One that has
    finished is kept: it says what the device holds, where nobody else does.

    - ``provider_uuid``: the device's resource provider.
    - ``provider_name``: its name when the job began.
    - ``siblings``: the uuids of the other providers that are programmed with it, being parts of the
      same device.
    - ``driver_instance``: the driver instance that publishes it, and programs it.
    - ``host``, ``process_id``: whose work it is: the service host of the process, and its number
      there.
    - ``image``: the uuid of the image that is loaded.
    - ``function``: the function that the image has, as it was given; None where it was not.
    - ``state``: one of UNFINISHED or FINISHED.
    - ``trait``: the trait that says which function the device holds once it is programmed; None
      for none.
    - ``former_trait``: the one that said so before; None where there was none.
    - ``problem``: what went wrong, for people; None where nothing did.
    - ``started_at``: when the job began, in UTC.
    - ``seen_at``: when its process was last at work on it, in UTC.
    - ``revision``: how often it was saved.
    """

    TABLE = "device_jobs"
    KEY = "provider_uuid"
    UNIQUE = "provider"
    provider_uuid: str
    provider_name: str
    siblings: list[str]
    driver_instance: str
    host: str
    process_id: int
    image: str
    function: str | None
    state: str
    trait: str | None
    former_trait: str | None
    problem: str | None
    started_at: datetime
    seen_at: datetime
    fields = {
        "provider_uuid": kinds.uuid(),
        "provider_name": kinds.name(),
        "siblings": kinds.texts(default=[]),
        "driver_instance": kinds.text(INSTANCE),
        "host": kinds.name(),
        "process_id": kinds.count(),
        "image": kinds.uuid(),
        "function": kinds.name(nullable=True),
        "state": kinds.one_of(*UNFINISHED, *FINISHED, default="reserving"),
        "trait": kinds.name(nullable=True),
        "former_trait": kinds.name(nullable=True),
        "problem": kinds.text(nullable=True),
        "started_at": kinds.moment(),
        "seen_at": kinds.moment(),
    }

    @property
    def scope(self) -> tuple[str, ...]:
        """The uuids of all providers that it is about."""
        return (self.provider_uuid, *self.siblings)

    @property
    def is_unfinished(self) -> bool:
        """Whether it is under way, or somebody has to decide what became of it."""
        return self.state in UNFINISHED

    @property
    def held_trait(self) -> str | None:
        """The trait that says which function the device holds, as far as is known from this."""
        if self.state == "programmed":
            return self.trait
        return None if self.state in ("programming", "unknown") else self.former_trait

    def _new_row(self) -> dict[str, Any]:
        now = kinds.now()
        for name in ("started_at", "seen_at"):
            if not self.obj_attr_is_set(name):
                setattr(self, name, now)
        return super()._new_row()


@register
class DeviceJobList(KeptList[DeviceJob]):
    """Device jobs.

    - ``objects``: each of them.
    """

    KIND = DeviceJob
    objects: list[DeviceJob]
    fields = {"objects": fields.ListOfObjectsField("DeviceJob")}
    child_versions: ClassVar[dict[str, str]] = {"1.0": "1.0"}  # type: ignore[misc]
