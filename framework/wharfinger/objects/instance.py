"""Instances: consumers of the resources of a node."""

from datetime import datetime
from typing import Any, ClassVar, Final, Self

from wharfinger.objects import base, field_base, field_types
from wharfinger.objects.base import Step, register
from wharfinger.objects.database_context import Context
from wharfinger.objects.flavor import Flavor
from wharfinger.objects.persistence import KeptList, KeptObject

#: Operations on an instance that can be interrupted between their steps.
TASK_STATES: Final = ("claiming", "releasing")


@register
class Instance(KeptObject):
    """A server, or another consumer of a flavor's resources.

    - ``uuid``: the uuid of the instance and of its consumer in Placement.
    - ``project_id``, ``user_id``: the owning project and user.
    - ``host``, ``node``: the service host and the ``hypervisor_hostname`` of the node; None while
      on no node.
    - ``flavor``: the flavor, as it was at the instance's creation or last resize.
    - ``task_state``: the operation in progress, one of TASK_STATES; None without one.
    - ``updated_at``: when the instance was created or last saved, in UTC; None if unknown.
    - ``claimed_allocations``: the last known allocations: amounts by provider uuid and resource
      class. None if unknown.
    - ``revision``: see KeptObject.
    """

    HISTORY = (
        Step("1.0", "first version"),
        Step("1.1", "the operation in progress", ("task_state", "updated_at")),
        Step("1.2", "the allocations that it claimed", ("claimed_allocations",)),
    )
    TABLE = "instances"
    uuid: str
    project_id: str
    user_id: str
    host: str | None
    node: str | None
    flavor: Flavor
    task_state: str | None
    updated_at: datetime | None
    claimed_allocations: dict[str, dict[str, int]] | None
    fields = {
        "uuid": field_types.uuid(),
        "project_id": field_types.name(),
        "user_id": field_types.name(),
        "host": field_types.name(nullable=True),
        "node": field_types.name(nullable=True),
        "flavor": field_base.ObjectField("Flavor"),
        "task_state": field_types.one_of(*TASK_STATES, nullable=True),
        "updated_at": field_types.moment(nullable=True),
        "claimed_allocations": field_types.amounts_by_provider(nullable=True),
    }
    obj_relationships: ClassVar[dict[str, list[tuple[str, str]]]] = {"flavor": [("1.0", "1.0")]}

    @classmethod
    @base.remotable
    def get_by_uuid(cls, context: Context, uuid: str) -> Self:
        """Return the instance with this uuid; raises ObjectNotFound."""
        return cls._get(context, uuid=uuid)

    def _new_row(self) -> dict[str, Any]:
        self.updated_at = field_types.now()
        return super()._new_row()

    def _change(self) -> Any:
        self.updated_at = field_types.now()
        return super()._change()


@register
class InstanceList(KeptList[Instance]):
    """Instances.

    - ``objects``: the instances.
    """

    HISTORY = (
        Step("1.0", "Instance 1.0"),
        Step("1.1", "get_revisions"),
        Step("1.2", "Instance 1.1"),
        Step("1.3", "Instance 1.2"),
    )
    KIND = Instance
    objects: list[Instance]
    fields = {"objects": field_base.ListOfObjectsField("Instance")}
    child_versions: ClassVar[dict[str, str]] = {
        "1.0": "1.0",
        "1.1": "1.0",
        "1.2": "1.1",
        "1.3": "1.2",
    }

    @classmethod
    @base.remotable
    def get_revisions(cls, context: Context, host: str) -> dict[str, int]:
        """Return the revisions of the instances on a service host, by uuid."""
        return cls._revisions(context, host=host)
