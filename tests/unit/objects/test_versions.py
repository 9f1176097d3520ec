"""A field that changes has to change its object's version too."""

import subprocess
import sys

from oslo_versionedobjects.base import VersionedObjectRegistry
from oslo_versionedobjects.fixture import ObjectVersionChecker

import wharfinger.objects  # noqa: F401 - registers them
from wharfinger.objects import ComputeNode, PciDevice, PciDeviceList, Service, WharfingerObject

#: The version and the fingerprint of the fields and remotable methods of each object. Where
#: a fingerprint differs, raise the object's VERSION, say in its comment what came with it,
#: and see to it that it can be sent to those that only know the version before.
FINGERPRINTS = {
    "ComputeNode": "1.0-9cd880b9eb44b02caca70984f50c5734",
    "Migration": "1.0-44a0da08b78e6e6e03036d1bc7b68918",
    "PciDevice": "1.0-0b6113298259d3609c797ded9ffa0943",
    "PciDeviceList": "1.0-1b54e51ad0fc1f3a8878f5010e7e16dc",
    "Service": "1.0-c6bd0fcdd180812a804f19f3d62b064a",
}


def test_no_object_has_changed_without_a_new_version() -> None:
    ours = {
        name: classes
        for name, classes in VersionedObjectRegistry.obj_classes().items()
        if issubclass(classes[0], WharfingerObject)
    }
    assert ObjectVersionChecker(ours).get_hashes() == FINGERPRINTS


def test_the_versions_of_the_objects_in_objects_fit_together() -> None:
    node = ComputeNode(
        host="service",
        hypervisor_hostname="node",
        pci_stats=PciDeviceList(objects=[PciDevice(vendor_id="10de", product_id="1eb8", count=1)]),
    )
    primitive = node.obj_to_primitive(target_version="1.0")
    back = ComputeNode.obj_from_primitive(primitive)
    assert back.pci_stats is not None
    assert back.pci_stats.objects[0].vendor_id == "10de"
    assert "uuid" not in back


def test_a_service_says_the_version_of_its_code() -> None:
    assert Service(host="h", binary="b").obj_to_primitive()["wharfinger_object.name"] == "Service"


def test_objects_leave_threads_as_they_are() -> None:
    # oslo.service would let eventlet patch them; in a process of its own, to see it happen.
    code = (
        "import socket, sys, threading, time\n"
        "import wharfinger.objects\n"
        "patched = sys.modules.get('eventlet.patcher')\n"
        "print([name for name in ('thread', 'socket', 'time', 'select', 'os')\n"
        "       if patched and patched.is_monkey_patched(name)])\n"
        "print(threading.current_thread.__module__, time.sleep.__module__)\n"
        "import oslo_service.backend\n"
        "print(oslo_service.backend.get_backend_type().name)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["[]", "threading time", "THREADING"]
