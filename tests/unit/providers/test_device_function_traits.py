"""Which function a device holds: the names of the traits, and who may say what."""

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
    said_since,
    with_claims,
    with_function,
)
from wharfinger.providers.ownership import Publisher
from wharfinger.providers.provider_merge import merge
from wharfinger.providers.provider_record import Record

US = Publisher("fpga", "OWNER_CYBORG")
DEVICE = "6f9de2f4-9d0c-4d0f-a4a6-0c2c5b1f7d31"
OWN, OVERLAY = PublishingMode.OWN, PublishingMode.OVERLAY
MODES = pytest.mark.parametrize("mode", [OWN, OVERLAY])
HELD, FORMER, OTHER = (f"{PREFIX}{name}" for name in ("HELD", "FORMER", "OTHER"))
STALE = frozenset({FORMER})
HARDWARE = "CUSTOM_FPGA_INTEL"
VALID = re.compile(r"CUSTOM_FPGA_FUNCTION_ID_[A-Z0-9]+(_[A-Z0-9]+)*")
#: Text that has a letter or digit of ASCII somewhere, and is not too long for a trait.
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
    """What a cycle makes of a device that was programmed, and remembers of it."""
    [record] = with_claims({DEVICE: record}, {DEVICE: held}).values()
    superseded = bool(said_since(wanted, live, record, held))
    wanted = with_function(wanted, record, held, superseded=superseded)
    return merge(US, wanted, live, record, now=0.0)


# Names.


@given(NAMEABLE)
def test_a_function_has_a_trait_whatever_characters_it_is_written_with(function: str) -> None:
    trait = function_trait(function)
    assert VALID.fullmatch(trait)
    assert function_traits([trait]) == {trait}


@given(NAMEABLE, st.text(max_size=30))
def test_a_vendor_stands_before_the_function(function: str, vendor: str) -> None:
    trait = function_trait(function, vendor)
    assert VALID.fullmatch(trait)
    assert trait.endswith(function_trait(function).removeprefix(PREFIX))


@given(st.uuids())
def test_a_uuid_is_one_function_however_it_is_written(uuid: UUID) -> None:
    traits = {
        function_trait(written)
        for written in (str(uuid), uuid.hex, str(uuid).upper(), uuid.hex.upper())
    }
    assert traits == {f"{PREFIX}{uuid.hex.upper()}"}


@given(st.text(st.characters(max_codepoint=127, exclude_categories=("L", "N")), max_size=20))
def test_what_has_neither_letter_nor_digit_is_no_function(function: str) -> None:
    with pytest.raises(InvalidName, match="letter or digit"):
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
def test_what_a_trait_s_name_does_not_take_is_one_stroke(
    function: str, vendor: str, trait: str
) -> None:
    assert function_trait(function, vendor) == PREFIX + trait


def test_a_name_is_not_cut_to_fit() -> None:
    longest = 255 - len(PREFIX)
    assert len(function_trait("a" * longest)) == 255
    with pytest.raises(InvalidName):
        function_trait("a" * (longest + 1))


def test_other_traits_say_nothing_of_functions() -> None:
    assert function_traits([HELD, HARDWARE, "CUSTOM_FPGA_FUNCTION", "HW_CPU_X86_VMX"]) == {HELD}


# Who may say what.


@MODES
def test_a_function_is_said_where_nothing_else_is(mode: PublishingMode) -> None:
    wanted = said(mode, HARDWARE)
    for live in (None, provider(), provider(HARDWARE), provider(HELD)):
        held = HeldFunction(HELD, STALE)
        assert not said_since(wanted, live, Record(mode=mode), held)
        found = with_function(wanted, Record(mode=mode), held, superseded=False)
        assert found.provider.traits == {HARDWARE, HELD}


@MODES
def test_a_function_that_is_said_already_changes_nothing(mode: PublishingMode) -> None:
    wanted = said(mode, HELD)
    held = HeldFunction(HELD)
    assert not said_since(wanted, provider(HELD), remembered(HELD), held)
    assert with_function(wanted, Record(mode=mode), held, superseded=False) is wanted


@MODES
def test_a_function_that_said_since_is_said_no_more(mode: PublishingMode) -> None:
    wanted = said(mode, HARDWARE, HELD)
    held = HeldFunction(HELD, STALE)
    found = with_function(wanted, Record(mode=mode), held, superseded=True)
    assert found.provider.traits == {HARDWARE}


@MODES
@pytest.mark.parametrize("there", [{OTHER}, {OTHER, HELD}])
def test_whoever_says_another_function_is_right(mode: PublishingMode, there: set[str]) -> None:
    live = provider(HARDWARE, *there)
    after, record = published(
        said(mode, HARDWARE), live, remembered(HARDWARE, mode=mode), HeldFunction(HELD, STALE)
    )
    assert function_traits(after.traits) == {OTHER}
    assert not function_traits(record.claimed_traits)


def test_a_driver_that_reports_the_former_function_does_not_know_better_yet() -> None:
    wanted, held = said(OWN, HARDWARE, FORMER), HeldFunction(HELD, STALE)
    for live in (provider(HELD), provider(FORMER), provider(FORMER, HELD)):
        after, _ = published(wanted, live, remembered(FORMER), held)
        assert function_traits(after.traits) == {HELD}


def test_a_driver_that_reports_the_former_function_is_not_believed_beside_a_newer_one() -> None:
    live = provider(OTHER, HELD)
    after, _ = published(said(OWN, FORMER), live, remembered(FORMER), HeldFunction(HELD, STALE))
    assert function_traits(after.traits) == {OTHER}


def test_a_driver_that_reports_a_third_function_is_right() -> None:
    after, record = published(
        said(OWN, OTHER), provider(HELD), remembered(FORMER), HeldFunction(HELD, STALE)
    )
    assert function_traits(after.traits) == {OTHER}
    assert function_traits(record.claimed_traits) == {OTHER}


@pytest.mark.parametrize("there", [{FORMER}, {FORMER, HELD}, set()], ids=len)
def test_a_driver_that_reports_what_is_stale_is_not_believed_where_nothing_is_known(
    there: set[str],
) -> None:
    held = HeldFunction(None, frozenset({FORMER, HELD}))
    after, _ = published(said(OWN, HARDWARE, FORMER), provider(*there), remembered(*there), held)
    assert after.traits == {HARDWARE, *US.traits}


@MODES
def test_where_nothing_is_known_whoever_says_a_function_is_right(mode: PublishingMode) -> None:
    held = HeldFunction(None, frozenset({FORMER, HELD}))
    after, _ = published(said(mode, HARDWARE), provider(OTHER), remembered(mode=mode), held)
    assert function_traits(after.traits) == {OTHER}


@pytest.mark.parametrize("held", [HeldFunction(HELD, STALE), HeldFunction(None, STALE)])
def test_what_we_have_put_on_an_overlay_and_is_stale_goes(held: HeldFunction) -> None:
    live, record = provider(FORMER), remembered(FORMER, mode=OVERLAY)
    # Its driver hands back what is there.
    after, remembers = published(said(OVERLAY, FORMER), live, record, held)
    assert function_traits(after.traits) == {*filter(None, [held.trait])}
    assert function_traits(remembers.claimed_traits) == function_traits(after.traits)


def test_the_former_function_of_an_overlay_is_somebody_else_s_word() -> None:
    live = provider(FORMER)
    after, _ = published(said(OVERLAY), live, remembered(mode=OVERLAY), HeldFunction(HELD, STALE))
    assert function_traits(after.traits) == {FORMER}


_FUNCTIONS = st.sets(st.sampled_from([HELD, FORMER, OTHER, f"{PREFIX}MORE"]))


@MODES
@given(
    reports=st.sampled_from([None, HELD, FORMER]),
    there=st.none() | _FUNCTIONS,
    ours=_FUNCTIONS,
    held=st.builds(
        HeldFunction, st.sampled_from([None, HELD]), st.sampled_from([frozenset[str](), STALE])
    ),
)
def test_nobody_has_two_functions_of_ours_and_what_others_say_stays(
    mode: PublishingMode,
    reports: str | None,
    there: set[str] | None,
    ours: set[str],
    held: HeldFunction,
) -> None:
    known = {held.trait} if held.trait else set[str]()
    live = None if there is None else provider(HARDWARE, *there)
    if reports not in {None, *known, *held.stale}:
        reports = None  # that would be a third one
    said_too = {reports} if reports else set[str]()
    if mode is OVERLAY:
        # Whoever edits a tree hands back what is there; and a driver of overlays names none.
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


# What is ours to take away again.


def test_the_trait_that_a_job_has_put_there_is_ours_to_take_away() -> None:
    records = {DEVICE: remembered(HARDWARE)}
    found = with_claims(records, {DEVICE: HeldFunction(HELD)})
    assert found[DEVICE].claimed_traits == {HARDWARE, HELD}
    assert records[DEVICE].claimed_traits == {HARDWARE}


def test_nothing_is_claimed_where_it_is_not_known_what_it_holds() -> None:
    records = {DEVICE: remembered(HARDWARE)}
    assert with_claims(records, {DEVICE: HeldFunction(None, STALE)}) is records


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
def test_nothing_is_claimed_of_what_is_not_ours_or_has_it(records: dict[str, Record]) -> None:
    assert with_claims(records, {DEVICE: HeldFunction(HELD)}) is records


def test_other_records_are_not_touched() -> None:
    other = remembered()
    found = with_claims({DEVICE: remembered(), "other": other}, {DEVICE: HeldFunction(HELD)})
    assert found["other"] is other
