"""Valid versioned objects to create or send. Another ``number`` gives another object."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from wharfinger.objects import (
    ComputeNode,
    ComputeNodeList,
    Context,
    DeviceJob,
    DeviceJobList,
    Flavor,
    FlavorList,
    Instance,
    InstanceList,
    Migration,
    MigrationList,
    PciDevice,
    PciDeviceList,
    ProviderRecord,
    Reservation,
    ReservationList,
    Service,
    ServiceList,
)


def uuid(name: str | int) -> str:
    """Return a uuid made of a name, always the same one."""
    return str(uuid5(NAMESPACE_OID, str(name)))


def node(context: Context | None, number: int = 0, **values: Any) -> ComputeNode:
    chosen = {
        "uuid": uuid(f"node {number}"),
        "host": "host-1",
        "hypervisor_hostname": f"node-{number}",
        "driver_instance": "metal",
        "owner": "OWNER_NOVA",
    }
    return ComputeNode(context, **(chosen | values))


def gpus(count: int = 2, **values: Any) -> PciDeviceList:
    """Return the PCI devices of a node: ``count`` of one type, and one of another type."""
    return PciDeviceList(
        objects=[
            PciDevice(vendor_id="10de", product_id="1eb8", numa_node=0, count=count, **values),
            PciDevice(vendor_id="8086", product_id="0b30", numa_node=None, count=1),
        ]
    )


def service(context: Context | None, number: int = 0, **values: Any) -> Service:
    chosen = {
        "uuid": uuid(f"service {number}"),
        "host": f"host-{number}",
        "binary": "wharfinger-agent",
    }
    return Service(context, **(chosen | values))


def flavor(context: Context | None, number: int = 0, **values: Any) -> Flavor:
    chosen = {"flavorid": f"id-{number}", "name": f"flavor-{number}", "vcpus": 2, "memory_mb": 512}
    return Flavor(context, **(chosen | values))


def instance(context: Context | None, number: int = 0, **values: Any) -> Instance:
    chosen = {
        "uuid": uuid(f"instance {number}"),
        "project_id": "project",
        "user_id": "user",
        "flavor": flavor(None, extra_specs={"resources:VGPU": "1"}),
    }
    return Instance(context, **(chosen | values))


def claimed(context: Context | None, number: int = 0) -> Instance:
    """Return an instance with a claim in progress, with all fields of one."""
    return instance(
        context,
        number,
        task_state="claiming",
        updated_at=datetime(2030, 1, 1, tzinfo=UTC),
        claimed_allocations={uuid("a provider"): {"VCPU": 1}},
    )


def migration(context: Context | None, number: int = 0, **values: Any) -> Migration:
    chosen = {
        "uuid": uuid(f"migration {number}"),
        "instance_uuid": uuid(f"instance {number}"),
        "migration_type": "resize",
        "source_compute": "host-1",
        "source_node": "node-1",
        "old_flavor": flavor(None, 1),
        "new_flavor": flavor(None, 2),
    }
    return Migration(context, **(chosen | values))


def reservation(context: Context | None, number: int = 0, **values: Any) -> Reservation:
    chosen = {
        "uuid": uuid(f"reservation {number}"),
        "provider_uuid": uuid("provider"),
        "reason": "maintenance",
        "holder": f"holder-{number}",
    }
    return Reservation(context, **(chosen | values))


def released(context: Context | None, number: int = 0, **values: Any) -> Reservation:
    """Return a reservation of a provider whose released resources are not clean yet."""
    chosen = {
        "since": datetime(2030, 1, 1, tzinfo=UTC),
        "own_reserved": {"VGPU": 1},
        "consumer_uuid": uuid("consumer"),
        "phase": "released",
    }
    return reservation(context, number, **(chosen | values))


def device_job(context: Context | None, number: int = 0, **values: Any) -> DeviceJob:
    chosen = {
        "provider_uuid": uuid(f"device {number}"),
        "provider_name": f"device-{number}",
        "driver_instance": "fpga",
        "host": "host-1",
        "process_id": 4711,
        "image": uuid("image"),
    }
    return DeviceJob(context, **(chosen | values))


def record(number: int = 0, **values: Any) -> ProviderRecord:
    chosen: dict[str, Any] = {
        "provider_uuid": uuid(f"provider {number}"),
        "mode": "own",
        "applied": '{"name": "gpu"}',
        "intended": None,
        "live": None,
        "own_reserved": {},
        "reservations": [],
        "absent_since": None,
    }
    return ProviderRecord(**(chosen | values))


@dataclass(frozen=True)
class Sort:
    """A kind of object that is stored in a row, with what its tests need."""

    #: Returns a new object.
    make: Callable[..., Any]
    list_of: type[Any]
    #: A new value of one field, and of another field for a second program.
    change: Mapping[str, Any]
    elsewhere: Mapping[str, Any]
    #: The fields that are unique together, unless they are the key.
    unique: tuple[str, ...] = ()
    #: Whether the row stays, marked as deleted, when the object is destroyed.
    is_kept: bool = False

    @property
    def kind(self) -> type[Any]:
        kind: type[Any] = self.list_of.KIND
        return kind

    @property
    def table(self) -> str:
        table: str = self.kind.TABLE
        return table

    @property
    def key(self) -> str:
        key: str = self.kind.KEY
        return key

    def get(self, context: Context, key: str) -> Any:
        """Return the stored object with this key, None if there is not one."""
        found = self.list_of.get_by_filters(context, **{self.key: key})
        return found[0] if found else None


SORTS: Mapping[str, Sort] = MappingProxyType(
    {
        "ComputeNode": Sort(
            node,
            ComputeNodeList,
            {"vcpus": 8},
            {"memory_mb": 4096},
            is_kept=True,
        ),
        "Service": Sort(
            service,
            ServiceList,
            {"disabled_reason": "a fan is loud"},
            {"topic": "another"},
            ("host", "binary"),
            is_kept=True,
        ),
        "Flavor": Sort(flavor, FlavorList, {"swap": 3}, {"description": "small"}, ("name",)),
        "Instance": Sort(instance, InstanceList, {"host": "host-2"}, {"node": "node-2"}),
        "Migration": Sort(
            migration, MigrationList, {"status": "pre-migrating"}, {"dest_node": "node-2"}
        ),
        "Reservation": Sort(
            reservation,
            ReservationList,
            {"reason": "cleaning"},
            {"expected_end": datetime(2031, 1, 1)},
            ("provider_uuid", "holder"),
        ),
        "DeviceJob": Sort(
            device_job, DeviceJobList, {"state": "waiting"}, {"problem": "no answer"}
        ),
    }
)
