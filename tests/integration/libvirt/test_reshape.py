"""A reshape moves the vGPUs of an old layout to the devices that domains in a real libvirtd use."""

import uuid
from pathlib import Path

import pytest

from tests.lab.libvirt_driver import domain_xml, make_driver, publish, reshape
from tests.lab.libvirtd import Libvirtd, Mdevs
from wharfinger.driver import Allocations
from wharfinger.exceptions import BackendError, ReshapeNeeded
from wharfinger.objects import Migration
from wharfinger.providers import Inventory, Provider, ProviderTree
from wharfinger_libvirt.domains import Domain, parse_domain
from wharfinger_libvirt.driver import LibvirtDriver

# Each device has 16 slots for mdevs of nvidia-35.
FIRST, SECOND = "pci_0000_41_00_0", "pci_0000_42_00_0"
NODE = "gpu-host-1"
ROOT = Provider(
    uuid="be0f8ff3-60f9-5d30-b039-82553ac6c6ab",
    name=NODE,
    root_uuid="be0f8ff3-60f9-5d30-b039-82553ac6c6ab",
    inventories={"VCPU": Inventory(total=8), "VGPU": Inventory(total=32)},
)


@pytest.fixture
def driver(libvirtd: Libvirtd, tmp_path: Path) -> LibvirtDriver:
    return make_driver(
        tmp_path,
        f"[gpus]\nconnection_uri = {libvirtd.uri}\nhypervisor_hostname = {NODE}\n"
        "enabled_mdev_types = nvidia-35\n",
    )


def create(libvirtd: Libvirtd, *parents: str, define: tuple[str, ...] = ()) -> list[str]:
    """Create mdevs on ``parents``, and define mdevs on ``define``; return their names."""
    with Mdevs(libvirtd.uri) as mdevs:
        return [
            *(mdevs.create(parent, "nvidia-35") for parent in parents),
            *(mdevs.define(parent, "nvidia-35") for parent in define),
        ]


def uuid_of(mdev: str) -> str:
    """Return the uuid in libvirt's name of an mdev."""
    return "-".join(mdev.split("_")[1:6])


def run(libvirtd: Libvirtd, *mdevs: tuple[str, ...]) -> list[str]:
    """Replace all domains by one domain for each group of mdevs; return the domains' uuids."""
    consumers = [str(uuid.uuid4()) for _ in mdevs]
    libvirtd.define(
        {
            f"instance-{consumer}": domain_xml(consumer, *map(uuid_of, its), kind="qemu")
            for consumer, its in zip(consumers, mdevs, strict=True)
        }
    )
    return consumers


def on_root(**amounts: int) -> Allocations:
    return {
        consumer: {
            "allocations": {ROOT.uuid: {"resources": {"VCPU": 1, "VGPU": amount}}},
            "project_id": "project",
            "user_id": "user",
            "consumer_generation": 1,
        }
        for consumer, amount in amounts.items()
    }


def moved(
    driver: LibvirtDriver, allocations: Allocations, *migrations: Migration
) -> list[dict[str, int]]:
    """Reshape; return each consumer's VGPUs by device."""
    providers = reshape(driver, [ROOT], allocations, migrations)
    assert "VGPU" not in providers[NODE].provider.inventories
    names = {
        one.provider.uuid: one.provider.name.removeprefix(f"{NODE}_") for one in providers.values()
    }
    return [
        {
            names[where]: part["resources"]["VGPU"]
            for where, part in its["allocations"].items()
            if where != ROOT.uuid
        }
        for its in allocations.values()
    ]


def test_reshape_moves_vgpus_to_the_devices_of_the_domains(
    libvirtd: Libvirtd, driver: LibvirtDriver
) -> None:
    one, two, three, defined = create(libvirtd, SECOND, SECOND, FIRST, define=(SECOND,))
    both, last, unstarted, without = run(libvirtd, (one, three), (two,), (defined,), ())
    stranger = str(uuid.uuid4())
    allocations = on_root(**{both: 2, last: 1, unstarted: 1, without: 3, stranger: 20})

    assert moved(driver, allocations) == [
        {SECOND: 1, FIRST: 1},
        {SECOND: 1},
        {SECOND: 1},
        {FIRST: 3},
        {FIRST: 12, SECOND: 8},
    ]
    assert all(
        its["allocations"][ROOT.uuid] == {"resources": {"VCPU": 1}} for its in allocations.values()
    )


def test_reshape_of_a_migration_uses_its_instances_mdevs(
    libvirtd: Libvirtd, driver: LibvirtDriver
) -> None:
    (mdev,) = create(libvirtd, SECOND)
    (instance,) = run(libvirtd, (mdev,))
    migration = Migration(uuid=str(uuid.uuid4()), instance_uuid=instance)

    assert moved(driver, on_root(**{migration.uuid: 1}), migration) == [{SECOND: 1}]


def test_reshape_uses_an_mdev_created_after_the_refresh(
    libvirtd: Libvirtd, driver: LibvirtDriver
) -> None:
    """The reshape reads devices and domains itself."""
    tree = ProviderTree.from_providers([ROOT])
    driver.get_available_nodes(refresh=True)
    with pytest.raises(ReshapeNeeded):
        driver.update_provider_tree(tree, NODE)
    (mdev,) = create(libvirtd, SECOND)
    (consumer,) = run(libvirtd, (mdev,))
    allocations = on_root(**{consumer: 1})

    driver.update_provider_tree(tree, NODE, allocations)

    second = tree.data(f"{NODE}_{SECOND}").uuid
    assert allocations[consumer]["allocations"][second] == {"resources": {"VGPU": 1}}


def test_libvirtd_that_dies_while_domains_are_read_is_an_error(
    libvirtd: Libvirtd, driver: LibvirtDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parse_and_kill(xml: str) -> Domain:
        libvirtd.kill()
        return parse_domain(xml)

    run(libvirtd, (), ())
    allocations = on_root(**{str(uuid.uuid4()): 1})
    before = on_root(**dict.fromkeys(allocations, 1))
    monkeypatch.setattr("wharfinger_libvirt.connection.parse_domain", parse_and_kill)
    with pytest.raises(BackendError, match=r"^driver gpus: reading domain instance-"):
        reshape(driver, [ROOT], allocations)
    assert allocations == before

    monkeypatch.undo()
    libvirtd.start()
    assert moved(driver, allocations) == [{FIRST: 1}]


def test_root_without_vgpus_is_published_without_a_read_of_domains(
    libvirtd: Libvirtd, driver: LibvirtDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(libvirtd, ())
    monkeypatch.delattr("wharfinger_libvirt.connection.Connection.domains")
    first = publish(driver)
    assert publish(driver, [one.provider for one in first.values()]) == first
