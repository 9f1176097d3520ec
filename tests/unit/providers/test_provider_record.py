import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.providers import Inventory, Provider
from wharfinger.providers.provider import Record, decode, encode

UUIDS = st.uuids().map(str)
INVENTORIES = st.dictionaries(
    st.sampled_from(["VGPU", "CUSTOM_A"]),
    st.builds(
        Inventory,
        total=st.integers(5, 9),
        reserved=st.integers(0, 5),
        allocation_ratio=st.floats(0.1, 16),
    ),
)
PROVIDERS = st.builds(
    Provider,
    uuid=UUIDS,
    name=st.text(min_size=1, max_size=20),
    root_uuid=UUIDS,
    parent_uuid=st.none() | UUIDS,
    generation=st.none() | st.integers(0, 2**40),
    inventories=INVENTORIES,
    traits=st.frozensets(st.sampled_from(["OWNER_NOVA", "CUSTOM_T", "CUSTOM_U"])),
    aggregates=st.frozensets(UUIDS, max_size=3),
)


@given(PROVIDERS)
def test_decode_of_encode_is_the_same_side(side: Provider) -> None:
    assert decode(encode(side)) == side


@pytest.mark.parametrize(
    "document",
    ["", "null", "[]", '{"name": "gpu"}', '{"name": 1, "uuid": "", "root_uuid": ""}', "\xff"],
)
def test_decode_of_an_invalid_document_is_refused(document: str) -> None:
    with pytest.raises(ValueError):
        decode(document)


def provider(trait: str, kind: str, aggregate: str) -> Provider:
    return Provider(
        uuid=str(uuid.UUID(int=1)),
        name="gpu",
        root_uuid=str(uuid.UUID(int=1)),
        inventories={kind: Inventory(total=1)},
        traits=frozenset([trait]),
        aggregates=frozenset([aggregate]),
    )


def test_intended_side_after_a_crash_is_claimed_too() -> None:
    before, wanted = provider("CUSTOM_T", "VGPU", "a"), provider("CUSTOM_U", "CUSTOM_A", "b")
    record = Record(applied=before, intended=wanted)
    assert record.is_ours
    assert record.claimed_traits == {"CUSTOM_T", "CUSTOM_U"}
    assert record.claimed_classes == {"VGPU", "CUSTOM_A"}
    assert record.claimed_aggregates == {"a", "b"}


def test_intended_side_of_a_first_write_is_claimed() -> None:
    record = Record(intended=provider("CUSTOM_U", "CUSTOM_A", "b"))
    assert record.is_ours
    assert record.claimed_traits == {"CUSTOM_U"}


def test_record_of_only_the_live_state_claims_nothing() -> None:
    record = Record(live=provider("CUSTOM_T", "VGPU", "a"))
    assert not record.is_ours
    assert not record.claimed_traits | record.claimed_classes | record.claimed_aggregates
