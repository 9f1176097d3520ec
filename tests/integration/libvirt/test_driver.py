"""The libvirt driver with a real libvirtd, in which tests create and remove mdevs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.libvirt_driver import make_driver, publish, totals
from tests.lab.libvirtd import Libvirtd, Mdevs
from wharfinger.exceptions import BackendError
from wharfinger_libvirt.driver import LibvirtDriver
from wharfinger_libvirt.nodedev import parse

# Devices of tests/lab/fakesys.py: two GPUs with 16 slots, and a card with 4 slots outside PCI. An
# mdev of nvidia-35 takes one slot, and one of nvidia-36 two.
FIRST, SECOND, CARD = "pci_0000_41_00_0", "pci_0000_42_00_0", "mtty_mtty"
NODE = "gpu-host-1"


@pytest.fixture
def mdevs(libvirtd: Libvirtd) -> Iterator[Mdevs]:
    with Mdevs(libvirtd.uri) as mdevs:
        yield mdevs


@pytest.fixture
def driver(libvirtd: Libvirtd, tmp_path: Path) -> LibvirtDriver:
    return driver_of(libvirtd, tmp_path)


def driver_of(
    libvirtd: Libvirtd, directory: Path, types: str = "nvidia-35", more: str = ""
) -> LibvirtDriver:
    return make_driver(
        directory,
        f"[gpus]\nconnection_uri = {libvirtd.uri}\nhypervisor_hostname = {NODE}\n"
        f"enabled_mdev_types = {types}\n{more}",
    )


def vgpus(driver: LibvirtDriver) -> dict[str, int]:
    return {
        name.removeprefix(f"{NODE}_"): inventory.get("VGPU", 0)
        for name, inventory in totals(publish(driver)).items()
    }


def test_created_or_removed_mdev_does_not_change_the_total(
    driver: LibvirtDriver, mdevs: Mdevs
) -> None:
    free = vgpus(driver)
    first = mdevs.create(FIRST, "nvidia-35")
    one = vgpus(driver)
    second = mdevs.create(FIRST, "nvidia-35")
    two = vgpus(driver)
    mdevs.destroy(first)
    mdevs.destroy(second)
    none = vgpus(driver)

    assert free == one == two == none == {FIRST: 16, SECOND: 16}


def test_defined_mdev_takes_no_capacity(driver: LibvirtDriver, mdevs: Mdevs) -> None:
    name = mdevs.define(FIRST, "nvidia-35")
    defined = vgpus(driver)
    mdevs.start(name)
    started = vgpus(driver)
    mdevs.destroy(name)
    destroyed = vgpus(driver)
    mdevs.undefine(name)

    assert defined == started == destroyed == {FIRST: 16, SECOND: 16}


def test_limit_never_removes_vgpus_in_use(libvirtd: Libvirtd, mdevs: Mdevs, tmp_path: Path) -> None:
    driver = driver_of(libvirtd, tmp_path, more="[gpus:nvidia-35]\nmax_instances = 1\n")
    free = vgpus(driver)
    for _ in range(2):
        mdevs.create(SECOND, "nvidia-35")
    in_use = vgpus(driver)

    assert free == {FIRST: 1, SECOND: 0}
    assert in_use == {FIRST: 0, SECOND: 2}


def test_device_with_mdevs_of_another_type_stays_fully_reserved(
    driver: LibvirtDriver, mdevs: Mdevs
) -> None:
    before = publish(driver)
    name = mdevs.create(FIRST, "nvidia-36")
    occupied = publish(driver, [desired.provider for desired in before.values()])
    mdevs.destroy(name)
    after = publish(driver, [desired.provider for desired in occupied.values()])

    first = f"{NODE}_{FIRST}"
    assert before[first].reservations == after[first].reservations == ()
    assert occupied[first].reservations == ("occupied by mdevs of nvidia-36",)
    assert totals(before) == totals(occupied) == totals(after)


def test_device_outside_pci_offers_a_type_without_addresses(
    libvirtd: Libvirtd, mdevs: Mdevs, tmp_path: Path
) -> None:
    driver = driver_of(
        libvirtd, tmp_path, "mtty-2", "[gpus:mtty-2]\nresource_class = CUSTOM_SERIAL\n"
    )
    mdevs.create(CARD, "mtty-2")

    assert totals(publish(driver)) == {f"{NODE}_{CARD}": {"CUSTOM_SERIAL": 4}}


def test_host_is_described_by_its_real_resources(driver: LibvirtDriver) -> None:
    (node,) = driver.get_available_nodes(refresh=True)
    resource = driver.get_available_resource(node)
    inventory = publish(driver)[node].provider.inventories

    assert inventory["VCPU"].total == resource.vcpus > 0
    assert inventory["MEMORY_MB"].total == resource.memory_mb > 0
    assert resource.pci_stats is not None
    assert [
        (kind.vendor_id, kind.product_id, kind.numa_node, kind.count) for kind in resource.pci_stats
    ] == [("10de", "13f2", None, 2)]


def test_killed_libvirtd_is_an_error_until_it_is_back(
    libvirtd: Libvirtd, driver: LibvirtDriver, mdevs: Mdevs, monkeypatch: pytest.MonkeyPatch
) -> None:
    mdevs.create(FIRST, "nvidia-36")
    before = publish(driver)

    def parse_and_kill(xml: str, *, active: bool) -> object:
        libvirtd.kill()
        return parse(xml, active=active)

    with monkeypatch.context() as patch:
        patch.setattr("wharfinger_libvirt.connection.parse", parse_and_kill)
        with pytest.raises(BackendError, match=r"^driver gpus: reading device "):
            driver.get_available_nodes(refresh=True)
    with pytest.raises(BackendError, match=r"^driver gpus: connecting to qemu:///system"):
        driver.get_available_nodes(refresh=True)
    meanwhile = publish(driver, refresh=False)

    libvirtd.start()
    after = publish(driver)

    assert before == meanwhile == after
    assert totals(before) == {f"{NODE}_{FIRST}": {}, f"{NODE}_{SECOND}": {"VGPU": 16}}
