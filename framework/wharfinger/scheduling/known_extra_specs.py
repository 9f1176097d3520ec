"""The extra specs that nova 34 knows, and what they request."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final

import os_resource_classes as orc
import os_traits

from wharfinger.scheduling.spec_values import CPUS, FLAG, TEXT, Values, matching, one_of, whole

GROUP_POLICY: Final = "group_policy"
DEVICE_PROFILE: Final = "accel:device_profile"
CPU_POLICY: Final = "hw:cpu_policy"
DEDICATED_MASK: Final = "hw:cpu_dedicated_mask"
EMULATOR_THREADS: Final = "hw:emulator_threads_policy"
EPHEMERAL_ENCRYPTION: Final = "hw:ephemeral_encryption"
MEM_ENCRYPTION: Final = "hw:mem_encryption"
PMEM: Final = "hw:pmem"
REALTIME: Final = "hw:cpu_realtime"
REALTIME_MASK: Final = "hw:cpu_realtime_mask"
TPM_MODEL: Final = "hw:tpm_model"
TPM_VERSION: Final = "hw:tpm_version"

#: Regular expressions for the placeholders.
_PLACEHOLDERS: Final = {
    "{class}": r".*",
    "{group}": r"[a-zA-Z0-9_-]{0,64}",
    "{key}": r".+",
    "{num}": r"\d+",
    "{path}": r"(?::\w+)*",
    "{trait}": r".*",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Resources and traits that one value of an extra spec requests.

    ``root`` are traits of the root provider.
    """

    resources: Mapping[str, int] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    forbidden: frozenset[str] = frozenset()
    root: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtraSpec:
    """One or several extra specs with the same values and meaning.

    They count only if the extra spec ``only_with`` requests something.
    """

    keys: tuple[str, ...]
    values: Values
    says: str = ""
    #: The requests of values; other values request nothing.
    asks: Mapping[str, Asked] = field(default_factory=dict)
    only_with: str | None = None
    #: The value if a flavor lacks the extra spec.
    default: str | None = None


def _translated(key: str, values: Values, says: str = "") -> ExtraSpec:
    return ExtraSpec(keys=(key,), values=values, says=says)


def _asking(
    key: str,
    asks: Mapping[str, Asked],
    *other_values: str,
    only_with: str | None = None,
    default: str | None = None,
) -> ExtraSpec:
    values = FLAG if asks.keys() == {"true"} else one_of(*asks, *other_values)
    return ExtraSpec(keys=(key,), values=values, asks=asks, only_with=only_with, default=default)


def _required(trait: str) -> Asked:
    return Asked(required=frozenset([trait]))


def _of_root(trait: str) -> Asked:
    return Asked(root=frozenset([trait]))


#: Extra specs that are translated to resources and traits of a request.
TRANSLATED: Final = (
    _translated(
        "resources{group}:{class}",
        whole(0),
        "This amount of the resource class, in the group. 0 removes the amount that the flavor "
        "itself asks for.",
    ),
    _translated(
        "trait{group}:{trait}",
        one_of("required", "forbidden"),
        "The trait is required or forbidden in the group.",
    ),
    _translated(
        GROUP_POLICY,
        one_of("none", "isolate"),
        "Whether one provider may serve several groups with suffixes.",
    ),
    _translated(
        DEVICE_PROFILE,
        TEXT,
        "The groups of Cyborg's device profile. nova also requires ``COMPUTE_ACCELERATORS`` of "
        "the root, since its compute service attaches the devices. Here the root may be another "
        "program's, so the trait is not required.",
    ),
    _translated(
        CPU_POLICY,
        one_of("shared", "dedicated", "mixed"),
        "``dedicated``: ``PCPU`` in place of ``VCPU``. ``mixed``: ``PCPU`` for the CPUs of "
        f"``{DEDICATED_MASK}`` or, with ``{REALTIME}``, of ``{REALTIME_MASK}``; ``VCPU`` for the "
        "others. Refused beside ``resources:VCPU`` and ``resources:PCPU``.",
    ),
    _translated(
        DEDICATED_MASK, CPUS, f"The dedicated CPUs of ``{CPU_POLICY}=mixed``. Refused without it."
    ),
    _translated(REALTIME, FLAG, f"See ``{CPU_POLICY}=mixed``."),
    _translated(REALTIME_MASK, CPUS, f"See ``{CPU_POLICY}=mixed``."),
    _translated(
        EMULATOR_THREADS,
        one_of("isolate", "share"),
        "``isolate``: one ``PCPU`` more. Refused without dedicated CPUs.",
    ),
    _asking(
        "hw:cpu_thread_policy",
        {
            "require": _required(os_traits.HW_CPU_HYPERTHREADING),
            "isolate": Asked(forbidden=frozenset([os_traits.HW_CPU_HYPERTHREADING])),
        },
        "prefer",
    ),
    _translated(
        PMEM,
        matching(r"[a-zA-Z0-9_]+(,[a-zA-Z0-9_]+)*,?", "labels with commas between them: 6GB,16GB"),
        "``CUSTOM_PMEM_NAMESPACE_<LABEL>=1`` for each label.",
    ),
    _asking(MEM_ENCRYPTION, {"true": Asked(resources={orc.MEM_ENCRYPTION_CONTEXT: 1})}),
    _asking(
        "hw:mem_encryption_model",
        {
            "amd-sev": _required(os_traits.HW_CPU_X86_AMD_SEV),
            "amd-sev-es": _required(os_traits.HW_CPU_X86_AMD_SEV_ES),
            "amd-sev-snp": _required(os_traits.HW_CPU_X86_AMD_SEV_SNP),
            "intel-tdx": _required(os_traits.HW_CPU_X86_INTEL_TDX),
        },
        only_with=MEM_ENCRYPTION,
        default="amd-sev",
    ),
    _asking(
        TPM_VERSION,
        {
            "1.2": _required(os_traits.COMPUTE_SECURITY_TPM_1_2),
            "2.0": _required(os_traits.COMPUTE_SECURITY_TPM_2_0),
        },
    ),
    _asking(
        TPM_MODEL,
        {
            "tpm-tis": _required(os_traits.COMPUTE_SECURITY_TPM_TIS),
            "tpm-crb": _required(os_traits.COMPUTE_SECURITY_TPM_CRB),
        },
        only_with=TPM_VERSION,
        default="tpm-tis",
    ),
    _asking(
        "hw:tpm_secret_security",
        {
            "user": _of_root(os_traits.COMPUTE_SECURITY_TPM_SECRET_SECURITY_USER),
            "host": _of_root(os_traits.COMPUTE_SECURITY_TPM_SECRET_SECURITY_HOST),
            "deployment": _of_root(os_traits.COMPUTE_SECURITY_TPM_SECRET_SECURITY_DEPLOYMENT),
        },
        only_with=TPM_VERSION,
        default="user",
    ),
    _asking(
        "os:secure_boot",
        {"required": _required(os_traits.COMPUTE_SECURITY_UEFI_SECURE_BOOT)},
        "disabled",
    ),
    _asking(
        "hw:maxphysaddr_mode",
        {
            "passthrough": _required(os_traits.COMPUTE_ADDRESS_SPACE_PASSTHROUGH),
            "emulate": _required(os_traits.COMPUTE_ADDRESS_SPACE_EMULATED),
        },
    ),
    _asking(
        "hw:pci_numa_affinity_policy",
        {"socket": _required(os_traits.COMPUTE_SOCKET_PCI_NUMA_AFFINITY)},
        *("required", "preferred", "legacy"),
    ),
    _asking(EPHEMERAL_ENCRYPTION, {"true": _of_root(os_traits.COMPUTE_EPHEMERAL_ENCRYPTION)}),
    _asking(
        "hw:ephemeral_encryption_format",
        {
            "plain": _of_root(os_traits.COMPUTE_EPHEMERAL_ENCRYPTION_PLAIN),
            "luks": _of_root(os_traits.COMPUTE_EPHEMERAL_ENCRYPTION_LUKS),
            "luksv2": _of_root(os_traits.COMPUTE_EPHEMERAL_ENCRYPTION_LUKSV2),
        },
        only_with=EPHEMERAL_ENCRYPTION,
    ),
    _asking("hw:virtio_packed_ring", {"true": _of_root(os_traits.COMPUTE_NET_VIRTIO_PACKED)}),
    _asking(
        "hw:sound_model",
        {"virtio": _of_root(os_traits.COMPUTE_SOUND_MODEL_VIRTIO)},
        *("sb16", "es1370", "pcspk", "ac97", "ich6", "ich9", "usb"),
    ),
)

_FILTERED: Final = (
    "The scheduler of nova compares it with each host after Placement has answered. Wharfinger "
    "does not: use a trait."
)
_GUEST: Final = "The host uses it to configure the guest."
_NUMA: Final = "Placement does not divide the CPUs and the memory of a host. nova-compute does."
_QUOTA: Final = "The host uses it to limit the guest."
_VMWARE_SHARES: Final = ("cpu", "memory", "disk_io", "vif")


def _ignored(says: str, values: Values, *keys: str) -> ExtraSpec:
    return ExtraSpec(keys=keys, values=values, says=says)


#: Extra specs that request nothing from Placement. Their values are checked, too.
WITHOUT_MEANING: Final = (
    _ignored(
        _NUMA,
        whole(1),
        *("hw:numa_nodes", "hw:numa_mem.{num}", "hw:cpu_sockets", "hw:cpu_cores", "hw:cpu_threads"),
        *("hw:cpu_max_sockets", "hw:cpu_max_cores", "hw:cpu_max_threads"),
    ),
    _ignored(_NUMA, CPUS, "hw:numa_cpus.{num}"),
    _ignored(
        _NUMA,
        matching(
            r"large|small|any|\d+([kKMGT]i?)?(b|bit|B)?", "large, small, any or a size such as 2MB"
        ),
        "hw:mem_page_size",
    ),
    _ignored(
        _GUEST,
        FLAG,
        *("hw:boot_menu", "hw:hide_hypervisor_id", "hide_hypervisor_id", "hw:locked_memory"),
        *("hw:pmu", "hw:vif_multiqueue_enabled", "hw_rng:allowed"),
    ),
    _ignored(
        _GUEST,
        whole(0),
        *("hw:serial_port_count", "hw_rng:rate_bytes", "hw_rng:rate_period"),
        "hw_video:ram_max_mb",
    ),
    _ignored(_GUEST, whole(0, 15), "hw:redirected_usb_ports"),
    _ignored(_GUEST, one_of("none", "nec-xhci", "qemu-xhci"), "hw:usb_model"),
    _ignored(
        "The host configures the guest with it. nova asks Placement for a model only if the image "
        "names one.",
        one_of("intel", "smmuv3", "virtio", "auto"),
        "hw:viommu_model",
    ),
    _ignored(
        _GUEST, one_of("none", "pause", "poweroff", "reset", "disabled"), "hw:watchdog_action"
    ),
    _ignored(_GUEST, TEXT, "vmware:hw_version", "vmware:storage_policy"),
    _ignored(_FILTERED, whole(1), "hw:maxphysaddr_bits"),
    _ignored(_FILTERED, TEXT, "aggregate_instance_extra_specs:{key}"),
    _ignored(
        _FILTERED,
        TEXT,
        *(
            f"capabilities:{name}"
            for name in (
                *("id", "uuid", "service_id", "host", "vcpus", "memory_mb", "local_gb"),
                *("vcpus_used", "memory_mb_used", "local_gb_used", "hypervisor_type"),
                *("hypervisor_version", "hypervisor_hostname", "free_ram_mb", "free_disk_gb"),
                *("current_workload", "running_vms", "disk_available_least", "host_ip", "mapped"),
                *("cpu_allocation_ratio", "ram_allocation_ratio", "disk_allocation_ratio"),
                *("total_usable_ram_mb", "total_usable_disk_gb", "disk_mb_used", "free_disk_mb"),
                *("vcpus_total", "num_instances", "num_io_ops", "failed_builds", "aggregates"),
                *("cell_uuid", "updated", "cpu_info{path}", "metrics{path}", "stats{path}"),
                *("numa_topology{path}", "supported_hv_specs{path}", "pci_device_pools{path}"),
                *("nodename{path}", "pci_stats{path}", "supported_instances{path}"),
                *("limits{path}", "instances{path}"),
            )
        ),
    ),
    _ignored(
        "The ironic driver of nova passes it to Ironic, which configures the node with it.",
        TEXT,
        *("capabilities:boot_mode", "capabilities:secure_boot", "capabilities:disk_label"),
    ),
    _ignored(
        _QUOTA,
        whole(0),
        *(f"quota:{kind}_limit" for kind in _VMWARE_SHARES),
        *(f"quota:{kind}_shares_share" for kind in _VMWARE_SHARES),
        *("quota:cpu_shares", "quota:cpu_period"),
        *(
            f"quota:disk_{access}_{unit}_sec"
            for access in ("read", "write", "total")
            for unit in ("bytes", "iops")
        ),
        *(
            f"quota:vif_{way}_{rate}"
            for way in ("inbound", "outbound")
            for rate in ("average", "peak", "burst")
        ),
    ),
    _ignored(
        _QUOTA,
        whole(),
        *(f"quota:{kind}_reservation" for kind in _VMWARE_SHARES),
        "quota:cpu_quota",
    ),
    _ignored(
        _QUOTA,
        one_of("custom", "high", "normal", "low"),
        *(f"quota:{kind}_shares_level" for kind in _VMWARE_SHARES),
    ),
)

#: Extra specs that request hardware which a request to Placement cannot name.
REFUSED: Final = (
    ExtraSpec(
        keys=("pci_passthrough:alias",),
        values=TEXT,
        says="an alias is defined in the configuration of nova, which is not read here. Ask for "
        "the resource class of the devices, such as resources_PCI:CUSTOM_PCI_10DE_1EB8=1.",
    ),
)

#: The extra specs of all tables, by key.
KEYS: Final = {
    key: spec
    for table in (TRANSLATED, WITHOUT_MEANING, REFUSED)
    for spec in table
    for key in spec.keys
}
_PATTERNS: Final = [
    (
        re.compile(
            "".join(
                _PLACEHOLDERS.get(part) or re.escape(part) for part in re.split(r"(\{\w+\})", key)
            )
        ),
        spec,
    )
    for key, spec in KEYS.items()
    if "{" in key
]
#: The namespaces of nova's extra specs, except those of request groups: resources and trait.
NAMESPACES: Final = {
    key.partition(":")[0] for key in KEYS if ":" in key and "{" not in key.partition(":")[0]
}


def find(key: str) -> ExtraSpec | None:
    """Return the extra spec with this key, or None."""
    if key in KEYS:
        return KEYS[key]
    return next((spec for pattern, spec in _PATTERNS if pattern.fullmatch(key)), None)


def is_of_nova(key: str) -> bool:
    """Return whether a key's namespace is nova's, such as hw, but not resources or trait."""
    namespace, separator, _name = key.partition(":")
    return bool(separator) and namespace.strip().lower() in NAMESPACES


def nearest(key: str) -> str | None:
    """Return the most similar key of the same namespace, or None."""
    namespace, _colon, name = key.partition(":")
    prefix = f"{namespace.strip().lower()}:"
    names = [one.removeprefix(prefix) for one in KEYS if one.startswith(prefix)]
    return next((f"{prefix}{one}" for one in get_close_matches(name, names, 1)), None)
