"""Services: the processes that publish providers, with their versions."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import ClassVar, Final, Self

from wharfinger.db.row_statements import Rows
from wharfinger.exceptions import FieldUnset, ObjectNotFound
from wharfinger.objects import base, field_base, field_types
from wharfinger.objects.base import register
from wharfinger.objects.database_context import Context
from wharfinger.objects.persistence import KeptList, KeptObject

#: The changes in service versions, on which other services rely.
SERVICE_VERSIONS: Final[Mapping[int, str]] = MappingProxyType(
    {1: "first version", 2: "all providers that it publishes have an owner trait"}
)
#: The first version whose providers all have an owner trait.
OWNER_TAG_VERSION: Final = 2
AGENT_BINARY: Final = "wharfinger"
#: The service version of this release.
SERVICE_VERSION: Final = max(SERVICE_VERSIONS)


@register
class Service(KeptObject):
    """A process that publishes for driver instances on a host.

    - ``uuid``: the uuid of the service.
    - ``host``: the host's name, as configured.
    - ``binary``: the program's name.
    - ``topic``: the topic of messages for the service, as in nova.
    - ``version``: one of SERVICE_VERSIONS, below OWNER_TAG_VERSION until all providers of the
      service have an owner trait.
    - ``disabled``: whether an operator has disabled the service.
    - ``disabled_reason``: why it is disabled, None without a reason.
    - ``forced_down``: whether an operator has declared the service down.
    - ``report_count``: how often the service has reported that it is up.
    - ``last_seen_up``: when the service last reported, in UTC; None if never.
    - ``owners``: the owner traits of the published providers, sorted.
    - ``revision``: see KeptObject; a report does not change it.
    """

    TABLE = "services"
    UNIQUE = "host and binary"
    uuid: str
    host: str
    binary: str
    topic: str
    version: int
    disabled: bool
    disabled_reason: str | None
    forced_down: bool
    report_count: int
    last_seen_up: datetime | None
    owners: list[str]
    fields = {
        "uuid": field_types.uuid(),
        "host": field_types.name(),
        "binary": field_types.name(),
        "topic": field_types.name(default="wharfinger"),
        "version": field_types.count(default=1),
        "disabled": field_types.flag(default=False),
        "disabled_reason": field_types.text(255, nullable=True),
        "forced_down": field_types.flag(default=False),
        "report_count": field_types.count(default=0),
        "last_seen_up": field_types.moment(nullable=True),
        "owners": field_types.texts(default=[]),
    }

    @classmethod
    @base.remotable
    def get_by_uuid(cls, context: Context, uuid: str) -> Self:
        """Return the service with this uuid; raises ObjectNotFound."""
        return cls._get(context, uuid=uuid)

    @classmethod
    @base.remotable
    def get_by_host_and_binary(cls, context: Context, host: str, binary: str) -> Self:
        """Return the service of a program on a host; raises ObjectNotFound."""
        return cls._get(context, host=host, binary=binary)

    @classmethod
    @base.remotable
    def get_minimum_version(cls, context: Context, binary: str) -> int:
        """Return the lowest version of a program's services, 0 without services.

        Raises FieldUnset.
        """
        return cls.get_minimum_version_multi(context, [binary])[binary]

    @classmethod
    @base.remotable
    def get_minimum_version_multi(cls, context: Context, binaries: Iterable[str]) -> dict[str, int]:
        """Return, by program, the lowest version of the services, 0 without services.

        Raises FieldUnset.
        """
        versions: dict[str, list[int]] = {binary: [] for binary in binaries}
        for service in ServiceList.get_by_filters(context, binary=list(versions)):
            versions[service.binary].append(service.version)
        return {binary: min(found, default=0) for binary, found in versions.items()}

    @classmethod
    @base.remotable
    def get_minimum_version_by_owner(cls, context: Context) -> dict[str, int]:
        """Return, by owner trait, the lowest version of the services that publish for the owner.

        Raises FieldUnset.
        """
        versions: dict[str, int] = {}
        for service in ServiceList.get_by_filters(context):
            for owner in service.owners:
                versions[owner] = min(service.version, versions.get(owner, service.version))
        return versions

    @base.remotable
    def report(self) -> None:
        """Store that the service is up now; raises ObjectNotFound."""
        moment = field_types.now()
        values = {"last_seen_up": self._wanted("last_seen_up", moment)}
        if not self._context.db.touch(self.TABLE, values, count=["report_count"], uuid=self.uuid):
            raise ObjectNotFound(kind=self.obj_name(), key=self.uuid)
        self.report_count += 1
        self.last_seen_up = moment
        self.obj_reset_changes(["report_count", "last_seen_up"])

    @classmethod
    def report_in(cls, services: Rows, host: str, binary: str) -> None:
        """Store, in the transaction of these rows, that a service is up now."""
        values = {"last_seen_up": cls._wanted("last_seen_up", field_types.now())}
        services.touch(values, ["report_count"], {"host": host, "binary": binary})

    def is_up(self, within: timedelta) -> bool:
        """Return whether the service has reported within this time, and is not forced down."""
        return (
            not self.forced_down
            and self.last_seen_up is not None
            and field_types.now() - self.last_seen_up <= within
        )

    def may_be_up(self, within: timedelta) -> bool:
        """Return whether the service is up; True if that is unknown."""
        try:
            return self.is_up(within)
        except FieldUnset:
            return True


@register
class ServiceList(KeptList[Service]):
    """Services.

    - ``objects``: the services.
    """

    KIND = Service
    objects: list[Service]
    fields = {"objects": field_base.ListOfObjectsField("Service")}
    child_versions: ClassVar[dict[str, str]] = {"1.0": "1.0"}
