"""Extra specs mean the same to Wharfinger as to nova 34, whose own code the tests call."""

import os
import re
from collections import Counter
from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

pytest.importorskip("nova", reason="nova is installed in the tox environment nova alone")

from nova import exception, objects
from nova.api.validation.extra_specs import validators
from nova.scheduler import request_filter
from nova.scheduler.utils import ResourceRequest as NovaRequest
from nova.virt import hardware

from tests.functional.scheduling.hosts import publish_owners
from tests.lab import samples
from tests.lab.placement import adapter_to
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.exceptions import InvalidRequest
from wharfinger.scheduling import RequestGroup, ResourceRequest
from wharfinger.scheduling import known_extra_specs as known
from wharfinger.scheduling.flavor_request import from_flavor, split
from wharfinger.scheduling.nova_flavors import confined
from wharfinger.scheduling.ungrouped_extra_specs import check

if TYPE_CHECKING:
    from tests.lab.nova_services import Nova

objects.register_all()

#: Extra specs that nova reads or passes to Ironic, but does not validate.
NOT_VALIDATED = {
    "hw:maxphysaddr_mode",
    "hw:maxphysaddr_bits",
    "capabilities:boot_mode",
    "capabilities:secure_boot",
    "capabilities:disk_label",
}
#: Nova's filters that read extra specs, except the one for accelerators.
FILTERS = (
    request_filter.packed_virtqueue_filter,
    request_filter.ephemeral_encryption_filter,
    request_filter.virtio_sound_filter,
    request_filter.tpm_secret_security_filter,
)
#: A trait that nova requests because of the image, and not because of extra specs.
STATELESS = "COMPUTE_SECURITY_STATELESS_FIRMWARE"
PROFILE = ResourceRequest(groups=(RequestGroup(suffix="device_profile_0", resources={"FPGA": 1}),))
#: The number of flavors and of values to compare.
EXAMPLES = int(os.environ.get("WHARFINGER_EXAMPLES", "300"))
MASKS = ["0", "^0", "0-1", "0-3", "0-3,^1", "1-2", "^0-1", "2,3", "0-5", "3-1", "^0,^1,^2,^3"]
#: Examples for the placeholders in names of validators.
PARTS = {
    "group": ["", "_A", "1"],
    "num": ["0", "1"],
    "filter": ["", ":model"],
    "key": ["ssd"],
    "resource": ["GOLD", "PMEM_NAMESPACE_6GB"],
    "trait": ["FAST"],
}


def _written_out(name: str) -> list[str]:
    """Return the keys of a validator, with examples for its placeholders."""
    found = [name]
    for part in re.findall(r"{(\w+)}", name):
        found = [one.replace(f"{{{part}}}", value) for one in found for value in PARTS[part]]
    return found


KEYS = {
    key: validator
    for name, validator in validators.VALIDATORS.items()
    for key in _written_out(name)
}


# Tables of known extra specs.


def test_each_extra_spec_of_nova_is_in_one_table() -> None:
    tables = [known.TRANSLATED, known.WITHOUT_MEANING, known.REFUSED]
    found = {
        key: [spec for table in tables for spec in table if known.find(key) is spec] for key in KEYS
    }

    assert [key for key, specs in found.items() if len(specs) != 1] == []
    ours = [key for table in tables for spec in table for key in spec.keys]
    assert len(ours) == len(set(ours))


def test_tables_have_only_extra_specs_that_nova_knows() -> None:
    used = {id(known.find(key)) for key in KEYS}
    by_form = {key for key in known.KEYS if "{" in key}
    listed = {key for key in known.KEYS if "{" not in key}

    assert listed - KEYS.keys() == NOT_VALIDATED
    assert all(id(known.find(key)) in used for key in by_form)


def test_namespaces_are_those_of_nova() -> None:
    names = {name for name in validators.NAMESPACES if "(" not in name}

    assert names == known.NAMESPACES


# Values.


def nova_takes(key: str, value: str) -> bool:
    try:
        validators.validate(key, value)
    except exception.ValidationError:
        return False
    return True


def we_take(key: str, value: str) -> bool:
    try:
        check(key, value)
    except InvalidRequest:
        return False
    return True


ANY_VALUE = st.one_of(
    st.text(max_size=6),
    st.integers(-3, 20).map(str),
    st.from_regex(r"\^?\d{1,3}(-\d{1,3}|,\^?\d{1,3})*", fullmatch=True),
    st.sampled_from(
        [
            *("true", "Yes", "0", "off", "maybe", " on ", "required", "forbidden", "socket"),
            *("large", "2MB", "2M", "4Kib", "1GiB", "6GB,16GB", "6GB,", ",6GB", "any", "auto"),
            *("virtio", "usb", "none", "isolate", "luks", "2.0", "tpm-crb", "user", "mixed"),
            *("+1", "1_0", "1.0", "", "custom", "reset", "amd-sev", "prefer", "nec-xhci"),
        ]
    ),
)
#: Keys without those of groups, such as resources:VGPU.
PLAIN = sorted(key for key in KEYS if not split(key))


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.sampled_from(PLAIN), ANY_VALUE)
def test_value_is_accepted_if_nova_accepts_it(key: str, value: str) -> None:
    if key in known.find("pci_passthrough:alias").keys:  # type: ignore[union-attr]
        assert not we_take(key, value)
    elif "-" in value and re.search(r"-\d+-", value):
        # Nova's validator accepts the CPUs 1-2-3, but its parser fails.
        assert not (we_take(key, value) and not nova_takes(key, value))
    else:
        assert we_take(key, value) == nova_takes(key, value)


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    st.sampled_from(sorted(validators.NAMESPACES)),
    st.from_regex(r"[a-z_:.]{1,12}", fullmatch=True),
)
def test_key_of_no_table_is_accepted_if_nova_accepts_it(namespace: str, name: str) -> None:
    key = f"{namespace.partition('(')[0]}:{name}"
    if split(key) or key in NOT_VALIDATED:
        return
    assert we_take(key, "1") == (nova_takes(key, "1") and not key.startswith("pci_"))


@pytest.mark.parametrize("key", ["mycompany:foo", "foo", "hide", "mycompany:hw:cpu_policy"])
def test_keys_of_operators_are_accepted_by_both(key: str) -> None:
    assert nova_takes(key, "1")
    assert we_take(key, "1")


# Requests.


def values_of(key: str) -> st.SearchStrategy[str]:
    """Return a strategy for values that nova's validator accepts."""
    says = KEYS[key].value
    if key in (known.DEDICATED_MASK, known.REALTIME_MASK):
        return st.sampled_from(MASKS)
    if key == known.PMEM:
        return st.sampled_from(["6GB", "6GB,16GB", "6GB,6gb", "a,"])
    if says["type"] is bool:
        return st.sampled_from(["true", "false", "Yes", "0", "on", "n"])
    if says["type"] is int:
        return st.integers(says.get("min", 0), says.get("max", 4)).map(str)
    if says.get("enum"):
        return st.sampled_from(sorted(says["enum"]))
    return st.sampled_from(["0-1", "2MB", "large", "a:1", "profile"]).filter(
        lambda value: nova_takes(key, value)
    )


CLASSES = {"VCPU", "PCPU", "VGPU", "MEMORY_MB", "DISK_GB", "MEM_ENCRYPTION_CONTEXT"}
TRAITS = {"HW_CPU_HYPERTHREADING", "HW_CPU_X86_AMD_SEV", "COMPUTE_SECURITY_TPM_2_0"}


def _is_in_use(key: str) -> bool:
    """Return whether the flavors in these tests may have this key."""
    name = key.partition(":")[2]
    return not split(key) or name in CLASSES | TRAITS or name.startswith("CUSTOM_")


OTHERS = sorted(key for key in KEYS if _is_in_use(key) and known.find(key) in known.WITHOUT_MEANING)
GROUPS = sorted(key for key in KEYS if _is_in_use(key) and split(key))
CPU_KEYS = [
    *(known.CPU_POLICY, known.DEDICATED_MASK, known.REALTIME, known.REALTIME_MASK),
    *(known.EMULATOR_THREADS, "hw:cpu_thread_policy"),
]


MATTERING = sorted(
    key
    for key in KEYS
    if not split(key) and key not in CPU_KEYS and known.find(key) in known.TRANSLATED
)
#: Extra specs of CPUs that fit together, by CPU policy; the last ones fit any policy.
CPU_CHOICES: list[list[dict[str, str]]] = [
    [{}],
    [{known.CPU_POLICY: "shared"}],
    [
        {known.CPU_POLICY: "dedicated"},
        {known.CPU_POLICY: "dedicated", known.EMULATOR_THREADS: "isolate"},
        {known.CPU_POLICY: "dedicated", "hw:cpu_thread_policy": "require"},
        {known.CPU_POLICY: "dedicated", "hw:cpu_thread_policy": "isolate"},
    ],
    [{known.CPU_POLICY: "mixed", known.DEDICATED_MASK: mask} for mask in MASKS],
    [
        {known.CPU_POLICY: "mixed", known.REALTIME: "1", known.REALTIME_MASK: mask, **more}
        for mask in MASKS
        for more in ({}, {known.EMULATOR_THREADS: "isolate"}, {known.EMULATOR_THREADS: "share"})
    ],
]


@st.composite
def extra_specs(draw: st.DrawFn) -> dict[str, str]:
    keys = draw(st.lists(st.sampled_from(MATTERING), max_size=6, unique=True))
    keys += draw(st.lists(st.sampled_from(GROUPS), max_size=3, unique=True))
    keys += draw(st.lists(st.sampled_from(OTHERS), max_size=3, unique=True))
    if draw(st.integers(0, 4)) == 0:
        keys += draw(st.lists(st.sampled_from(CPU_KEYS), max_size=3, unique=True))
    specs = {key: draw(values_of(key)) for key in dict.fromkeys(keys)}
    specs |= draw(st.sampled_from(CPU_CHOICES).flatmap(st.sampled_from))
    if draw(st.booleans()):
        specs["hw:maxphysaddr_mode"] = draw(st.sampled_from(["passthrough", "emulate"]))
    if draw(st.integers(0, 4)):
        # Make the groups valid for Placement: each requests an amount, and there is a policy.
        for _kind, suffix, _name in filter(None, map(split, list(specs))):
            specs.setdefault(f"resources{suffix}:VGPU", "1")
        specs.setdefault("group_policy", "none")
    return specs


def image(specs: Mapping[str, str]) -> objects.ImageMeta:
    """Return an image that suits the flavor: encrypted memory needs a kind of firmware."""
    properties: dict[str, Any] = {"hw_firmware_type": "uefi"}
    if specs.get("hw:mem_encryption_model") in ("amd-sev-snp", "intel-tdx"):
        properties |= {"hw_firmware_stateless": True, "hw_video_model": "none"}
    return objects.ImageMeta(
        id=samples.uuid("image"), name="image", properties=objects.ImageMetaProps(**properties)
    )


def nova_asks(
    figures: Mapping[str, int], specs: dict[str, str], root_required: Set[str] = frozenset()
) -> tuple[NovaRequest, bool]:
    """Return nova's request for the flavor, and whether nova's API accepts the flavor."""
    flavor = objects.Flavor(
        id=1, name="flavor", flavorid="1", rxtx_factor=1.0, extra_specs=specs, **figures
    )
    spec = objects.RequestSpec(
        flavor=flavor,
        image=image(specs),
        is_bfv=False,
        requested_resources=[],
        request_level_params=objects.RequestLevelParams(root_required=set(root_required)),
    )
    try:
        hardware.numa_get_constraints(flavor, spec.image)
        passes = True
    except exception.NovaException:
        passes = False
    for one in FILTERS:
        one(None, spec)
    return NovaRequest.from_request_spec(spec), passes


Groups = dict[str, tuple[dict[str, int], set[str], set[str]]]


def nova_groups(query: str) -> tuple[Groups, set[str]]:
    """Return resources, required and forbidden traits by suffix, and the root's traits."""
    groups: Groups = {}
    root: set[str] = set()
    for key, value in parse_qsl(query):
        if key == "root_required":
            root |= set(value.split(","))
        elif match := re.fullmatch(r"(resources|required)(.*)", key):
            resources, required, forbidden = groups.setdefault(match[2], ({}, set(), set()))
            for item in value.split(","):
                if match[1] == "resources":
                    name, _colon, amount = item.partition(":")
                    resources[name] = int(amount)
                elif item != STATELESS:
                    (forbidden if item[0] == "!" else required).add(item.removeprefix("!"))
    return groups, root


def our_groups(request: ResourceRequest) -> tuple[Groups, set[str]]:
    return {
        one.suffix: (dict(one.resources), set(one.traits.required), set(one.traits.forbidden))
        for one in request.groups
        if one not in PROFILE.groups
    }, set(request.root.required)


def differs_on_purpose(specs: Mapping[str, str], groups: Groups, error: InvalidRequest) -> bool:
    """Return whether only Wharfinger raises this error, as the documentation says."""
    lists: list[bool] = [
        # Placement would refuse the request: a group without resources, a trait that is required
        # and forbidden, several groups without a policy, or no group.
        any(not resources for resources, _required, _forbidden in groups.values()),
        any(required & forbidden for _resources, required, forbidden in groups.values()),
        sum(map(bool, groups)) > 1 and "group_policy" not in specs,
        not groups,
        # Two keys request different amounts for one group. Nova uses one of them.
        "Remove one." in error.problem and "it requests" in error.problem,
        # Nova ignores CPUs of a group whose suffix is not a number.
        error.key in ("resources_A:VCPU", "resources_A:PCPU"),
        # Nova does not add the CPUs of emulator threads to such a group, either.
        error.key == known.EMULATOR_THREADS and any("_A:PCPU" in key for key in specs),
    ]
    return any(lists)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.fixed_dictionaries(
        {
            "vcpus": st.integers(1, 6),
            "memory_mb": st.sampled_from([512, 1024]),
            "root_gb": st.integers(0, 2),
            "ephemeral_gb": st.integers(0, 2),
            "swap": st.sampled_from([0, 1, 1024]),
        }
    ),
    extra_specs(),
)
def test_flavor_requests_the_same_as_in_nova(
    figures: dict[str, int], specs: dict[str, str]
) -> None:
    assert all(nova_takes(key, value) for key, value in specs.items() if key not in NOT_VALIDATED)
    flavor = samples.flavor(None, extra_specs=specs, **figures)
    flavor.obj_set_defaults()
    try:
        theirs, passes = nova_asks(figures, specs)
    except exception.NovaException:
        with pytest.raises(InvalidRequest):
            from_flavor(flavor, lambda _name: PROFILE)
        event("both refuse")
        return
    groups, root = nova_groups(theirs.to_querystring())
    try:
        ours = from_flavor(flavor, lambda _name: PROFILE)
    except InvalidRequest as error:
        assert not passes or differs_on_purpose(specs, groups, error), error
        event("refused here and by nova's API" if not passes else "refused here on purpose")
        return
    assert our_groups(ours) == (groups, root)
    if sum(map(bool, groups)) > 1:
        assert ours.group_policy == theirs.group_policy
    event("the same request" if passes else "the same request, which nova's API refuses")


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(extra_specs())
def test_confined_flavor_requests_in_nova_the_same_amounts_from_novas_providers(
    specs: dict[str, str],
) -> None:
    figures = {"vcpus": 4, "memory_mb": 512, "root_gb": 1, "ephemeral_gb": 0, "swap": 0}
    flavor = samples.flavor(None, extra_specs=specs, **figures)
    flavor.obj_set_defaults()
    try:
        safe = confined(flavor)
    except InvalidRequest:
        event("refused")
        return
    before, _root = nova_groups(nova_asks(figures, specs)[0].to_querystring())
    after, _root = nova_groups(nova_asks(figures, safe)[0].to_querystring())

    assert all(nova_takes(key, value) for key, value in safe.items() if key not in NOT_VALIDATED)
    assert amounts(after) == amounts(before)
    for resources, required, _forbidden in after.values():
        if "VGPU" in resources:
            assert "OWNER_NOVA" in required
    event("changed" if safe != specs else "the same")


def amounts(groups: Groups) -> Counter[str]:
    return sum(
        (Counter(resources) for resources, _required, _forbidden in groups.values()), Counter()
    )


@pytest.mark.parametrize("suffix", ["", "1"])
def test_candidates_of_nova_for_confined_flavor_use_no_child_of_another_owner(
    nova: "Nova", suffix: str
) -> None:
    client = WritingClient(adapter_to(nova.url))
    publish_owners(client)
    figures = {"vcpus": 1, "memory_mb": 512, "root_gb": 0, "ephemeral_gb": 0, "swap": 0}
    specs = {"resources:MEMORY_MB": "0", f"resources{suffix}:VGPU": "1"}
    flavor = samples.flavor(None, extra_specs=specs, **figures)
    flavor.obj_set_defaults()

    assert nova_finds(client, figures, specs) == {"n", "y", "a", "u"}
    assert nova_finds(client, figures, confined(flavor)) == {"n"}


def nova_finds(
    client: WritingClient, figures: Mapping[str, int], specs: dict[str, str]
) -> set[str]:
    """Return the GPUs in the candidates for nova's request for the flavor."""
    request, passes = nova_asks(figures, specs, root_required={"OWNER_NOVA"})
    assert passes
    query = [
        (key, value) for key, value in parse_qsl(request.to_querystring()) if value != STATELESS
    ]
    found = client.get_allocation_candidates(query)
    gpus = {samples.uuid(name): name for name in ("n", "y", "a", "u")}
    return {
        gpus[uuid] for one in found.allocation_requests for uuid in one.allocations.keys() & gpus
    }


def test_device_profile_requires_no_trait_of_root_as_nova_does() -> None:
    spec = objects.RequestSpec(
        flavor=objects.Flavor(extra_specs={known.DEVICE_PROFILE: "fast"}),
        request_level_params=objects.RequestLevelParams(),
    )
    request_filter.accelerators_filter(None, spec)
    flavor = samples.flavor(None, extra_specs={known.DEVICE_PROFILE: "fast"})
    flavor.obj_set_defaults()

    assert spec.root_required == {"COMPUTE_ACCELERATORS"}
    assert not from_flavor(flavor, lambda _name: PROFILE).root
