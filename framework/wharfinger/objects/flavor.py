"""Flavors: the kinds of instances that can be asked for."""

from typing import Any, ClassVar, Self

from wharfinger.objects import base, field_base, field_types
from wharfinger.objects.base import register
from wharfinger.objects.database_context import Context
from wharfinger.objects.persistence import KeptList, KeptObject


@register
class Flavor(KeptObject):
    """What an instance of a kind takes.

    - ``flavorid``: its identifier, which people may choose.
    - ``name``: its name.
    - ``vcpus``: CPUs; ``memory_mb``: MiB of memory.
    - ``root_gb``, ``ephemeral_gb``: GiB of disk; ``swap``: MiB of swap.
    - ``rxtx_factor``: its share of a network's bandwidth, as nova has it.
    - ``disabled``: nothing new is made of it.
    - ``is_public``: whether every project sees it.
    - ``description``: for people, None where there is none.
    - ``extra_specs``: further requests by key, ``resources:VGPU``, ``trait:CUSTOM_FAST``.
    - ``revision``: how often it was saved.
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
        """The flavor of an id; raises ObjectNotFound."""
        return cls._get(context, flavorid=flavorid)

    @classmethod
    @base.remotable
    def get_by_name(cls, context: Context, name: str) -> Self:
        """The flavor of a name; raises ObjectNotFound."""
        return cls._get(context, name=name)

    def is_as(self, other: Self) -> bool:
        """Whether two say the same, however often either was saved."""
        return self._said() == other._said()

    def _said(self) -> dict[str, Any]:
        return {
            name: getattr(self, name) for name in self.fields if name in self and name != "revision"
        }


@register
class FlavorList(KeptList[Flavor]):
    """Flavors.

    - ``objects``: each of them.
    """

    KIND = Flavor
    objects: list[Flavor]
    fields = {"objects": field_base.ListOfObjectsField("Flavor")}
    child_versions: ClassVar[dict[str, str]] = {"1.0": "1.0"}
