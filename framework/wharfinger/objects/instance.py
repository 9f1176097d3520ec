"""Instances: what takes resources of a node."""

from typing import ClassVar, Self

from wharfinger.objects import kinds
from wharfinger.objects.base import Step, base, fields, register
from wharfinger.objects.context import Context
from wharfinger.objects.flavor import Flavor
from wharfinger.objects.kept import KeptList, KeptObject


@register
class Instance(KeptObject):
    """A server, or whatever else takes what a flavor says.

    - ``uuid``: also the consumer that holds its allocation.
    - ``project_id``, ``user_id``: whose it is.
    - ``host``, ``node``: the service host and the ``hypervisor_hostname`` of the node that it is
      on; None while it is on none.
    - ``flavor``: what it takes, as it was when the instance was made or last resized.
    - ``revision``: how often it was saved.
    """

    TABLE = "instances"
    uuid: str
    project_id: str
    user_id: str
    host: str | None
    node: str | None
    flavor: Flavor
    fields = {
        "uuid": kinds.uuid(),
        "project_id": kinds.name(),
        "user_id": kinds.name(),
        "host": kinds.name(nullable=True),
        "node": kinds.name(nullable=True),
        "flavor": fields.ObjectField("Flavor"),
    }
    obj_relationships: ClassVar[dict[str, list[tuple[str, str]]]] = {  # type: ignore[misc]
        "flavor": [("1.0", "1.0")]
    }

    @classmethod
    @base.remotable
    def get_by_uuid(cls, context: Context, uuid: str) -> Self:
        """The instance of a uuid; raises ObjectNotFound."""
        return cls._get(context, uuid=uuid)


@register
class InstanceList(KeptList[Instance]):
    """Instances.

    - ``objects``: each of them.
    """

    HISTORY = (Step("1.0", "Instance 1.0"), Step("1.1", "get_revisions"))
    KIND = Instance
    objects: list[Instance]
    fields = {"objects": fields.ListOfObjectsField("Instance")}
    child_versions: ClassVar[dict[str, str]] = {  # type: ignore[misc]
        "1.0": "1.0",
        "1.1": "1.0",
    }

    @classmethod
    @base.remotable
    def get_revisions(cls, context: Context, host: str) -> dict[str, int]:
        """The revisions of the instances on a service host, by uuid."""
        return cls._revisions(context, host=host)
