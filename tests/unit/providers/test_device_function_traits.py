"""Traits of device functions: their names, and which program's trait is published.

A held function is the function that the last job has programmed.
"""

import re
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.exceptions import InvalidName
from wharfinger.providers import DesiredProvider, Provider, PublishingMode
from wharfinger.providers.device_function_traits import (
    PREFIX,
    HeldFunction,
    function_trait,
    function_traits,
    newer_traits,
    with_claims,
    with_corrected_traits,
)
from wharfinger.providers.ownership import Publisher
from wharfinger.providers.plan_draft import PlanFacts, merge
from wharfinger.providers.provider import Record

US = Publisher("fpga", "OWNER_CYBORG")
DEVICE = "6f9de2f4-9d0c-4d0f-a4a6-0c2c5b1f7d31"
OWN, OVERLAY = PublishingMode.OWN, PublishingMode.OVERLAY
MODES = pytest.mark.parametrize("mode", [OWN, OVERLAY])
HELD, FORMER, OTHER = (f"{PREFIX}{name}" for name in ("HELD", "FORMER", "OTHER"))
LOADED, UNKNOWN = frozenset({HELD}), frozenset[str]()
STALE = frozenset({FORMER})
HARDWARE = "CUSTOM_FPGA_INTEL"
VALID = re.compile(r"CUSTOM_FPGA_FUNCTION_ID_[A-Z0-9]+(_[A-Z0-9]+)*")
#: Texts that contain an ASCII letter or digit and are short enough for a trait.
NAMEABLE = st.builds(
    "{}{}{}".format,
    st.text(max_size=30),
    st.from_regex("[a-zA-Z0-9]", fullmatch=True),
    st.text(max_size=30),
)


def provider(*traits: str) -> Provider:
    return Provider(uuid=DEVICE, name="fpga", root_uuid=DEVICE, traits=frozenset(traits))


def remembered(*traits: str, mode: PublishingMode = OWN) -> Record:
    return Record(applied=provider(*traits), mode=mode)


def said(mode: PublishingMode, *traits: str) -> DesiredProvider:
    return DesiredProvider(provider=provider(*traits), mode=mode)


def published(
    wanted: DesiredProvider, live: Provider | None, record: Record, held: HeldFunction
) -> tuple[Provider, Record]:
    """Return provider and record after a cycle of a device that a job has programmed."""
    [record] = with_claims({DEVICE: record}, {DEVICE: held}).values()
    superseded = bool(newer_traits(wanted, live, record, held))
    wanted = with_corrected_traits(wanted, record, held, superseded=superseded)
    return merge(PlanFacts(publisher=US, is_listing=True), wanted, live, record)


# Names.


@given(NAMEABLE)
def test_function_trait_of_any_characters_is_valid(function: str) -> None:
    trait = function_trait(function)
    assert VALID.fullmatch(trait)
    assert function_traits([trait]) == {trait}


@given(NAMEABLE, st.text(max_size=30))
def test_function_trait_names_the_vendor_before_the_function(function: str, vendor: str) -> None:
    trait = function_trait(function, vendor)
    assert VALID.fullmatch(trait)
    assert trait.endswith(function_trait(function).removeprefix(PREFIX))


@given(st.uuids())
def test_function_trait_of_a_uuid_in_any_form_is_the_same(uuid: UUID) -> None:
    traits = {
        function_trait(written)
        for written in (str(uuid), uuid.hex, str(uuid).upper(), uuid.hex.upper())
    }
    assert traits == {f"{PREFIX}{uuid.hex.upper()}"}


@given(st.text(st.characters(max_codepoint=127, exclude_categories=("L", "N")), max_size=20))
def test_function_trait_without_letter_or_digit_is_refused(function: str) -> None:
    with pytest.raises(InvalidName, match="letter from A to Z or a digit"):
        function_trait(function, "intel")


@pytest.mark.parametrize(
    ("function", "vendor", "trait"),
    [
        ("2.1", "", "2_1"),
        ("-crypto-", "intel", "INTEL_CRYPTO"),
        ("a--b", "", "A_B"),
        ("ipsec v2", "Some Vendor", "SOME_VENDOR_IPSEC_V2"),
        ("x", "--", "X"),
        ("ä1", "", "1"),
    ],
)
def test_function_trait_replaces_invalid_characters_with_one_underscore(
    function: str, vendor: str, trait: str
) -> None:
    assert function_trait(function, vendor) == PREFIX + trait


def test_function_trait_that_is_too_long_is_refused() -> None:
    longest = 255 - len(PREFIX)
    assert len(function_trait("a" * longest)) == 255
    with pytest.raises(InvalidName):
        function_trait("a" * (longest + 1))


def test_function_traits_ignores_other_traits() -> None:
    assert function_traits([HELD, HARDWARE, "CUSTOM_FPGA_FUNCTION", "HW_CPU_X86_VMX"]) == {HELD}


# Which program's function is published.


@MODES
def test_held_function_is_published_on_a_device_without_another(mode: PublishingMode) -> None:
    wanted = said(mode, HARDWARE)
    for live in (None, provider(), provider(HARDWARE), provider(HELD)):
        held = HeldFunction(LOADED, STALE)
        assert not newer_traits(wanted, live, Record(mode=mode), held)
        found = with_corrected_traits(wanted, Record(mode=mode), held, superseded=False)
        assert found.provider.traits == {HARDWARE, HELD}


@MODES
def test_held_function_that_is_already_published_changes_nothing(mode: PublishingMode) -> None:
    wanted = said(mode, HELD)
    held = HeldFunction(LOADED)
    assert not newer_traits(wanted, provider(HELD), remembered(HELD), held)
    assert with_corrected_traits(wanted, Record(mode=mode), held, superseded=False) is wanted


@MODES
def test_held_function_that_is_superseded_is_removed(mode: PublishingMode) -> None:
    wanted = said(mode, HARDWARE, HELD)
    held = HeldFunction(LOADED, STALE)
    found = with_corrected_traits(wanted, Record(mode=mode), held, superseded=True)
    assert found.provider.traits == {HARDWARE}


@MODES
@pytest.mark.parametrize("there", [{OTHER}, {OTHER, HELD}])
def test_function_written_by_another_client_replaces_the_held_one(
    mode: PublishingMode, there: set[str]
) -> None:
    live = provider(HARDWARE, *there)
    after, record = published(
        said(mode, HARDWARE), live, remembered(HARDWARE, mode=mode), HeldFunction(LOADED, STALE)
    )
    assert function_traits(after.traits) == {OTHER}
    assert not function_traits(record.claimed_traits)


def test_former_function_from_the_driver_does_not_replace_the_held_one() -> None:
    wanted, held = said(OWN, HARDWARE, FORMER), HeldFunction(LOADED, STALE)
    for live in (provider(HELD), provider(FORMER), provider(FORMER, HELD)):
        after, _ = published(wanted, live, remembered(FORMER), held)
        assert function_traits(after.traits) == {HELD}


def test_former_function_from_the_driver_does_not_replace_a_newer_one() -> None:
    live = provider(OTHER, HELD)
    after, _ = published(said(OWN, FORMER), live, remembered(FORMER), HeldFunction(LOADED, STALE))
    assert function_traits(after.traits) == {OTHER}


def test_third_function_from_the_driver_replaces_the_held_one() -> None:
    after, record = published(
        said(OWN, OTHER), provider(HELD), remembered(FORMER), HeldFunction(LOADED, STALE)
    )
    assert function_traits(after.traits) == {OTHER}
    assert function_traits(record.claimed_traits) == {OTHER}


@pytest.mark.parametrize("there", [{FORMER}, {FORMER, HELD}, set()], ids=len)
def test_former_function_from_the_driver_is_removed_if_the_held_one_is_unknown(
    there: set[str],
) -> None:
    held = HeldFunction(UNKNOWN, frozenset({FORMER, HELD}))
    after, _ = published(said(OWN, HARDWARE, FORMER), provider(*there), remembered(*there), held)
    assert after.traits == {HARDWARE, *US.traits}


@MODES
def test_function_written_by_another_client_is_published_if_the_held_one_is_unknown(
    mode: PublishingMode,
) -> None:
    held = HeldFunction(UNKNOWN, frozenset({FORMER, HELD}))
    after, _ = published(said(mode, HARDWARE), provider(OTHER), remembered(mode=mode), held)
    assert function_traits(after.traits) == {OTHER}


@pytest.mark.parametrize("held", [HeldFunction(LOADED, STALE), HeldFunction(UNKNOWN, STALE)])
def test_former_function_that_we_put_on_an_overlay_is_removed(held: HeldFunction) -> None:
    live, record = provider(FORMER), remembered(FORMER, mode=OVERLAY)
    # The driver of an overlay returns the traits that it was given.
    after, remembers = published(said(OVERLAY, FORMER), live, record, held)
    assert function_traits(after.traits) == held.traits
    assert function_traits(remembers.claimed_traits) == function_traits(after.traits)


def test_former_function_that_another_client_put_on_an_overlay_stays() -> None:
    live = provider(FORMER)
    after, _ = published(said(OVERLAY), live, remembered(mode=OVERLAY), HeldFunction(LOADED, STALE))
    assert function_traits(after.traits) == {FORMER}


_FUNCTIONS = st.sets(st.sampled_from([HELD, FORMER, OTHER, f"{PREFIX}MORE"]))


@MODES
@given(
    reports=st.sampled_from([None, HELD, FORMER]),
    there=st.none() | _FUNCTIONS,
    ours=_FUNCTIONS,
    held=st.builds(
        HeldFunction, st.sampled_from([UNKNOWN, LOADED]), st.sampled_from([frozenset[str](), STALE])
    ),
)
def test_device_has_one_function_of_ours_and_keeps_those_of_other_clients(
    mode: PublishingMode,
    reports: str | None,
    there: set[str] | None,
    ours: set[str],
    held: HeldFunction,
) -> None:
    known = held.traits
    live = None if there is None else provider(HARDWARE, *there)
    if reports not in {None, *known, *held.stale}:
        reports = None  # not a third function
    said_too = {reports} if reports else set[str]()
    if mode is OVERLAY:
        # The driver of an overlay returns the traits that it was given, and adds no function.
        ours, said_too = ours & {*known, *held.stale}, there or set()
    wanted = said(mode, HARDWARE, *said_too)
    record = remembered(HARDWARE, *ours, mode=mode)

    after, remembers = published(wanted, live, record, held)

    theirs = (there or set()) - ours - known
    assert theirs <= after.traits
    assert HARDWARE in after.traits
    mine = function_traits(after.traits) - theirs
    assert mine == (set() if theirs else known)
    assert mine == function_traits(remembers.claimed_traits)
    if mode is OVERLAY:
        wanted = said(mode, HARDWARE, *function_traits(after.traits))
    again, _ = published(wanted, after, remembers, held)
    assert again.traits == after.traits


# Claimed function traits, which we may remove.


def test_trait_of_a_finished_job_is_claimed() -> None:
    records = {DEVICE: remembered(HARDWARE)}
    found = with_claims(records, {DEVICE: HeldFunction(LOADED)})
    assert found[DEVICE].claimed_traits == {HARDWARE, HELD}
    assert records[DEVICE].claimed_traits == {HARDWARE}


def test_unknown_function_is_not_claimed() -> None:
    records = {DEVICE: remembered(HARDWARE)}
    assert with_claims(records, {DEVICE: HeldFunction(UNKNOWN, STALE)}) is records


@pytest.mark.parametrize(
    "records",
    [
        {},
        {DEVICE: Record()},
        {DEVICE: remembered(HELD)},
        {DEVICE: Record(intended=provider(HARDWARE))},
    ],
    ids=["none", "not ours", "has it", "under way"],
)
def test_trait_of_a_provider_that_is_not_ours_is_not_claimed(records: dict[str, Record]) -> None:
    assert with_claims(records, {DEVICE: HeldFunction(LOADED)}) is records


def test_with_claims_leaves_other_records() -> None:
    other = remembered()
    found = with_claims({DEVICE: remembered(), "other": other}, {DEVICE: HeldFunction(LOADED)})
    assert found["other"] is other
