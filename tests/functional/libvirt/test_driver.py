"""The libvirt driver with libvirt's test driver, which reads a host from a file."""

import shutil
import socket
from pathlib import Path

import pytest

from tests.lab.libvirt_driver import make_driver, publish, totals
from wharfinger.exceptions import BackendError, ConfigurationError
from wharfinger.providers import DesiredProvider, Inventory, Provider, PublishingMode
from wharfinger_libvirt.driver import LibvirtDriver

SAMPLE = Path(__file__).parents[3] / "etc/wharfinger/sample"
NODE = "gpu-host-1"
FIRST, SECOND, NEW = (f"{NODE}_pci_0000_{bus}_00_0" for bus in ("84", "c4", "c5"))


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A copy of the sample host's file, which tests change."""
    return Path(shutil.copy(SAMPLE / "host.xml", tmp_path / "host.xml"))


def driver_of(host: Path, more: str = "", types: str = "nvidia-231") -> LibvirtDriver:
    return make_driver(
        host.parent,
        f"[DEFAULT]\nstate_path = {host.parent}\nenabled_drivers = gpus\n"
        f"[gpus]\nconnection_uri = test://{host}\n"
        f"hypervisor_hostname = {NODE}\nenabled_mdev_types = {types}\n{more}",
    )


def grow(host: Path) -> None:
    shutil.copy(SAMPLE / "host-grown.xml", host)


def edit(host: Path, old: str, new: str, count: int = -1) -> None:
    text = host.read_text()
    assert old in text
    host.write_text(text.replace(old, new, count))


def live(providers: dict[str, DesiredProvider]) -> list[Provider]:
    """Return the providers that a driver has reported, as if Placement had them."""
    return [desired.provider for desired in providers.values()]


def other_provider(number: int, name: str, parent: Provider) -> Provider:
    """Return a provider of another service in the host's tree."""
    return Provider(
        uuid=f"00000000-0000-0000-0000-{number:012}",
        name=name,
        root_uuid=parent.root_uuid,
        parent_uuid=parent.uuid,
    )


# The tree.


def test_sample_is_published_as_documented(host: Path) -> None:
    configuration = (SAMPLE / "wharfinger.conf").read_text()
    driver = make_driver(host.parent, configuration.replace("@demo@", str(host.parent)))

    providers = publish(driver)

    assert list(providers) == [NODE, FIRST, SECOND]
    assert totals(providers) == {FIRST: {"VGPU": 8}, SECOND: {"CUSTOM_VGPU_LARGE": 4}}
    assert providers[FIRST].provider.traits == {"CUSTOM_VGPU_T4_2Q"}
    assert providers[SECOND].provider.traits == {"CUSTOM_VGPU_T4_4Q"}
    assert not providers[NODE].provider.traits


def test_root_has_the_inventory_of_the_host(host: Path) -> None:
    driver = driver_of(
        host,
        "reserved_host_cpus = 4\nreserved_host_memory_mb = 1024\n"
        "cpu_allocation_ratio = 2\nram_allocation_ratio = 1.5\n",
    )
    root = publish(driver)[NODE]

    assert root.mode is PublishingMode.OWN
    assert (
        root.provider.inventories
        == driver.get_inventory(NODE)
        == {
            "VCPU": Inventory(total=64, max_unit=64, reserved=4, allocation_ratio=2.0),
            "MEMORY_MB": Inventory(
                total=262144, max_unit=262144, reserved=1024, allocation_ratio=1.5
            ),
        }
    )


def test_overlaid_root_is_not_changed(host: Path) -> None:
    theirs = Provider(
        uuid="be0f8ff3-60f9-5d30-b039-82553ac6c6ab",
        name=NODE,
        root_uuid="be0f8ff3-60f9-5d30-b039-82553ac6c6ab",
        inventories={"VCPU": Inventory(total=7)},
        traits=frozenset({"COMPUTE_NODE"}),
    )
    driver = driver_of(host, "publish_root = overlay\nreserved_host_cpus = 1000\n")
    providers = publish(driver, [theirs])

    assert providers[NODE].mode is PublishingMode.OVERLAY
    assert providers[NODE].provider == theirs
    assert providers[FIRST].mode is PublishingMode.OWN
    assert driver.get_inventory(NODE) == {}


@pytest.mark.parametrize(
    ("compute_id", "generation", "problem"),
    [
        ("11111111-1111-1111-1111-111111111111\n", 3, "cannot create its own: the name is taken"),
        ("be0f8ff3-60f9-5d30-b039-82553ac6c6ab\n", 3, ""),
        ("11111111-1111-1111-1111-111111111111", None, ""),
        (None, 3, ""),
        ("", 3, ""),
        ("\xff", 3, "was not read"),
    ],
    ids=["another", "same", "root not in Placement", "no file", "not compared", "not a text"],
)
def test_overlaid_root_that_is_not_of_this_nova_compute_is_reported(
    host: Path, compute_id: str | None, generation: int | None, problem: str
) -> None:
    path = host.parent / "compute_id"
    if compute_id is not None:
        path.write_text(compute_id, encoding="latin-1")
    theirs = Provider(
        uuid="be0f8ff3-60f9-5d30-b039-82553ac6c6ab",
        name=NODE,
        root_uuid="be0f8ff3-60f9-5d30-b039-82553ac6c6ab",
        generation=generation,
    )
    compared = "" if compute_id == "" else path
    driver = driver_of(host, f"publish_root = overlay\nnova_compute_id_file = {compared}\n")

    publish(driver, [theirs])

    found = driver.get_problems()
    assert len(found) == bool(problem)
    assert all(problem in one for one in found)


def test_device_is_a_child_of_the_root_with_full_inventory(host: Path) -> None:
    providers = publish(driver_of(host, "[gpus:nvidia-231]\ntraits = CUSTOM_A, CUSTOM_B\n"))
    child = providers[FIRST].provider

    assert child.parent_uuid == providers[NODE].provider.uuid
    assert child.traits == {"CUSTOM_A", "CUSTOM_B"}
    assert child.inventories == {
        "VGPU": Inventory(
            total=8, reserved=0, min_unit=1, max_unit=8, step_size=1, allocation_ratio=1.0
        )
    }


def test_device_without_an_enabled_type_has_no_provider(host: Path) -> None:
    driver = driver_of(host, "[gpus:nvidia-232]\ndevice_addresses = 0000:c4:00.0\n", "nvidia-232")
    assert totals(publish(driver)) == {SECOND: {"VGPU": 4}}
    assert list(publish(driver_of(host, types=""))) == [NODE]


def test_device_beyond_the_limit_has_a_provider_without_inventory(
    host: Path,
) -> None:
    driver = driver_of(host, "[gpus:nvidia-231]\nmax_instances = 8\n")
    before = publish(driver_of(host))
    providers = publish(driver, live(before))

    assert totals(providers) == {FIRST: {"VGPU": 8}, SECOND: {}}
    assert providers[SECOND].reservations == ()


# A device that mdevs of another type occupy.


def test_occupied_device_stays_published_and_is_reserved(host: Path) -> None:
    before = publish(driver_of(host))
    edit(host, "<type id='nvidia-231'/>", "<type id='nvidia-232'/>")
    edit(host, "<availableInstances>6<", "<availableInstances>0<")
    reserved = [
        provider
        if provider.name != FIRST
        else Provider(
            uuid=provider.uuid,
            name=provider.name,
            root_uuid=provider.root_uuid,
            parent_uuid=provider.parent_uuid,
            inventories={"VGPU": Inventory(total=8, max_unit=8, reserved=8)},
        )
        for provider in live(before)
    ]
    driver = driver_of(host)

    for found in (live(before), reserved):
        after = publish(driver, found)
        assert after[FIRST].provider.inventories == before[FIRST].provider.inventories
        assert after[FIRST].reservations == ("occupied by mdevs of nvidia-232",)
        assert after[SECOND].reservations == ()


def test_occupied_device_that_was_never_published_has_no_inventory(host: Path) -> None:
    providers = publish(driver_of(host, types="nvidia-232"))

    assert totals(providers) == {FIRST: {}, SECOND: {"VGPU": 4}}
    assert providers[FIRST].reservations == ("occupied by mdevs of nvidia-231",)


def test_device_whose_pool_is_exhausted_is_reserved(host: Path) -> None:
    before = publish(driver_of(host))
    edit(host, "<availableInstances>8<", "<availableInstances>0<")
    after = publish(driver_of(host), live(before))

    assert totals(after) == totals(before)
    assert after[SECOND].reservations == ("no mdev of type nvidia-231 can be created",)


# Refreshing.


def test_new_device_appears_at_the_next_refresh_only(host: Path) -> None:
    driver = driver_of(host)
    before = publish(driver)
    grow(host)
    unrefreshed = publish(driver, live(before), refresh=False)
    after = publish(driver, live(before))

    assert unrefreshed == before
    # The new mdev changes no total.
    assert {name: before[name] for name in (NODE, FIRST, SECOND)} == {
        name: desired for name, desired in after.items() if name != NEW
    }
    assert totals(after)[NEW] == {"VGPU": 8}
    assert publish(driver, live(after)) == after


def test_tree_contains_only_devices_of_the_host(host: Path) -> None:
    # The driver's tree has no children of other programs. The planner keeps them in Placement.
    grow(host)
    driver = driver_of(host)
    before = publish(driver)
    root = before[NODE].provider
    fpga = other_provider(1, "fpga", root)
    others = [
        fpga,
        other_provider(2, f"{NODE}_0000:84:00.0", root),
        other_provider(3, f"{NODE}:OVS agent:br-ex", root),
        other_provider(4, f"{NODE}_bridge", root),
        other_provider(5, f"{NODE}_pci_0000_d8_00_0", fpga),
    ]
    shutil.copy(SAMPLE / "host.xml", host)
    after = publish(driver, [*live(before), *others])

    assert set(after) == set(before) - {NEW}


@pytest.mark.parametrize("damage", ["missing", "no XML", "nonsense"])
def test_unreadable_host_is_an_error_and_changes_nothing(host: Path, damage: str) -> None:
    driver = driver_of(host)
    before = publish(driver)
    if damage == "missing":
        host.unlink()
    elif damage == "no XML":
        host.write_text("<node>")
    else:
        edit(host, "<availableInstances>6<", "<availableInstances>six<")

    with pytest.raises(BackendError, match=r"^driver gpus: connecting to test:///"):
        driver.get_available_nodes(refresh=True)
    assert publish(driver, refresh=False) == before


def test_failed_first_snapshot_is_an_error_and_no_empty_host(host: Path) -> None:
    host.unlink()
    driver = driver_of(host)
    for refresh in (True, False):
        with pytest.raises(BackendError, match="connecting to test:///"):
            driver.get_available_nodes(refresh=refresh)
    with pytest.raises(BackendError, match="connecting to test:///"):
        driver.get_available_resource(NODE)


def test_configured_device_that_disappears_is_an_error_and_changes_nothing(
    host: Path,
) -> None:
    driver = driver_of(host, "[gpus:nvidia-231]\ndevice_addresses = 0000:c4:00.0\n")
    before = publish(driver)
    edit(host, "<bus>196</bus>", "<bus>200</bus>")

    with pytest.raises(
        ConfigurationError,
        match=r"^\[gpus:nvidia-231\] device_addresses = 0000:c4:00\.0: the host has no such PCI "
        r"device\. Correct the address, or remove it\.",
    ):
        driver.get_available_nodes(refresh=True)
    assert publish(driver, refresh=False) == before


def test_type_that_no_device_offers_is_an_error(host: Path) -> None:
    with pytest.raises(
        ConfigurationError,
        match=r"^\[gpus\] enabled_mdev_types = nvidia-999: no device of the host offers this "
        r"type\. The offered types are: nvidia-230, nvidia-231, nvidia-232\. Correct or "
        r"remove the type,",
    ):
        publish(driver_of(host, types="nvidia-231, nvidia-999"))


@pytest.mark.parametrize(
    ("key", "value", "total"),
    [
        ("reserved_host_cpus", 65, "64 CPUs"),
        ("reserved_host_memory_mb", 262145, "262144 MiB of memory"),
    ],
)
def test_reservation_of_more_than_the_host_has_is_an_error(
    host: Path, key: str, value: int, total: str
) -> None:
    with pytest.raises(
        ConfigurationError,
        match=rf"^\[gpus\] {key} = {value}: the host has only {total}\. Set a smaller value",
    ):
        publish(driver_of(host, f"{key} = {value}\n"))


# The node.


def test_node_name_is_libvirts_or_configured_and_stable(
    host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = make_driver(
        host.parent, f"[DEFAULT]\nenabled_drivers = gpus\n[gpus]\nconnection_uri = test://{host}\n"
    )
    (before,) = driver.get_available_nodes(refresh=True)
    assert before == socket.gethostname()
    assert driver.node_is_available(before)

    monkeypatch.setattr(
        "wharfinger_libvirt.connection.Connection.hostname", lambda connection: "other"
    )
    with pytest.raises(BackendError, match=rf"was {before} and is now other.*hypervisor_hostname"):
        driver.get_available_nodes(refresh=True)
    assert driver.get_available_nodes() == [before]
    assert not driver.node_is_available(before)
    configured = driver_of(host)
    assert configured.get_available_nodes(refresh=True) == [NODE]
    assert configured.node_is_available(NODE)


def test_provider_is_available_asks_libvirt_for_the_device(host: Path) -> None:
    driver = driver_of(host)
    driver.get_available_nodes(refresh=True)
    assert driver.provider_is_available("a", FIRST)
    assert not driver.provider_is_available("a", NEW)
    assert not driver.provider_is_available("a", f"another-host_{FIRST}")
    grow(host)
    assert driver.provider_is_available("a", NEW), (
        "the answer comes from libvirt, not from the snapshot"
    )

    one = driver_of(host, "[gpus:nvidia-231]\ndevice_addresses = 0000:84:00.0\n")
    assert one.provider_is_available("a", FIRST)
    assert not one.provider_is_available("a", SECOND), "it is not enabled"

    host.unlink()
    with pytest.raises(BackendError, match="connecting to test:"):
        driver.provider_is_available("a", FIRST)
    with pytest.raises(BackendError, match="connecting to test:"):
        driver.node_is_available("other")


def test_name_of_another_node_is_an_error(host: Path) -> None:
    with pytest.raises(
        BackendError, match=r"node other failed: .* publishes only the node gpu-host"
    ):
        driver_of(host).get_inventory("other")


def test_node_object_has_pci_devices_by_kind(host: Path) -> None:
    driver = driver_of(host)
    driver.get_available_nodes(refresh=True)
    node = driver.get_available_resource(NODE)

    assert (node.host, node.hypervisor_hostname) == ("service-host", NODE)
    assert (node.vcpus, node.memory_mb) == (64, 262144)
    assert node.pci_stats is not None
    assert [
        (kind.vendor_id, kind.product_id, kind.numa_node, kind.count) for kind in node.pci_stats
    ] == [
        ("10de", "1eb8", 0, 1),
        ("10de", "1eb8", 1, 1),
        ("144d", "a808", 1, 1),
        ("8086", "1572", 0, 2),
    ]
