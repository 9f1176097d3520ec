"""Inventory, traits and host of a deployable."""

from uuid import NAMESPACE_DNS, uuid3

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.unit.cyborg.samples import FUNCTION, HOST, VENDOR_TRAIT, attributes, deployable
from wharfinger.providers import Inventory
from wharfinger_cyborg.deployable import Deployable, host_of

#: An answer of Cyborg from the documentation of its API.
ANSWER = {
    "attributes_list": '[{"traits1": "CUSTOM_FPGA_INTEL"}, {"rc": "FPGA"}]',
    "created_at": "2020-10-08T06:07:06+00:00",
    "device_id": 1,
    "driver_name": None,
    "name": "fpga-host-1_0000:0c:00.0",
    "num_accelerators": 2,
    "root_id": None,
    "rp_uuid": None,
    "updated_at": None,
    "uuid": "5dd5ef63-8d0b-4ab4-b3e8-8e0b2e1d8c5a",
}


# Fields.


def test_answer_of_cyborg_is_read_and_unused_fields_ignored() -> None:
    one = msgspec.convert(ANSWER, Deployable)
    assert one.inventory == {"FPGA": Inventory(total=2, max_unit=2)}
    assert one.traits == {"CUSTOM_FPGA_INTEL"}
    assert one.rp_uuid is None


@pytest.mark.parametrize("field", Deployable.__struct_fields__)
def test_answer_without_a_field_is_refused(field: str) -> None:
    answer = {name: value for name, value in ANSWER.items() if name != field}
    with pytest.raises(msgspec.ValidationError, match=field):
        msgspec.convert(answer, Deployable)


def test_provider_uuid_is_cyborgs_or_what_cyborg_would_use() -> None:
    assert deployable(rp_uuid="named").provider_uuid == "named"
    unpublished = deployable(rp_uuid=None)
    assert unpublished.provider_uuid == str(uuid3(NAMESPACE_DNS, unpublished.name))


@pytest.mark.parametrize("kind", ["FPGA", "PGPU", "VGPU", "CUSTOM_QAT"])
@pytest.mark.parametrize("key", ["trait", "trait0", "traits17"])
def test_class_and_traits_are_attributes(kind: str, key: str) -> None:
    one = deployable(
        num_accelerators=3,
        attributes_list=attributes((key, VENDOR_TRAIT), ("rc", kind), ("colour", "blue")),
    )
    assert one.inventory == {kind: Inventory(total=3, max_unit=3)}
    assert one.traits == {VENDOR_TRAIT}


def test_deployable_without_accelerators_has_no_inventory() -> None:
    assert deployable(num_accelerators=0).inventory == {}


@pytest.mark.parametrize(
    ("listed", "told"),
    [
        (attributes(), "0 resource classes"),
        (attributes(("trait0", VENDOR_TRAIT)), "0 resource classes"),
        (attributes(("rc", "FPGA"), ("rc", "VGPU")), "2 resource classes"),
        (attributes(("rc", "fpga")), "fpga"),
        (attributes(("rc", "NO_SUCH_CLASS")), "NO_SUCH_CLASS"),
        ("", "not understood"),
        ("null", "not understood"),
        ("{}", "not understood"),
        ("[7]", "not understood"),
        ('[{"rc": 7}]', "not understood"),
        ('[{"rc": "FPGA"', "not understood"),
        ("[" * 100_000, "not understood"),
        ('[{"rc": "\\ud800"}]', "not understood"),
    ],
)
def test_invalid_attributes_are_refused_with_a_reason(listed: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        _ = deployable(attributes_list=listed).inventory


def test_class_given_twice_counts_once() -> None:
    listed = attributes(("rc", "FPGA"), ("rc", "FPGA"))
    assert deployable(attributes_list=listed).inventory.keys() == {"FPGA"}


@pytest.mark.parametrize("total", [-1, 2**31])
def test_invalid_total_is_refused(total: int) -> None:
    with pytest.raises(ValueError, match="total must be"):
        _ = deployable(num_accelerators=total).inventory


@pytest.mark.parametrize("name", ["", "x" * 201])
def test_invalid_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="1 to 200"):
        _ = deployable(name=name).inventory


@pytest.mark.parametrize("trait", ["lower", "CUSTOM_", "CUSTOM_Ä", "HW_NO_SUCH_TRAIT", ""])
def test_invalid_trait_is_refused(trait: str) -> None:
    listed = attributes(("rc", "FPGA"), ("trait0", trait))
    with pytest.raises(ValueError, match="trait"):
        _ = deployable(attributes_list=listed).traits


@given(st.text())
def test_any_attributes_are_read_or_refused(listed: str) -> None:
    one = deployable(attributes_list=listed)
    for read in (lambda: one.inventory, lambda: one.traits, lambda: one.function):
        try:
            read()
        except ValueError as error:
            assert str(error)


# Functions.


def test_function_is_read_from_the_agents_trait() -> None:
    listed = attributes(("rc", "FPGA"), ("trait0", VENDOR_TRAIT), ("trait1", FUNCTION))
    one = deployable(attributes_list=listed)
    assert one.function == "LOOP"
    assert one.function_trait("LOOP") == FUNCTION
    assert one.function_trait(" loop ") == FUNCTION


@pytest.mark.parametrize(
    "traits",
    [
        (),
        ("CUSTOM_FPGA_FUNCTION_ID_XILINX_LOOP",),
        (FUNCTION, f"{FUNCTION}_2"),
    ],
    ids=["none", "another vendor's", "two"],
)
def test_function_without_a_trait_is_unknown(traits: tuple[str, ...]) -> None:
    listed = attributes(("rc", "FPGA"), *(("trait", trait) for trait in traits))
    assert deployable(attributes_list=listed).function is None


@given(
    st.sampled_from([None, "", "intel", "Some Vendor"]),
    st.from_regex("[A-Z0-9]+(_[A-Z0-9]+){0,3}", fullmatch=True),
)
def test_function_of_a_function_trait_is_the_original(vendor: str | None, function: str) -> None:
    assume(len(function) < 200)
    trait = deployable(driver_name=vendor).function_trait(function)
    listed = attributes(("rc", "FPGA"), ("trait0", trait))
    assert deployable(driver_name=vendor, attributes_list=listed).function == function


# The host of a deployable.

_HOSTNAMES = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,12}[a-z0-9])?", fullmatch=True)


@given(st.sets(_HOSTNAMES, min_size=1, max_size=5), st.data(), st.text(max_size=12))
def test_host_of_a_generated_name_is_found_or_unknown(
    hosts: set[str], data: st.DataObject, rest: str
) -> None:
    host = data.draw(st.sampled_from(sorted(hosts)))
    found = host_of(f"{host}_{rest}", hosts)
    # If two hosts have the same name without their domains, the host may be unknown.
    if len({one.partition(".")[0] for one in hosts}) == len(hosts):
        assert found == host
    assert found is None or found in hosts


@given(st.text(max_size=20), st.sets(_HOSTNAMES, min_size=2, max_size=5))
def test_host_of_any_name_is_unknown_or_a_prefix_of_the_name(name: str, hosts: set[str]) -> None:
    found = host_of(name, hosts)
    assert found is None or name.startswith((f"{found}_", f"{found.partition('.')[0]}_"))


@pytest.mark.parametrize(
    ("name", "hosts", "host"),
    [
        ("anything", {HOST}, HOST),
        ("anything", set(), None),
        ("anything", {"a", "b"}, None),
        ("a_0000:0c:00.0", {"a", "b"}, "a"),
        ("a_0000:0c:00.0", {"a.example.org", "b.example.org"}, "a.example.org"),
        ("a.example.org_0c", {"a.example.org", "b.example.org"}, "a.example.org"),
        ("a_0000:0c:00.0", {"a.example.org", "a.example.com"}, None),
        ("a.example.com_0c", {"a.example.org", "a.example.com"}, "a.example.com"),
        ("a_0c", {"a", "a.example.org"}, None),
        ("a", {"a", "b"}, None),
        ("ab_0c", {"a", "b"}, None),
        ("a_b_0c", {"a", "a_b"}, "a_b"),
    ],
)
def test_host_of_a_name_is_found_or_ambiguous(name: str, hosts: set[str], host: str | None) -> None:
    assert host_of(name, hosts) == host
