"""The programming of devices: who loads what into which, and how far that has got."""

from datetime import datetime
from typing import Any, ClassVar, Final

from wharfinger.db.tables import INSTANCE
from wharfinger.objects import field_base, field_types
from wharfinger.objects.base import register
from wharfinger.objects.persistence import KeptList, KeptObject

#: Who holds the reservation of a device while a job is about it: one job at a time.
HOLDER: Final = "programming"
#: Nothing has been begun, the device may be at work, or it may have been: it stays reserved.
UNFINISHED: Final = ("reserving", "waiting", "programming", "unknown")
#: What a job comes to. ``programmed``: the device holds the image. ``failed``: it holds what it
#: held before.
FINISHED: Final = ("programmed", "failed")


@register
class DeviceJob(KeptObject):
    """The last programming of a device: each device has one at most.

    While it is unfinished the device is reserved, and no other job for it begins. It is kept when
    it has finished: it says what the device was programmed with last, which nobody else may know.

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
    - ``trait``: the trait that says which function the image has; None where that is not known.
    - ``held_since``: when a job was last found to have programmed the device, this one or one
      before, in UTC; None where none was.
    - ``held_trait``: the trait of what it held then; None where that was not known.
    - ``stale_traits``: the traits of functions that were said of it before that: who goes on saying
      so does not know better.
    - ``former_traits``: those that its providers had when this job began.
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
    held_since: datetime | None
    held_trait: str | None
    stale_traits: list[str]
    former_traits: list[str]
    problem: str | None
    started_at: datetime
    seen_at: datetime
    fields = {
        "provider_uuid": field_types.uuid(),
        "provider_name": field_types.name(),
        "siblings": field_types.texts(default=[]),
        "driver_instance": field_types.text(INSTANCE),
        "host": field_types.name(),
        "process_id": field_types.count(),
        "image": field_types.uuid(),
        "function": field_types.name(nullable=True),
        "state": field_types.one_of(*UNFINISHED, *FINISHED, default="reserving"),
        "trait": field_types.name(nullable=True),
        "held_since": field_types.moment(nullable=True),
        "held_trait": field_types.name(nullable=True),
        "stale_traits": field_types.texts(default=[]),
        "former_traits": field_types.texts(default=[]),
        "problem": field_types.text(nullable=True),
        "started_at": field_types.moment(),
        "seen_at": field_types.moment(),
    }

    @property
    def scope(self) -> tuple[str, ...]:
        """The uuids of all providers that it is about."""
        return (self.provider_uuid, *self.siblings)

    @property
    def is_whole(self) -> bool:
        """Whether all that is stored of it can be read."""
        return all(name in self for name in self.fields)

    @property
    def is_unfinished(self) -> bool:
        """Whether it is under way, or somebody has to decide what became of it."""
        return self.state in UNFINISHED

    def note_held(self, trait: str | None) -> None:
        """Note that the device holds the image, and no more what was said of it until then."""
        self.state = "programmed"
        self.trait = self.held_trait = trait
        self.held_since = field_types.now()
        self.stale_traits = sorted({*self.stale_traits, *self.former_traits} - {trait})

    def _new_row(self) -> dict[str, Any]:
        now = field_types.now()
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
    fields = {"objects": field_base.ListOfObjectsField("DeviceJob")}
    child_versions: ClassVar[dict[str, str]] = {"1.0": "1.0"}
