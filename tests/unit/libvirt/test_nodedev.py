"""Device XML of libvirt: the fields that are read, and XML that is refused."""

from pathlib import Path

import pytest

from wharfinger_libvirt.nodedev import Mdev, MdevType, NodeDevice, PciFunction, parse
from wharfinger_libvirt.safexml import InvalidXML

# Written by libvirt 9.0, shortened.
GPU = """<device>
  <name>pci_0000_84_00_0</name>
  <path>/sys/devices/pci0000:80/0000:84:00.0</path>
  <parent>computer</parent>
  <driver><name>nvidia</name></driver>
  <capability type='pci'>
    <class>0x030200</class>
    <domain>0</domain>
    <bus>132</bus>
    <slot>0</slot>
    <function>0</function>
    <product id='0x13f2'/>
    <vendor id='0x10de'/>
    <capability type='mdev_types'>
      <type id='nvidia-36'>
        <name>GRID M60-1Q</name>
        <deviceAPI>vfio-pci</deviceAPI>
        <availableInstances>8</availableInstances>
      </type>
      <type id='nvidia-35'>
        <name>GRID M60-0B</name>
        <deviceAPI>vfio-pci</deviceAPI>
        <availableInstances>0</availableInstances>
      </type>
    </capability>
    <numa node='1'/>
  </capability>
</device>"""
CARD = """<device>
  <name>mtty_mtty</name>
  <parent>computer</parent>
  <capability type='mdev_types'>
    <capability type='mdev_types'>
      <type id='mtty-2'>
        <name>Dual port serial</name>
        <deviceAPI>vfio-pci</deviceAPI>
        <availableInstances>4</availableInstances>
      </type>
    </capability>
  </capability>
</device>"""
MDEV = """<device>
  <name>mdev_18e0e3de_4cce_4e5f_a3f2_007da9ae053e_0000_84_00_0</name>
  <parent>pci_0000_84_00_0</parent>
  <capability type='mdev'>
    <type id='nvidia-35'/>
    <uuid>18e0e3de-4cce-4e5f-a3f2-007da9ae053e</uuid>
    <iommuGroup number='1'/>
  </capability>
</device>"""


def test_gpu_is_read() -> None:
    assert parse(GPU) == NodeDevice(
        name="pci_0000_84_00_0",
        parent="computer",
        pci=PciFunction(address="0000:84:00.0", vendor_id="10de", product_id="13f2", numa_node=1),
        mdev_types=(
            MdevType(type_id="nvidia-35", available=0),
            MdevType(type_id="nvidia-36", available=8),
        ),
    )


def test_virtual_function_is_read() -> None:
    function = GPU.replace("<slot>0<", "<slot>31<").replace("<function>0<", "<function>7<")
    pci = parse(
        function.replace(
            "<numa", "<capability type='phys_function'><address bus='0x1'/></capability><numa"
        )
    ).pci
    assert pci is not None
    assert pci.address == "0000:84:1f.7"


def test_parent_outside_pci_is_read() -> None:
    assert parse(CARD) == NodeDevice(
        name="mtty_mtty",
        parent="computer",
        mdev_types=(MdevType(type_id="mtty-2", available=4),),
    )


@pytest.mark.parametrize("active", [True, False])
def test_mdev_is_read(active: bool) -> None:
    device = parse(MDEV, active=active)
    assert device.parent == "pci_0000_84_00_0"
    assert device.mdev == Mdev(
        type_id="nvidia-35", active=active, uuid="18e0e3de-4cce-4e5f-a3f2-007da9ae053e"
    )


@pytest.mark.parametrize(
    ("name", "uuid"),
    [
        (
            "mdev_18e0e3de_4cce_4e5f_a3f2_007da9ae053e_0000_84_00_0",
            "18e0e3de-4cce-4e5f-a3f2-007da9ae053e",
        ),
        ("mdev_18e0e3de_4cce_4e5f_a3f2_007da9ae053e", "18e0e3de-4cce-4e5f-a3f2-007da9ae053e"),
        ("mdev_18e0e3de_4cce_4e5f_a3f2_007da9ae053e0", None),
        ("mdev_1", None),
    ],
)
def test_uuid_of_an_mdev_from_an_old_libvirt_is_read_from_its_name(
    name: str, uuid: str | None
) -> None:
    xml = MDEV.replace("<uuid>18e0e3de-4cce-4e5f-a3f2-007da9ae053e</uuid>", "")
    mdev = parse(xml.replace("mdev_18e0e3de_4cce_4e5f_a3f2_007da9ae053e_0000_84_00_0", name)).mdev
    assert mdev is not None
    assert mdev.uuid == uuid


@pytest.mark.parametrize("numa", ["", "<numa node='-1'/>"])
def test_device_without_numa_affinity_is_read(numa: str) -> None:
    pci = parse(GPU.replace("<numa node='1'/>", numa)).pci
    assert pci is not None
    assert pci.numa_node is None


@pytest.mark.parametrize(
    ("xml", "problem"),
    [
        ("", "not XML"),
        (GPU[:-5], "not XML"),
        ("<domain><name>x</name></domain>", "<domain>, not <device>"),
        (GPU.replace("<name>pci_0000_84_00_0</name>", ""), "no <name>"),
        (GPU.replace("<bus>132</bus>", ""), "no <bus>"),
        (GPU.replace("<bus>132</bus>", "<bus>256</bus>"), "<bus> is 256, not from 0 to 255"),
        (GPU.replace("<bus>132</bus>", "<bus>0x84</bus>"), "<bus> is '0x84', not a number"),
        (GPU.replace("<vendor id='0x10de'/>", ""), "<vendor id> is '', not hexadecimal"),
        (GPU.replace("0x13f2", "0x113f2"), "<product id> is '0x113f2', more than four digits"),
        (GPU.replace("<numa node='1'/>", "<numa node='x'/>"), "<numa node> is 'x'"),
        (
            GPU.replace("<availableInstances>8</availableInstances>", ""),
            "no <availableInstances>",
        ),
        (GPU.replace("Instances>8<", "Instances>many<"), "<availableInstances> is 'many'"),
        (GPU.replace("Instances>8<", "Instances>-1<"), "<availableInstances> is -1"),
        (GPU.replace("nvidia-36", "nvidia-35"), "lists mdev type nvidia-35 more than once"),
        (GPU.replace(" id='nvidia-36'", ""), "mdev <type> has no id"),
        (MDEV.replace("<type id='nvidia-35'/>", ""), "mdev <type> has no id"),
        (MDEV.replace("<uuid>18e0e3de-", "<uuid>"), "its <uuid> is '4cce-"),
        (
            MDEV.replace("<parent>pci_0000_84_00_0</parent>", ""),
            "mediated device without a <parent>",
        ),
    ],
)
def test_invalid_device_is_refused(xml: str, problem: str) -> None:
    with pytest.raises(InvalidXML) as caught:
        parse(xml)
    assert problem in str(caught.value)


def test_entities_are_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("pci_0000_84_00_0")
    body = GPU.replace("<name>pci_0000_84_00_0</name>", "<name>&e;</name>")
    for entity in ("'pci_0000_84_00_0'", f"SYSTEM '{secret.as_uri()}'"):
        with pytest.raises(InvalidXML, match="entities or a DTD"):
            parse(f"<!DOCTYPE device [<!ENTITY e {entity}>]>{body}")


def test_document_type_is_refused() -> None:
    with pytest.raises(InvalidXML, match="entities or a DTD"):
        parse(f"<!DOCTYPE device>{GPU}")
