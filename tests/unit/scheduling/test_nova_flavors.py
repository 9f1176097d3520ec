"""Extra specs that confine a flavor to providers of nova."""

import pytest

from tests.lab import samples
from wharfinger.exceptions import InvalidRequest
from wharfinger.scheduling.nova_flavors import confined

NOVA = "trait{}:OWNER_NOVA"
BARE_METAL = {"resources:VCPU": "0", "resources:MEMORY_MB": "0", "resources:DISK_GB": "0"}


def changes(specs: dict[str, str]) -> dict[str, str]:
    """Return the extra specs that the confined flavor adds or changes."""
    flavor = samples.flavor(None, extra_specs=specs)
    flavor.obj_set_defaults()
    result = confined(flavor)
    assert specs.keys() <= result.keys()
    assert flavor.extra_specs == specs
    return dict(result.items() - specs.items())


@pytest.mark.parametrize(
    "specs",
    [
        {},
        {"resources:VCPU": "4", "resources1:DISK_GB": "10"},
        {"hw:cpu_policy": "dedicated", "trait:CUSTOM_FAST": "required"},
        {"hw:pmem": "6GB", "own:key": "value"},
        {"resources1:FPGA": "1", "trait1:OWNER_CYBORG": "required"},
        {"resources1:VGPU": "1", "trait1:OWNER_NOVA": "required"},
        BARE_METAL | {"resources:CUSTOM_GOLD": "1", "trait:CUSTOM_FAST": "required"},
    ],
)
def test_confined_safe_flavor_is_unchanged(specs: dict[str, str]) -> None:
    assert changes(specs) == {}


@pytest.mark.parametrize(
    ("specs", "expected"),
    [
        (
            {"resources:VGPU": "2"},
            {"resources:VGPU": "0", "resources1:VGPU": "2", NOVA.format(1): "required"},
        ),
        ({"resources_A:VGPU": "1"}, {NOVA.format("_A"): "required"}),
        (
            {"resources_A:VGPU": "1", "resources_B:VCPU": "1", "group_policy": "isolate"},
            {NOVA.format("_A"): "required"},
        ),
        # Numbered groups, some of which request no amount.
        (
            {"resources:VGPU": "1", "resources1:VGPU": "1", "trait2:HW_GPU_API_DXVA": "required"}
            | {"resources2:PGPU": "1", "resources3:VCPU": "0", "group_policy": "none"},
            {"resources:VGPU": "0", "resources4:VGPU": "1"}
            | {NOVA.format(number): "required" for number in (1, 2, 4)},
        ),
        # Each class gets a group of its own.
        (
            {"resources:VGPU": "1", "resources:FPGA": "2", "group_policy": "isolate"},
            {"resources:VGPU": "0", "resources:FPGA": "0", "group_policy": "none"}
            | {"resources1:FPGA": "2", "resources2:VGPU": "1"}
            | {NOVA.format(number): "required" for number in (1, 2)},
        ),
        (
            {"resources:VGPU": "1", "resources_A:FPGA": "1"},
            {"resources:VGPU": "0", "resources1:VGPU": "1", "group_policy": "none"}
            | {NOVA.format(suffix): "required" for suffix in ("1", "_A")},
        ),
        # Required traits stay on the host; forbidden traits apply to host and device.
        (
            {"resources:VGPU": "1", "trait:HW_CPU_X86_AVX": "required"}
            | {"trait:OWNER_NOVA": "required", "trait:CUSTOM_SLOW": "forbidden"},
            {"resources:VGPU": "0", "resources1:VGPU": "1", NOVA.format(1): "required"}
            | {"trait1:CUSTOM_SLOW": "forbidden"},
        ),
        # All units of a class come from one provider.
        (
            BARE_METAL | {"resources:VGPU": "1", "trait:CUSTOM_FAST": "required"},
            {NOVA.format(""): "required"},
        ),
    ],
)
def test_confined_flavor_requires_owner_of_each_contested_class(
    specs: dict[str, str], expected: dict[str, str]
) -> None:
    assert changes(specs) == expected


def test_confined_twice_changes_nothing() -> None:
    flavor = samples.flavor(None, extra_specs={"resources:VGPU": "1", "resources:FPGA": "1"})
    flavor.obj_set_defaults()
    flavor.extra_specs = confined(flavor)

    assert confined(flavor) == flavor.extra_specs


@pytest.mark.parametrize(
    ("specs", "key", "told"),
    [
        ({"accel:device_profile": "fpga"}, "accel:device_profile", "without an owner"),
        ({"hw:mem_encryption": "true"}, "hw:mem_encryption", "MEM_ENCRYPTION_CONTEXT"),
        (
            BARE_METAL | {"hw:mem_encryption": "true", "hw:mem_encryption_model": "amd-sev"},
            "hw:mem_encryption",
            "MEM_ENCRYPTION_CONTEXT",
        ),
        (
            {"resources:VGPU": "1", "trait:CUSTOM_FAST": "required"},
            "trait:CUSTOM_FAST",
            "If the provider of VGPU has the trait, write resources1:VGPU and trait1:CUSTOM_FAST "
            "in place of resources:VGPU and trait:CUSTOM_FAST. If the host has it, write only "
            "resources1:VGPU in place of resources:VGPU.",
        ),
        (
            {"resources:VGPU": "1", "trait:OWNER_CYBORG": "required"},
            "trait:OWNER_CYBORG",
            "trait1:OWNER_CYBORG",
        ),
        (
            BARE_METAL
            | {"resources:VGPU": "1", "resources:FPGA": "1", "trait:CUSTOM_SLOW": "forbidden"},
            "trait:CUSTOM_SLOW",
            "CUSTOM_SLOW is forbidden for FPGA, which needs a separate group",
        ),
        (
            {"resources:VGPU": "1", "resources1:VGPU": "1", "group_policy": "isolate"},
            "group_policy",
            "VGPU would get a group with a suffix",
        ),
        ({"resources1:VGPU": "1", "trait1:OWNER_NOVA": "forbidden"}, "trait1:OWNER_NOVA", "owner"),
    ],
)
def test_confined_flavor_that_extra_specs_cannot_confine_is_refused(
    specs: dict[str, str], key: str, told: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        changes(specs)

    assert caught.value.subject == "flavor flavor-0"
    assert caught.value.key == key
    assert told in caught.value.problem
