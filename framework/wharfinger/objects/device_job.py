"""Jobs that program devices: each loads an image into one device."""

from datetime import datetime
from typing import Any, ClassVar, Final

from wharfinger.db.tables import INSTANCE
from wharfinger.objects import field_base, field_types
from wharfinger.objects.base import register
from wharfinger.objects.persistence import KeptList, KeptObject

#: The holder of a device's reservation during a job.
HOLDER: Final = "programming"
#: States of a job in progress, or whose outcome is unknown.
UNFINISHED: Final = ("reserving", "waiting", "programming", "unknown")
#: ``programmed``: the device has the image. ``failed``: the device is unchanged.
FINISHED: Final = ("programmed", "failed")


@register
class DeviceJob(KeptObject):
    """The last programming job of a provider, whose device is reserved until the job is finished.

    - ``provider_uuid``: a resource provider of the device.
    - ``provider_name``: the provider's name when the job started.
    - ``siblings``: the uuids of the device's other providers.
    - ``driver_instance``: the driver instance that programs the device.
    - ``host``, ``process_id``: the service host and the id of the job's process.
    - ``image``: the uuid of the image.
    - ``function``: the requested function of the image, None without one.
    - ``state``: a value of UNFINISHED or of FINISHED.
    - ``trait``: the trait of the image's function; None if unknown.
    - ``held_since``: when a job of the provider last programmed the device; None if none did.
    - ``held_trait``: the function trait since ``held_since``; None if unknown or outdated.
    - ``stale_traits``: traits of earlier functions, which late reports may still have.
    - ``former_traits``: the device's function traits when this job started.
    - ``problem``: the error, None without one.
    - ``started_at``: when the job started, in UTC.
    - ``seen_at``: when its process last reported, in UTC.
    - ``revision``: see KeptObject.
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
        """Return the uuids of all providers of the device, as far as they are known."""
        return (self.provider_uuid, *(self.known("siblings") or ()))

    @property
    def is_whole(self) -> bool:
        """Return whether all fields of the job are set."""
        return all(name in self for name in self.fields)

    @property
    def is_unfinished(self) -> bool:
        """Return whether the job is in progress, or its outcome is unknown."""
        return self.state in UNFINISHED

    def note_held(self, trait: str | None) -> None:
        """Note, without saving the job, that the device has the image now."""
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

    - ``objects``: the jobs.
    """

    KIND = DeviceJob
    objects: list[DeviceJob]
    fields = {"objects": field_base.ListOfObjectsField("DeviceJob")}
    child_versions: ClassVar[dict[str, str]] = {"1.0": "1.0"}
