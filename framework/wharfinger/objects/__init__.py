"""Versioned objects, and access to the database that stores them."""

from wharfinger.objects.base import WharfingerObject
from wharfinger.objects.compute_node import ComputeNode, ComputeNodeList
from wharfinger.objects.cycle_batch import RecordBatch
from wharfinger.objects.database_context import Context, connect
from wharfinger.objects.device_job import HOLDER as JOB_HOLDER
from wharfinger.objects.device_job import DeviceJob, DeviceJobList
from wharfinger.objects.flavor import Flavor, FlavorList
from wharfinger.objects.instance import Instance, InstanceList
from wharfinger.objects.migration import Migration, MigrationList
from wharfinger.objects.node_claim import NodeClaim
from wharfinger.objects.node_takeover import Takeover
from wharfinger.objects.pci_device_pool import PciDevice, PciDeviceList
from wharfinger.objects.provider_record import ProviderRecord, ProviderRecordList
from wharfinger.objects.reservation import Reservation, ReservationList
from wharfinger.objects.rows_in_one_transaction import HostState, ProviderState
from wharfinger.objects.service import (
    AGENT_BINARY,
    OWNER_TAG_VERSION,
    SERVICE_VERSION,
    SERVICE_VERSIONS,
    Service,
    ServiceList,
)

__all__ = [
    "AGENT_BINARY",
    "JOB_HOLDER",
    "OWNER_TAG_VERSION",
    "SERVICE_VERSION",
    "SERVICE_VERSIONS",
    "ComputeNode",
    "ComputeNodeList",
    "Context",
    "DeviceJob",
    "DeviceJobList",
    "Flavor",
    "FlavorList",
    "HostState",
    "Instance",
    "InstanceList",
    "Migration",
    "MigrationList",
    "NodeClaim",
    "PciDevice",
    "PciDeviceList",
    "ProviderRecord",
    "ProviderRecordList",
    "ProviderState",
    "RecordBatch",
    "Reservation",
    "ReservationList",
    "Service",
    "ServiceList",
    "Takeover",
    "WharfingerObject",
    "connect",
]
