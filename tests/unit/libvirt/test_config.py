"""Options of the libvirt driver, and errors of invalid options."""

from pathlib import Path
from textwrap import dedent

import pytest

from wharfinger.conf import parse
from wharfinger.exceptions import ConfigurationError
from wharfinger.providers import PublishingMode
from wharfinger_libvirt.config import HostSection, MdevTypeSection, list_opts
from wharfinger_libvirt.driver import LibvirtDriver


def read(directory: Path, text: str) -> HostSection:
    path = directory / "wharfinger.conf"
    path.write_text(dedent(text))
    return HostSection.read(parse([str(path)]), "gpus")


def test_all_options_have_defaults(tmp_path: Path) -> None:
    assert read(tmp_path, "[gpus]\n") == HostSection(section="gpus")


def test_all_options_are_read(tmp_path: Path) -> None:
    section = read(
        tmp_path,
        """
        [DEFAULT]
        state_path = /somewhere
        [gpus]
        connection_uri = test://$state_path/host.xml
        hypervisor_hostname = gpu-host-1
        publish_root = overlay
        nova_compute_id_file =
        reserved_host_cpus = 2
        reserved_host_memory_mb = 0
        cpu_allocation_ratio = 16
        ram_allocation_ratio = 0.9
        enabled_mdev_types = nvidia-35,, i915-GVTg_V5_4,
        [gpus:nvidia-35]
        device_addresses = 0000:84:00.0,
            0000:8A:00.0
        resource_class = CUSTOM_VGPU_BIG
        traits = CUSTOM_A, HW_GPU_API_VULKAN
        max_instances = 0
        """,
    )
    assert section == HostSection(
        section="gpus",
        connection_uri="test:///somewhere/host.xml",
        hypervisor_hostname="gpu-host-1",
        publish_root=PublishingMode.OVERLAY,
        nova_compute_id_file="",
        reserved_host_cpus=2,
        reserved_host_memory_mb=0,
        cpu_allocation_ratio=16.0,
        ram_allocation_ratio=0.9,
        mdev_types=(
            MdevTypeSection(
                section="gpus:nvidia-35",
                type_id="nvidia-35",
                addresses=("0000:84:00.0", "0000:8a:00.0"),
                resource_class="CUSTOM_VGPU_BIG",
                traits=frozenset({"CUSTOM_A", "HW_GPU_API_VULKAN"}),
                max_instances=0,
            ),
            MdevTypeSection(section="gpus:i915-GVTg_V5_4", type_id="i915-GVTg_V5_4"),
        ),
    )


# Section, key, value, words of the problem, words of the remedy.
WRONG = {
    "no uri": ("gpus", "connection_uri", "", "the URI is empty", "qemu:///system"),
    "long host name": ("gpus", "hypervisor_hostname", "x" * 201, "200", "remove the option"),
    "no mode": ("gpus", "publish_root", "both", "cannot be used", "[auto, own, overlay]"),
    "negative CPUs": ("gpus", "reserved_host_cpus", "-1", "cannot be used", "0 or above"),
    "CPUs in words": ("gpus", "reserved_host_cpus", "two", "cannot be used", "whole number"),
    "negative memory": ("gpus", "reserved_host_memory_mb", "-512", "cannot", "0 or above"),
    "ratio of nothing": ("gpus", "cpu_allocation_ratio", "0", "cannot be used", "above 0"),
    "negative ratio": ("gpus", "ram_allocation_ratio", "-1.5", "cannot be used", "above 0"),
    "infinite ratio": ("gpus", "ram_allocation_ratio", "inf", "cannot be used", "above 0"),
    "no number": ("gpus", "ram_allocation_ratio", "nan", "cannot be used", "above 0"),
    "type with a bracket": ("gpus", "enabled_mdev_types", "a]b", "not an mdev type", "mdevctl"),
    "type in two words": ("gpus", "enabled_mdev_types", "GRID T4", "not an mdev type", "mdevctl"),
    "malformed address": ("gpus:a", "device_addresses", "84:00.0", "not a PCI", "lspci -D"),
    "function 8": ("gpus:a", "device_addresses", "0000:84:00.8", "not a PCI", "lspci -D"),
    "unknown class": ("gpus:a", "resource_class", "GPU", "cannot have this", "Use VGPU"),
    "other class": ("gpus:a", "resource_class", "PGPU", "cannot have this", "Use VGPU"),
    "small class": ("gpus:a", "resource_class", "CUSTOM_big", "cannot have this", "upper case"),
    "no class": ("gpus:a", "resource_class", "", "cannot have this", "Use VGPU"),
    "unknown trait": ("gpus:a", "traits", "FAST", "os-traits", "standard trait"),
    "owner trait": ("gpus:a", "traits", "OWNER_NOVA", "Wharfinger itself adds", "`owner`"),
    "custom owner": ("gpus:a", "traits", "CUSTOM_OWNER_X", "Wharfinger itself adds", "`owner`"),
    "empty number": ("gpus", "reserved_host_cpus", "", "cannot be used", "0 or above"),
    "negative limit": ("gpus:a", "max_instances", "-1", "cannot be used", "0 or above"),
}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG.keys())
def test_invalid_value_is_reported_with_problem_and_remedy(
    tmp_path: Path, case: tuple[str, str, str, str, str]
) -> None:
    section, key, value, problem, remedy = case
    enabled = "[gpus]\nenabled_mdev_types = a\n" if section != "gpus" else ""
    with pytest.raises(ConfigurationError) as caught:
        read(tmp_path, f"{enabled}[{section}]\n{key} = {value}\n")
    error = caught.value
    assert (error.section, error.key, str(error.value)) == (section, key, value)
    assert str(error).startswith(f"[{section}] {key} = {value}: ")
    assert problem in error.problem
    assert remedy in error.remedy


def test_reference_to_an_unknown_option_is_reported(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"^\[gpus\] connection_uri = .*is not an option.*write \$\$"
    ):
        read(tmp_path, "[gpus]\nconnection_uri = test://$nowhere/host.xml\n")


def test_type_enabled_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError,
        match=r"^\[gpus\] enabled_mdev_types = a: .* more than once\. Name it once\.$",
    ):
        read(tmp_path, "[gpus]\nenabled_mdev_types = a, b, a\n")


def test_device_named_for_two_types_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError,
        match=r"^\[gpus:b\] device_addresses = 0000:84:00.0: section \[gpus:a\] .* one type only",
    ):
        read(
            tmp_path,
            """
            [gpus]
            enabled_mdev_types = a, b
            [gpus:a]
            device_addresses = 0000:84:00.0
            [gpus:b]
            device_addresses = 0000:85:00.0, 0000:84:00.0
            """,
        )


def test_device_named_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"^\[gpus:a\] device_addresses = 0000:8a:00.0: .* twice"
    ):
        read(
            tmp_path,
            """
            [gpus]
            enabled_mdev_types = a
            [gpus:a]
            device_addresses = 0000:8a:00.0, 0000:8A:00.0
            """,
        )


def test_config_sections_are_those_of_enabled_types(tmp_path: Path) -> None:
    path = tmp_path / "wharfinger.conf"
    path.write_text("[gpus]\nenabled_mdev_types = a, b\n[gpus:c]\nmax_instances = 1\n")
    assert list(LibvirtDriver.config_sections(parse([str(path)]), "gpus")) == ["gpus:a", "gpus:b"]


def test_two_instances_have_separate_sections(tmp_path: Path) -> None:
    path = tmp_path / "wharfinger.conf"
    path.write_text("[gpus]\nenabled_mdev_types = a\n[gpus:a]\nmax_instances = 1\n[others]\n")
    conf = parse([str(path)])
    assert HostSection.read(conf, "others").mdev_types == ()
    assert HostSection.read(conf, "gpus").mdev_types[0].max_instances == 1


def test_sample_has_every_option_with_help() -> None:
    options = [option for _, options in list_opts() for option in options]
    names = {option.dest for option in options}
    assert {"connection_uri", "enabled_mdev_types", "device_addresses", "traits"} <= names
    assert all(option.help for option in options)
