"""Flavors as requests: nova's syntax of extra specs, and its rules for a flavor's own amounts."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lab import samples
from wharfinger.exceptions import DeviceProfileError, InvalidRequest
from wharfinger.objects import Flavor
from wharfinger.placement.trait_conditions import TraitConditions
from wharfinger.scheduling import RequestGroup, ResourceRequest
from wharfinger.scheduling import known_extra_specs as known
from wharfinger.scheduling.flavor_request import from_flavor
from wharfinger.scheduling.request_query import encode

NOVA, CYBORG = "OWNER_NOVA", "OWNER_CYBORG"
LARGEST = 2**31 - 1
#: The own amounts of the flavors in these tests, by resource class.
OWN = {"VCPU": 2, "MEMORY_MB": 512}


def flavor(specs: Mapping[str, str], **figures: int) -> Flavor:
    made = samples.flavor(None, extra_specs=specs, **figures)
    made.obj_set_defaults()
    return made


def asked(figures: Mapping[str, int] = MappingProxyType({}), /, **specs: str) -> ResourceRequest:
    return from_flavor(flavor(specs, **figures))


def amounts(request: ResourceRequest) -> dict[str, dict[str, int]]:
    """Return the requested amounts by suffix and class."""
    return {group.suffix: dict(group.resources) for group in request.groups}


def refusal(**specs: str) -> tuple[str, object, str]:
    """Return key, value and problem of the error for these extra specs."""
    with pytest.raises(InvalidRequest) as caught:
        asked(**specs)
    assert caught.value.subject == "flavor flavor-0"
    return caught.value.key, caught.value.value, caught.value.problem


# The flavor's own amounts.


def test_flavor_requests_its_amounts_from_nova() -> None:
    assert asked().groups == (RequestGroup(resources=OWN, owner=NOVA),)
    assert asked().group_policy is None


@pytest.mark.parametrize(
    ("figures", "disk"),
    [
        ({"root_gb": 10}, 10),
        ({"root_gb": 10, "ephemeral_gb": 5}, 15),
        ({"root_gb": 10, "ephemeral_gb": 5, "swap": 1}, 16),
        ({"swap": 1}, 1),
        ({"swap": 1024}, 1),
        ({"swap": 1025}, 2),
        ({"swap": 2048}, 2),
    ],
)
def test_disks_are_added_up_and_swap_is_rounded_up_to_gib(
    figures: dict[str, int], disk: int
) -> None:
    assert amounts(asked(figures)) == {"": {**OWN, "DISK_GB": disk}}


@pytest.mark.parametrize("kind", ["VCPU", "MEMORY_MB", "DISK_GB"])
@pytest.mark.parametrize("suffix", ["", "_A"])
def test_extra_spec_of_a_class_replaces_the_flavors_amount(kind: str, suffix: str) -> None:
    found = amounts(asked({"root_gb": 10}, **{f"resources{suffix}:{kind}": "3"}))

    assert [its[kind] for its in found.values() if kind in its] == [3]
    assert found[suffix][kind] == 3
    assert sorted(kind for its in found.values() for kind in its) == [
        "DISK_GB",
        "MEMORY_MB",
        "VCPU",
    ]


@pytest.mark.parametrize("kind", ["VCPU", "MEMORY_MB", "DISK_GB"])
def test_extra_spec_of_zero_removes_the_flavors_amount(kind: str) -> None:
    expected = {key: it for key, it in {**OWN, "DISK_GB": 10}.items() if key != kind}

    assert amounts(asked({"root_gb": 10}, **{f"resources:{kind}": "0"})) == {"": expected}
    assert amounts(asked({"root_gb": 10}, **{f"resources_A:{kind}": "0"})) == {"": expected}


@pytest.mark.parametrize("amount", ["2", "0"])
def test_extra_spec_of_pcpu_removes_vcpu(amount: str) -> None:
    pcpu = {"PCPU": 2} if amount == "2" else {}

    assert amounts(asked(**{"resources:PCPU": amount})) == {"": {"MEMORY_MB": 512, **pcpu}}


def test_extra_specs_of_pcpu_and_vcpu_request_both() -> None:
    specs = {"resources:PCPU": "1", "resources:VCPU": "1"}

    assert amounts(asked(**specs)) == {"": {"PCPU": 1, "VCPU": 1, "MEMORY_MB": 512}}


def test_bare_metal_flavor_requests_only_its_custom_class() -> None:
    specs = {"resources:VCPU": "0", "resources:MEMORY_MB": "0", "resources:DISK_GB": "0"}
    metal = {"resources:CUSTOM_BAREMETAL_GOLD": "1", "trait:CUSTOM_FAST": "required"}

    assert asked({"root_gb": 10}, **specs, **metal).groups == (
        RequestGroup(
            resources={"CUSTOM_BAREMETAL_GOLD": 1},
            traits=TraitConditions.parse(["CUSTOM_FAST"]),
            owner=NOVA,
        ),
    )


# Groups.


def test_keys_with_the_same_suffix_form_one_group() -> None:
    request = asked(
        **{
            "trait_GPU:CUSTOM_FAST": "required",
            "trait_GPU:CUSTOM_OLD": "forbidden",
            "resources_GPU:VGPU": "2",
            "trait:HW_CPU_X86_VMX": "required",
            "resources_GPU:CUSTOM_MDEV": "1",
        }
    )

    assert set(request.groups) == {
        RequestGroup(resources=OWN, traits=TraitConditions.parse(["HW_CPU_X86_VMX"]), owner=NOVA),
        RequestGroup(
            suffix="_GPU",
            resources={"VGPU": 2, "CUSTOM_MDEV": 1},
            traits=TraitConditions.parse(["CUSTOM_FAST,!CUSTOM_OLD"]),
            owner=NOVA,
        ),
    }


@pytest.mark.parametrize("suffix", ["", "1", "_GPU", "-", "a-b_C9", "x" * 64])
def test_suffix_in_novas_syntax_is_accepted(suffix: str) -> None:
    assert amounts(asked(**{f"resources{suffix}:VGPU": "1"}))[suffix]["VGPU"] == 1


@pytest.mark.parametrize(
    "key",
    [
        "resource:VGPU",
        "Resources:VGPU",
        "TRAIT_A:CUSTOM_FAST",
        f"resources{'x' * 65}:VGPU",
        f"trait{'x' * 65}:CUSTOM_FAST",
        "group-policy",
        "grouppolicy",
        "Group_Policy",
        "accel:device-profile",
        "Accel:Device_Profile",
    ],
)
def test_key_that_resembles_a_valid_one_is_refused(key: str) -> None:
    assert refusal(**{key: "1"}) == (
        key,
        "1",
        "this key requests nothing. The keys are resources:CLASS, trait:TRAIT, both with a "
        "group's suffix before the colon, group_policy and accel:device_profile.",
    )


@pytest.mark.parametrize(
    "key",
    ["mycompany:cpu_policy", "hw_pool:x", "capabilities:cpu_info", "resources", "a"],
)
def test_unrelated_key_is_ignored(key: str) -> None:
    assert asked(**{key: "resources:VGPU"}) == asked()


def test_group_of_zero_amounts_is_omitted() -> None:
    request = asked(**{"resources_A:VGPU": "0", "resources_B:VGPU": "1"})

    assert amounts(request) == {"": OWN, "_B": {"VGPU": 1}}
    assert request.group_policy is None


@pytest.mark.parametrize("policy", ["none", "isolate"])
def test_group_policy_is_accepted(policy: str) -> None:
    two = {"resources_A:VGPU": "1", "resources_B:VGPU": "1", "group_policy": policy}

    assert asked(**two).group_policy == policy


@pytest.mark.parametrize("policy", ["", "None", "isolated"])
def test_invalid_group_policy_is_refused(policy: str) -> None:
    assert refusal(group_policy=policy) == ("group_policy", policy, "it has to be none or isolate.")


def test_two_groups_without_a_policy_are_refused() -> None:
    key, value, problem = refusal(**{"resources_A:VGPU": "1", "resources_B:VGPU": "1"})

    assert (key, value) == ("group_policy", "")
    assert "there are groups _A, _B" in problem


# Values.


@pytest.mark.parametrize(("value", "amount"), [("1", 1), ("007", 7), (str(LARGEST), LARGEST)])
def test_valid_amount_is_accepted(value: str, amount: int) -> None:
    assert amounts(asked(**{"resources:VGPU": value}))[""]["VGPU"] == amount


@pytest.mark.parametrize(
    "value", ["", "many", "-1", "+1", "1.0", " 1", "1 ", "1\n", "1_000", "0x1", "\u0661", "9" * 11]
)
def test_invalid_amount_is_refused(value: str) -> None:
    told = "it has to be a whole number from 0 to 2147483647."

    assert refusal(**{"resources_A:VGPU": value}) == ("resources_A:VGPU", value, told)


def test_amount_above_the_limit_is_refused() -> None:
    value = str(LARGEST + 1)

    assert refusal(**{"resources:VGPU": value}) == (
        "resources:VGPU",
        value,
        f"it has to be a whole number from 1 to {LARGEST}.",
    )


@pytest.mark.parametrize("amount", ["0", "1"])
@pytest.mark.parametrize("name", ["", "vgpu", "VGPU ", "CUSTOM-GOLD", "VGPU:1", "V\nG"])
def test_invalid_resource_class_is_refused(name: str, amount: str) -> None:
    key, value, problem = refusal(**{f"resources:{name}": amount})

    assert (key, value) == (f"resources:{name}", amount)
    assert "the name of a resource class" in problem


@pytest.mark.parametrize("value", ["", "Required", "requested", "required ", "in:CUSTOM_FAST"])
def test_trait_must_be_required_or_forbidden(value: str) -> None:
    told = "it has to be required or forbidden."

    assert refusal(**{"trait:CUSTOM_FAST": value}) == ("trait:CUSTOM_FAST", value, told)


@pytest.mark.parametrize("name", ["fast", "CUSTOM_FAST ", "!CUSTOM_FAST", "A\nB"])
def test_invalid_trait_is_refused(name: str) -> None:
    key, value, problem = refusal(**{f"trait_A:{name}": "required"})

    assert (key, value) == (f"trait_A:{name}", "required")
    assert "cannot be a trait" in problem


def test_trait_without_a_name_is_refused() -> None:
    key, _value, problem = refusal(**{"trait:": "required"})

    assert key == "trait:"
    assert "a trait is missing" in problem


@pytest.mark.parametrize("value", ["required", "forbidden"])
@pytest.mark.parametrize("more", [{}, {"resources_A:VGPU": "0"}], ids=["silent", "zero"])
def test_group_with_only_a_trait_is_refused(value: str, more: dict[str, str]) -> None:
    assert refusal(**{"trait_A:CUSTOM_FAST": value}, **more) == (
        "trait_A:CUSTOM_FAST",
        value,
        "it describes a provider, but the group requests no resources: there is no "
        "resources_A: above 0.",
    )


def test_flavor_without_resources_is_refused() -> None:
    assert refusal(**{"resources:VCPU": "0", "resources:MEMORY_MB": "0"}) == (
        "resources",
        "",
        "no resources are requested.",
    )


# Owners.


def test_group_has_the_owner_that_it_requires_and_else_nova() -> None:
    request = asked(
        **{
            "resources_A:VGPU": "1",
            "trait_A:CUSTOM_OWNER_ACME": "required",
            "resources_B:VGPU": "1",
            "trait_B:OWNER_CYBORG": "forbidden",
            "group_policy": "none",
        }
    )

    assert {one.suffix: one.owner for one in request.groups} == {
        "": NOVA,
        "_A": "CUSTOM_OWNER_ACME",
        "_B": NOVA,
    }


def test_group_with_two_owners_is_refused() -> None:
    specs = {"trait:OWNER_NOVA": "required", "trait:OWNER_CYBORG": "required"}
    key, value, problem = refusal(**specs)

    assert (key, value) == ("trait:OWNER_NOVA", "required")
    assert problem.startswith(
        "trait:OWNER_CYBORG is required of the same providers, and a provider"
    )


def test_group_that_forbids_its_owner_is_refused() -> None:
    key, value, problem = refusal(**{"trait:OWNER_NOVA": "forbidden"})

    assert (key, value) == ("trait:OWNER_NOVA", "forbidden")
    assert "the group requests resources of this owner" in problem


def test_class_and_trait_may_have_one_name() -> None:
    [group] = asked(**{"resources:CUSTOM_X": "1", "trait:CUSTOM_X": "required"}).groups

    assert group.resources["CUSTOM_X"] == 1
    assert group.traits.required == {"CUSTOM_X"}


@pytest.mark.parametrize("key", ["resource_GPU:VGPU", "resources GPU:VGPU", "trait :CUSTOM_FAST"])
def test_misspelled_key_is_refused(key: str) -> None:
    assert refusal(**{key: "1"})[:2] == (key, "1")


def test_misspelled_key_has_a_suggestion() -> None:
    assert "Did you mean trait:CUSTOM_FAST?" in refusal(**{"traits:CUSTOM_FAST": "required"})[2]


# Device profiles.

FPGA = ResourceRequest(
    groups=(RequestGroup(suffix="device_profile_0", resources={"FPGA": 1}, owner=CYBORG),)
)


def with_profile(**specs: str) -> ResourceRequest:
    """Return the request of a flavor with a device profile, which asks for an FPGA.

    The profile named "missing" does not exist.
    """

    def profile(name: str) -> ResourceRequest:
        if name == "missing":
            raise DeviceProfileError(name=name, problem="there is none.")
        return FPGA

    return from_flavor(flavor({"accel:device_profile": "fast", **specs}), profile)


def test_groups_of_the_device_profile_follow_those_of_the_flavor() -> None:
    assert with_profile().groups == (RequestGroup(resources=OWN, owner=NOVA), *FPGA.groups)
    assert with_profile().group_policy is None


def test_groups_of_a_flavor_and_of_its_device_profile_need_no_policy() -> None:
    assert with_profile(**{"resources_A:VGPU": "1"}).group_policy == "none"


def test_policy_of_the_flavor_applies_to_its_device_profile() -> None:
    assert with_profile(**{"resources_A:VGPU": "1", "group_policy": "isolate"}).group_policy == (
        "isolate"
    )


def test_two_groups_beside_a_device_profile_need_a_policy() -> None:
    with pytest.raises(InvalidRequest, match="flavor flavor-0: group_policy = '': there are"):
        with_profile(**{"resources_A:VGPU": "1", "resources_B:VGPU": "1"})


def test_flavor_may_request_only_its_device_profile() -> None:
    nothing = {"resources:VCPU": "0", "resources:MEMORY_MB": "0"}

    assert with_profile(**nothing) == FPGA


def test_invalid_group_policy_beside_a_device_profile_is_refused() -> None:
    nothing = {"resources:VCPU": "0", "resources:MEMORY_MB": "0", "group_policy": "any"}

    with pytest.raises(
        InvalidRequest, match="flavor flavor-0: group_policy = 'any': it has to be none"
    ):
        with_profile(**nothing)


def test_group_with_a_suffix_of_the_device_profile_is_refused() -> None:
    with pytest.raises(
        InvalidRequest, match="suffix = 'device_profile_0': two groups have this suffix"
    ):
        with_profile(**{"resourcesdevice_profile_0:VGPU": "1"})


def test_unavailable_device_profile_is_an_error_with_its_name() -> None:
    with pytest.raises(DeviceProfileError, match="device profile missing: there is none"):
        with_profile(**{"accel:device_profile": "missing"})


def test_device_profile_without_a_name_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="accel:device_profile = '': name a device profile"):
        with_profile(**{"accel:device_profile": ""})


def test_device_profile_without_a_reader_is_refused() -> None:
    assert refusal(**{"accel:device_profile": "fast"}) == (
        "accel:device_profile",
        "fast",
        "this command does not read device profiles.",
    )


# Other extra specs of nova.

HYPERTHREADING = "HW_CPU_HYPERTHREADING"
SEV, SEV_ES = "HW_CPU_X86_AMD_SEV", "HW_CPU_X86_AMD_SEV_ES"
TPM = "COMPUTE_SECURITY_TPM_"
TPM_2 = {f"{TPM}2_0", f"{TPM}TIS"}
USER = f"{TPM}SECRET_SECURITY_USER"
EPHEMERAL = "COMPUTE_EPHEMERAL_ENCRYPTION"
#: Extra specs of a flavor with 2 VCPUs, the resources that they change, and the traits that they
#: require, forbid, and require of the root.
TRANSLATED: list[tuple[dict[str, str], dict[str, int], set[str], set[str], set[str]]] = [
    ({"hw:cpu_policy": "shared"}, {}, set(), set(), set()),
    ({"hw:cpu_policy": "dedicated"}, {"VCPU": 0, "PCPU": 2}, set(), set(), set()),
    (
        {"hw:cpu_policy": "dedicated", "resources:VCPU": "0", "resources:PCPU": "0"},
        {"VCPU": 0, "PCPU": 2},
        *(set(), set(), set()),
    ),
    (
        {"hw:cpu_policy": "dedicated", "hw:emulator_threads_policy": "isolate"},
        {"VCPU": 0, "PCPU": 3},
        *(set(), set(), set()),
    ),
    (
        {"hw:cpu_policy": "dedicated", "hw:emulator_threads_policy": "share"},
        {"VCPU": 0, "PCPU": 2},
        *(set(), set(), set()),
    ),
    (
        {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "0"},
        {"VCPU": 1, "PCPU": 1},
        *(set(), set(), set()),
    ),
    (
        {
            "hw:cpu_policy": "mixed",
            "hw:cpu_dedicated_mask": "^0",
            "hw:emulator_threads_policy": "isolate",
        },
        {"VCPU": 1, "PCPU": 2},
        *(set(), set(), set()),
    ),
    (
        {"hw:cpu_policy": "mixed", "hw:cpu_realtime": "yes", "hw:cpu_realtime_mask": "0-1,^0"},
        {"VCPU": 1, "PCPU": 1},
        *(set(), set(), set()),
    ),
    (
        {
            "hw:cpu_policy": "mixed",
            "hw:cpu_realtime": "yes",
            "hw:emulator_threads_policy": "share",
        },
        {"VCPU": 0, "PCPU": 2},
        *(set(), set(), set()),
    ),
    (
        {"resources:PCPU": "3", "hw:emulator_threads_policy": "isolate"},
        {"VCPU": 0, "PCPU": 3},
        *(set(), set(), set()),
    ),
    ({"hw:cpu_thread_policy": "require"}, {}, {HYPERTHREADING}, set(), set()),
    ({"hw:cpu_thread_policy": "isolate"}, {}, set(), {HYPERTHREADING}, set()),
    ({"hw:cpu_thread_policy": "prefer"}, {}, set(), set(), set()),
    (
        {"hw:cpu_thread_policy": "require", f"trait:{HYPERTHREADING}": "required"},
        {},
        *({HYPERTHREADING}, set(), set()),
    ),
    (
        {"hw:pmem": "6GB,16gb,6gb"},
        {"CUSTOM_PMEM_NAMESPACE_6GB": 2, "CUSTOM_PMEM_NAMESPACE_16GB": 1},
        *(set(), set(), set()),
    ),
    ({"hw:mem_encryption": "True"}, {"MEM_ENCRYPTION_CONTEXT": 1}, {SEV}, set(), set()),
    (
        {"hw:mem_encryption": "1", "hw:mem_encryption_model": "amd-sev-es"},
        {"MEM_ENCRYPTION_CONTEXT": 1},
        *({SEV_ES}, set(), set()),
    ),
    (
        {"hw:mem_encryption": "1", "resources:MEM_ENCRYPTION_CONTEXT": "1"},
        {"MEM_ENCRYPTION_CONTEXT": 1},
        *({SEV}, set(), set()),
    ),
    ({"hw:mem_encryption": "no"}, {}, set(), set(), set()),
    ({"hw:mem_encryption_model": "amd-sev-es"}, {}, set(), set(), set()),
    ({"hw:tpm_version": "2.0"}, {}, TPM_2, set(), {USER}),
    ({"hw:tpm_version": "1.2"}, {}, {f"{TPM}1_2", f"{TPM}TIS"}, set(), {USER}),
    (
        {"hw:tpm_version": "2.0", "hw:tpm_model": "tpm-crb", "hw:tpm_secret_security": "host"},
        {},
        *({f"{TPM}2_0", f"{TPM}CRB"}, set(), {f"{TPM}SECRET_SECURITY_HOST"}),
    ),
    ({"hw:tpm_model": "tpm-crb", "hw:tpm_secret_security": "host"}, {}, set(), set(), set()),
    ({"os:secure_boot": "required"}, {}, {"COMPUTE_SECURITY_UEFI_SECURE_BOOT"}, set(), set()),
    ({"os:secure_boot": "disabled"}, {}, set(), set(), set()),
    ({"hw:maxphysaddr_mode": "emulate"}, {}, {"COMPUTE_ADDRESS_SPACE_EMULATED"}, set(), set()),
    (
        {"hw:maxphysaddr_mode": "passthrough", "hw:maxphysaddr_bits": "42"},
        {},
        *({"COMPUTE_ADDRESS_SPACE_PASSTHROUGH"}, set(), set()),
    ),
    (
        {"hw:pci_numa_affinity_policy": "socket"},
        {},
        *({"COMPUTE_SOCKET_PCI_NUMA_AFFINITY"}, set(), set()),
    ),
    ({"hw:pci_numa_affinity_policy": "required"}, {}, set(), set(), set()),
    ({"hw:ephemeral_encryption": "on"}, {}, set(), set(), {EPHEMERAL}),
    (
        {"hw:ephemeral_encryption": "on", "hw:ephemeral_encryption_format": "luks"},
        {},
        *(set(), set(), {EPHEMERAL, f"{EPHEMERAL}_LUKS"}),
    ),
    ({"hw:ephemeral_encryption_format": "luks"}, {}, set(), set(), set()),
    ({"hw:virtio_packed_ring": "true"}, {}, set(), set(), {"COMPUTE_NET_VIRTIO_PACKED"}),
    ({"hw:sound_model": "virtio"}, {}, set(), set(), {"COMPUTE_SOUND_MODEL_VIRTIO"}),
    ({"hw:sound_model": "ich9"}, {}, set(), set(), set()),
]


@pytest.mark.parametrize(
    ("specs", "resources", "required", "forbidden", "root"),
    TRANSLATED,
    ids=[" ".join(f"{key}={value}" for key, value in row[0].items()) for row in TRANSLATED],
)
def test_extra_spec_of_nova_requests_resources_and_traits(
    specs: dict[str, str],
    resources: dict[str, int],
    required: set[str],
    forbidden: set[str],
    root: set[str],
) -> None:
    request = asked(**specs)
    [group] = request.groups

    assert group.resources == {name: n for name, n in {**OWN, **resources}.items() if n}
    assert group.traits == TraitConditions(
        required=frozenset(required), forbidden=frozenset(forbidden)
    )
    assert request.root == TraitConditions(required=frozenset(root))


def test_translated_table_has_a_case_for_each_key() -> None:
    tested = {key for row in TRANSLATED for key in row[0]}
    elsewhere = {"group_policy", "accel:device_profile"}

    assert tested | elsewhere >= {
        key for spec in known.TRANSLATED for key in spec.keys if "{" not in key
    }


def test_extra_specs_of_nova_apply_beside_a_device_profile() -> None:
    request = with_profile(**{"hw:cpu_policy": "dedicated", "hw:sound_model": "virtio"})

    assert amounts(request)[""] == {"PCPU": 2, "MEMORY_MB": 512}
    assert request.root.required == {"COMPUTE_SOUND_MODEL_VIRTIO"}
    nothing = {"resources:VCPU": "0", "resources:MEMORY_MB": "0", "hw:sound_model": "virtio"}
    assert with_profile(**nothing).root.required == {"COMPUTE_SOUND_MODEL_VIRTIO"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hw:numa_nodes", "2"),
        ("hw:numa_cpus.0", "0-1"),
        ("hw:vif_multiqueue_enabled", "true"),
        ("hw:viommu_model", "virtio"),
        ("quota:disk_read_bytes_sec", "1024"),
        ("aggregate_instance_extra_specs:ssd", "true"),
        ("capabilities:cpu_info:topology:cores", ">= 4"),
        ("hw_rng:allowed", "True"),
        ("hide_hypervisor_id", "true"),
        ("vmware:hw_version", ""),
    ],
)
def test_extra_spec_without_meaning_requests_nothing(key: str, value: str) -> None:
    assert asked(**{key: value}) == asked()


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("hw:cpu_policy", "pinned", "it has to be shared, dedicated or mixed."),
        ("hw:mem_encryption", "maybe", "it has to be true or false."),
        ("hw:numa_nodes", "0", "it has to be a whole number from 1."),
        ("hw:redirected_usb_ports", "16", "it has to be a whole number from 0 to 15."),
        ("hw:redirected_usb_ports", "9" * 5000, "it has to be a whole number from 0 to 15."),
        ("quota:cpu_quota", "much", "it has to be a whole number."),
        ("hw:pmem", ",6GB", "it has to be labels with commas between them: 6GB,16GB."),
        (
            "hw:numa_cpus.1",
            "a",
            "it has to be CPUs of the guest, such as 0-3,6 or, to leave some out, ",
        ),
        ("hide_hypervisor_id", "", "it has to be true or false."),
    ],
)
def test_extra_spec_with_a_value_that_nova_refuses_is_refused(
    key: str, value: str, told: str
) -> None:
    found = refusal(**{key: value})

    assert found[:2] == (key, value)
    assert found[2].startswith(told)


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("hw:cpu_polcy", "Did you mean hw:cpu_policy? "),
        ("HW:cpu_policy", "Did you mean hw:cpu_policy? "),
        ("accel:x", ""),
        ("capabilities:zzz", ""),
        ("hw:numa_cpus.x", "Did you mean hw:numa_cpus.{num}? "),
        ("quota:disk_write_bytes", "Did you mean quota:disk_write_bytes_sec? "),
    ],
)
def test_unknown_key_in_a_namespace_of_nova_is_refused(key: str, hint: str) -> None:
    assert refusal(**{key: "1"}) == (
        key,
        "1",
        f"nova has no extra spec of this name, and its namespace is nova's. {hint}Give a key of "
        "your own a namespace of your own.",
    )


def test_extra_spec_that_names_hardware_of_novas_configuration_is_refused() -> None:
    key, value, problem = refusal(**{"pci_passthrough:alias": "a1:2"})

    assert (key, value) == ("pci_passthrough:alias", "a1:2")
    assert "an alias is defined in the configuration of nova" in problem


@pytest.mark.parametrize(
    ("specs", "key", "told"),
    [
        (
            {"hw:cpu_policy": "dedicated", "resources:PCPU": "2"},
            "resources:PCPU",
            "hw:cpu_policy=dedicated asks for CPUs as well",
        ),
        (
            {"hw:cpu_policy": "shared", "resources_A:VCPU": "2"},
            "resources_A:VCPU",
            "hw:cpu_policy=shared asks for CPUs as well",
        ),
        ({"hw:cpu_policy": "mixed"}, "hw:cpu_policy", "the dedicated CPUs are those of"),
        (
            {
                "hw:cpu_policy": "mixed",
                "hw:cpu_realtime": "true",
                "hw:cpu_realtime_mask": "0",
                "hw:cpu_dedicated_mask": "0",
            },
            "hw:cpu_policy",
            "Set one of the two",
        ),
        ({"hw:cpu_dedicated_mask": "0"}, "hw:cpu_dedicated_mask", "it divides the CPUs of"),
        (
            {"hw:cpu_policy": "mixed", "hw:cpu_realtime": "true"},
            "hw:cpu_realtime_mask",
            "it leaves no CPU for the emulator threads",
        ),
        (
            {"hw:emulator_threads_policy": "isolate"},
            "hw:emulator_threads_policy",
            "set resources:PCPU=3",
        ),
        (
            {"hw:emulator_threads_policy": "isolate", "resources:PCPU": "2"},
            "hw:emulator_threads_policy",
            "need a dedicated CPU",
        ),
        (
            {"hw:tpm_version": "1.2", "hw:tpm_model": "tpm-crb"},
            "hw:tpm_model",
            "a TPM of that version cannot be of this model",
        ),
        (
            {"hw:cpu_thread_policy": "require", f"trait:{HYPERTHREADING}": "forbidden"},
            "hw:cpu_thread_policy",
            f"trait:{HYPERTHREADING} requests the opposite",
        ),
        (
            {"hw:mem_encryption": "true", "resources:MEM_ENCRYPTION_CONTEXT": "2"},
            "hw:mem_encryption",
            "resources:MEM_ENCRYPTION_CONTEXT requests 2. Remove one.",
        ),
        (
            {
                "hw:tpm_version": "2.0",
                "resources:VCPU": "0",
                "resources:MEMORY_MB": "0",
                "resources_A:VGPU": "1",
            },
            "hw:tpm_version",
            "there is no resources: above 0",
        ),
        ({"hw:pmem": "x" * 240}, "hw:pmem", "the name of a resource class"),
    ],
)
def test_extra_specs_that_contradict_each_other_are_refused(
    specs: dict[str, str], key: str, told: str
) -> None:
    found, value, problem = refusal(**specs)

    assert (found, value) == (key, specs.get(key, "") if key[0] == "h" else 2)
    assert told in problem


@pytest.mark.parametrize(
    ("mask", "told"),
    [
        ("0-1", "it leaves no shared CPU"),
        ("2", "the guest has the CPUs 0 to 1"),
        ("1,^1", "the guest has the CPUs 0 to 1"),
        ("1-0", "the range 1-0 ends before it begins"),
        ("0-9999999999", "the guest has the CPUs 0 to 1"),
        ("1-2-3", "it has to be CPUs of the guest"),
    ],
)
def test_dedicated_mask_that_does_not_suit_the_flavor_is_refused(mask: str, told: str) -> None:
    key, value, problem = refusal(**{"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": mask})

    assert (key, value) == ("hw:cpu_dedicated_mask", mask)
    assert told in problem


def test_dedicated_mask_of_a_large_flavor_is_counted() -> None:
    specs = {"hw:cpu_policy": "mixed", "hw:cpu_dedicated_mask": "^0,^5-6"}

    found = amounts(asked({"vcpus": LARGEST}, **specs))[""]

    assert (found["PCPU"], found["VCPU"]) == (LARGEST - 3, 3)


# Random keys and values.


def _nearly(*words: str) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(words) | st.text(max_size=2), max_size=5).map("".join)


KEYS = _nearly("resources", "trait", "_A", "1", ":", "VGPU", "OWNER_NOVA", "group_policy", "accel")
VALUES = _nearly("required", "forbidden", "1", "0", "none", "isolate")


@given(st.dictionaries(KEYS, VALUES, max_size=6))
def test_any_keys_and_values_are_a_request_or_an_error_that_names_one(
    specs: dict[str, str],
) -> None:
    try:
        request = asked(**specs)
    except InvalidRequest as error:
        assert error.subject == "flavor flavor-0"
        assert error.key in {*specs, "group_policy", "resources"} or (
            error.key.startswith("required of ")
        )
    else:
        assert encode(request)


CLASSES = st.sampled_from(["VCPU", "MEMORY_MB", "DISK_GB", "PCPU", "VGPU", "CUSTOM_GOLD"])
SAID = st.dictionaries(
    st.tuples(st.sampled_from(["", "1", "_A"]), CLASSES), st.integers(0, 3), max_size=8
)
FIGURES = st.fixed_dictionaries(
    {
        "vcpus": st.integers(0, 2),
        "memory_mb": st.integers(0, 2),
        "root_gb": st.integers(0, 2),
        "ephemeral_gb": st.integers(0, 2),
        "swap": st.sampled_from([0, 1, 1024, 1025]),
    }
)


@given(SAID, FIGURES)
def test_amounts_equal_those_of_nova(
    said: dict[tuple[str, str], int], figures: dict[str, int]
) -> None:
    specs = {f"resources{suffix}:{kind}": str(it) for (suffix, kind), it in said.items()}
    try:
        found = amounts(asked(figures, **specs, group_policy="none"))
    except InvalidRequest as error:
        assert error.problem == "no resources are requested."
        found = {}

    assert found == _as_nova_does(said, figures)


def _as_nova_does(
    said: dict[tuple[str, str], int], figures: dict[str, int]
) -> dict[str, dict[str, int]]:
    """Return the amounts by nova's documented rules, without code of Wharfinger."""
    wanted: dict[str, dict[str, Any]] = {}
    for (suffix, kind), amount in said.items():
        wanted.setdefault(suffix, {})[kind] = amount
    silent = {"VCPU", "MEMORY_MB", "DISK_GB"} - {kind for _suffix, kind in said}
    if any(kind == "PCPU" for _suffix, kind in said):
        silent -= {"VCPU"}
    swap = figures["swap"] // 1024 + (figures["swap"] % 1024 > 0)
    own = {
        "VCPU": figures["vcpus"],
        "MEMORY_MB": figures["memory_mb"],
        "DISK_GB": figures["root_gb"] + figures["ephemeral_gb"] + swap,
    }
    wanted.setdefault("", {}).update({kind: own[kind] for kind in silent})
    positive = {
        suffix: {kind: amount for kind, amount in its.items() if amount}
        for suffix, its in wanted.items()
    }
    return {suffix: its for suffix, its in positive.items() if its}
