"""Flavors: the resources that a new instance requests."""

from typing import Any, ClassVar, Self

from wharfinger.objects import base, field_base, field_types
from wharfinger.objects.base import register
from wharfinger.objects.database_context import Context
from wharfinger.objects.persistence import KeptList, KeptObject


@register
class Flavor(KeptObject):
    """The resources and properties that a user requests for an instance.

    - ``flavorid``: the id, which the operator may choose.
    - ``name``: the flavor's name.
    - ``vcpus``: CPUs; ``memory_mb``: MiB of memory.
    - ``root_gb``, ``ephemeral_gb``: GiB of disk; ``swap``: MiB of swap.
    - ``rxtx_factor``: the factor of the network bandwidth, as in nova.
    - ``disabled``: whether new instances cannot use the flavor.
    - ``is_public``: whether all projects may use the flavor.
    - ``description``: a text for users, None without one.
    - ``extra_specs``: further requests by key, such as ``resources:VGPU``.
    - ``revision``: see KeptObject.
    """

    TABLE = "flavors"
    KEY = "flavorid"
    UNIQUE = "id or name"
    flavorid: str
    name: str
    vcpus: int
    memory_mb: int
    root_gb: int
    ephemeral_gb: int
    swap: int
    rxtx_factor: float
    disabled: bool
    is_public: bool
    description: str | None
    extra_specs: dict[str, str]
    fields = {
        "flavorid": field_types.name(),
        "name": field_types.name(),
        "vcpus": field_types.count(),
        "memory_mb": field_types.count(),
        "root_gb": field_types.count(default=0),
        "ephemeral_gb": field_types.count(default=0),
        "swap": field_types.count(default=0),
        "rxtx_factor": field_types.ratio(default=1.0),
        "disabled": field_types.flag(default=False),
        "is_public": field_types.flag(default=True),
        "description": field_types.text(65535, nullable=True),
        "extra_specs": field_types.texts_by_name(default={}),
    }

    @classmethod
    @base.remotable
    def get_by_flavor_id(cls, context: Context, flavorid: str) -> Self:
        """Return the flavor with this ``flavorid``; raises ObjectNotFound."""
        return cls._get(context, flavorid=flavorid)

    @classmethod
    @base.remotable
    def get_by_name(cls, context: Context, name: str) -> Self:
        """Return the flavor with this name; raises ObjectNotFound."""
        return cls._get(context, name=name)

    def is_same_as(self, other: Self) -> bool:
        """Return whether two flavors have the same values, apart from the revision."""
        return self._content() == other._content()

    def _content(self) -> dict[str, Any]:
        return {
            name: getattr(self, name) for name in self.fields if name in self and name != "revision"
        }


@register
class FlavorList(KeptList[Flavor]):
    """Flavors.

    - ``objects``: the flavors.
    """

    KIND = Flavor
    objects: list[Flavor]
    fields = {"objects": field_base.ListOfObjectsField("Flavor")}
    child_versions: ClassVar[dict[str, str]] = {"1.0": "1.0"}
