"""Check extra specs, and translate them to resources and traits. Pure.

The caller handles keys such as resources:VCPU and trait1:HW_A.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final

import os_resource_classes as orc

from wharfinger.objects import Flavor
from wharfinger.scheduling import known_extra_specs as known
from wharfinger.scheduling.known_extra_specs import Asked, ExtraSpec
from wharfinger.scheduling.request import invalid

_DEDICATED: Final = ("dedicated", "mixed")


def check(key: str, value: str) -> str | None:
    """Return the value's usual form; None for an unknown key outside nova's namespaces.

    Raises InvalidRequest.
    """
    spec = known.find(key)
    if spec is None:
        if not known.is_of_nova(key):
            return None
        nearest = known.nearest(key)
        hint = f"Did you mean {nearest}? " if nearest else ""
        raise invalid(
            key,
            value,
            f"nova has no extra spec of this name, and its namespace is nova's. {hint}"
            "Give a key of your own a namespace of your own.",
        )
    if spec in known.REFUSED:
        raise invalid(key, value, spec.says)
    usual = spec.values.read(value)
    if usual is None:
        raise invalid(key, value, f"it has to be {spec.values.says}.")
    return usual


def asked(
    flavor: Flavor, values: Mapping[str, str], cpus: Mapping[str, tuple[str, int]]
) -> Iterator[tuple[str, Asked]]:
    """Yield keys of extra specs, and what they request. Raises InvalidRequest.

    ``cpus`` are CPUs that groups request: key and amount by class.
    """
    if resources := dict(_cpus(flavor, values, cpus)):
        yield known.CPU_POLICY, Asked(resources=resources)
    if pmem := _pmem(values.get(known.PMEM, "")):
        yield known.PMEM, Asked(resources=pmem)
    if values.get(known.TPM_MODEL) == "tpm-crb" and values.get(known.TPM_VERSION) == "1.2":
        raise invalid(
            known.TPM_MODEL,
            "tpm-crb",
            f"{known.TPM_VERSION} is 1.2, and a TPM of that version cannot be of this model. Use "
            "tpm-tis, or version 2.0.",
        )
    for spec in known.TRANSLATED:
        if found := _asked_by(spec, values):
            [key] = spec.keys
            yield key if key in values else spec.only_with or key, found


def _asked_by(spec: ExtraSpec, values: Mapping[str, str]) -> Asked | None:
    [key] = spec.keys
    if spec.only_with is not None:
        condition = known.find(spec.only_with)
        if condition is None or _asked_by(condition, values) is None:
            return None
    value = values.get(key, spec.default)
    return None if value is None else spec.asks.get(value)


def _cpus(
    flavor: Flavor, values: Mapping[str, str], cpus: Mapping[str, tuple[str, int]]
) -> Iterator[tuple[str, int]]:
    policy = values.get(known.CPU_POLICY)
    if policy and cpus:
        key, amount = next(iter(cpus.values()))
        raise invalid(
            key, amount, f"{known.CPU_POLICY}={policy} asks for CPUs as well. Remove one of them."
        )
    _check_isolation(flavor, values, cpus)
    dedicated = flavor.vcpus
    if policy == "mixed":
        dedicated = _dedicated(flavor, values)
        yield orc.VCPU, flavor.vcpus - dedicated
    elif mask := values.get(known.DEDICATED_MASK):
        raise invalid(
            known.DEDICATED_MASK,
            mask,
            f"it divides the CPUs of {known.CPU_POLICY}=mixed, and the flavor does not have that. "
            "Set the policy, or remove the mask.",
        )
    if policy in _DEDICATED:
        yield orc.PCPU, dedicated + (values.get(known.EMULATOR_THREADS) == "isolate")


def _check_isolation(
    flavor: Flavor, values: Mapping[str, str], cpus: Mapping[str, tuple[str, int]]
) -> None:
    if values.get(known.EMULATOR_THREADS) != "isolate":
        return
    enough = flavor.vcpus + 1
    _key, amount = cpus.get(orc.PCPU, ("", 0))
    if values.get(known.CPU_POLICY) not in _DEDICATED and amount != enough:
        raise invalid(
            known.EMULATOR_THREADS,
            "isolate",
            "the emulator threads need a dedicated CPU, but the flavor requests none for them. Set "
            f"{known.CPU_POLICY} to dedicated or mixed, or set resources:PCPU={enough}.",
        )


def _dedicated(flavor: Flavor, values: Mapping[str, str]) -> int:
    dedicated, mask = known.DEDICATED_MASK, values.get(known.DEDICATED_MASK)
    is_realtime = values.get(known.REALTIME) == "true"
    if (mask is None) != is_realtime:
        raise invalid(
            known.CPU_POLICY,
            "mixed",
            f"the dedicated CPUs are those of {dedicated}, or of {known.REALTIME}=true with "
            f"{known.REALTIME_MASK}. Set one of the two.",
        )
    if mask is not None:
        count = _count_in_mask(dedicated, mask, flavor.vcpus)
        if count < flavor.vcpus:
            return count
        problem = "it leaves no shared CPU. Omit one, or set the policy to dedicated."
        raise invalid(dedicated, mask, problem)
    mask = values.get(known.REALTIME_MASK)
    count = (
        flavor.vcpus if mask is None else _count_in_mask(known.REALTIME_MASK, mask, flavor.vcpus)
    )
    if count == flavor.vcpus and known.EMULATOR_THREADS not in values:
        raise invalid(
            known.REALTIME_MASK,
            mask or "",
            "it leaves no CPU for the emulator threads. Omit one, or set "
            f"{known.EMULATOR_THREADS}.",
        )
    return count


def _count_in_mask(key: str, mask: str, vcpus: int) -> int:
    # Ranges are not expanded, since their ends may be large numbers.
    if mask.startswith("^"):
        mask = f"0-{vcpus - 1},{mask}"
    included: list[range] = []
    excluded: list[range] = []
    for item in mask.split(","):
        first, _dash, last = item.removeprefix("^").partition("-")
        cpus = range(int(first), int(last or first) + 1)
        if not cpus:
            raise invalid(key, mask, f"the range {item} ends before it begins.")
        (excluded if item.startswith("^") else included).append(cpus)
    edges = sorted({edge for one in included + excluded for edge in (one.start, one.stop)})
    marked = [
        range(start, end)
        for start, end in pairwise(edges)
        if any(start in one for one in included) and not any(start in one for one in excluded)
    ]
    if not marked or marked[-1].stop > vcpus:
        raise invalid(key, mask, f"the guest has the CPUs 0 to {vcpus - 1}: mark some of these.")
    return sum(map(len, marked))


def _pmem(labels: str) -> Counter[str]:
    return Counter(
        orc.normalize_name(f"PMEM_NAMESPACE_{label}") for label in labels.split(",") if label
    )
