"""Checks before a provider is published, one rule at a time and without a plan."""

from dataclasses import replace
from typing import Any, Final

import pytest

from wharfinger.exceptions import NameTaken, OwnershipConflict, ProviderMissing, WharfingerError
from wharfinger.providers import DesiredProvider, Inventory, Provider, PublishingMode, names
from wharfinger.providers.ownership import Publisher
from wharfinger.providers.plan_draft import PlanFacts, TreeDraft
from wharfinger.providers.provider import Record
from wharfinger.providers.publish_checks import misuse, problem

US: Final = Publisher("gpus", "OWNER_NOVA")
ACME: Final = Publisher("gpus", "CUSTOM_OWNER_ACME")
HOST: Final = names.root_uuid("host")
ANOTHER: Final = names.root_uuid("another")
OURS: Final = frozenset(["OWNER_NOVA", "CUSTOM_WHARFINGER_GPUS"])
VCPU: Final = {"VCPU": Inventory(total=8)}
VGPU: Final = {"VGPU": Inventory(total=4)}


def provider(**contents: Any) -> Provider:
    return Provider(**{"uuid": HOST, "name": "host", "root_uuid": HOST, **contents})


def wanted(mode: PublishingMode = PublishingMode.OWN, **contents: Any) -> DesiredProvider:
    return DesiredProvider(provider=provider(**contents), mode=mode, reported=True)


def found(
    want: DesiredProvider,
    live: Provider | None,
    record: Record | None = None,
    *,
    publisher: Publisher = US,
    is_allocated: bool = False,
    elsewhere: Provider | None = None,
) -> WharfingerError | None:
    draft = TreeDraft(
        PlanFacts(
            publisher=publisher,
            now=0.0,
            allocated={want.provider.uuid} if is_allocated else frozenset(),
            name_owners={elsewhere.name: elsewhere} if elsewhere else {},
        ),
        HOST,
        live={live.uuid: live} if live else {},
    )
    return problem(draft, want, record or Record())


# Names.


def test_new_provider_with_the_name_of_another_is_refused() -> None:
    other = provider(uuid=ANOTHER, root_uuid=ANOTHER, traits=frozenset(["OWNER_CYBORG"]))
    error = found(wanted(), None, elsewhere=other)
    assert isinstance(error, NameTaken)
    assert (error.uuid, error.other) == (ANOTHER, "OWNER_CYBORG")


def test_renamed_provider_with_the_name_of_another_is_refused() -> None:
    other = provider(uuid=ANOTHER, root_uuid=ANOTHER)
    live = provider(name="before", traits=OURS)
    error = found(wanted(), live, Record(applied=live), elsewhere=other)
    assert isinstance(error, NameTaken)
    assert error.other == "an unknown program"


def test_unlisted_provider_of_our_uuid_is_a_conflict_unless_it_has_our_instance_trait() -> None:
    """A provider with our instance trait was created after the listing was read."""
    there = provider(root_uuid=ANOTHER, traits=frozenset(["OWNER_NOVA"]))
    error = found(wanted(), None, elsewhere=there)
    assert isinstance(error, OwnershipConflict)
    assert f"wharfinger provider adopt {HOST} --instance gpus" in error.remedy
    assert found(wanted(), None, elsewhere=replace(there, traits=OURS)) is None
    theirs = replace(there, traits=frozenset(["OWNER_CYBORG"]))
    error = found(wanted(), None, elsewhere=theirs)
    assert isinstance(error, OwnershipConflict)
    assert error.other == "OWNER_CYBORG"
    assert "adopt" not in error.remedy


def test_provider_that_has_its_name_already_keeps_it() -> None:
    live = provider(traits=OURS)
    other = provider(uuid=ANOTHER, root_uuid=ANOTHER)
    assert found(wanted(), live, Record(applied=live), elsewhere=other) is None


# Owners.


def test_overlay_of_a_missing_provider_is_refused() -> None:
    assert isinstance(found(wanted(PublishingMode.OVERLAY), None), ProviderMissing)
    assert found(wanted(), None) is None


@pytest.mark.parametrize("mode", PublishingMode)
def test_provider_of_another_owner_is_refused_in_either_mode(mode: PublishingMode) -> None:
    error = found(wanted(mode), provider(traits=frozenset(["OWNER_CYBORG"])))
    assert isinstance(error, OwnershipConflict)
    assert error.other == "OWNER_CYBORG"
    assert "remove that provider first" in error.remedy


@pytest.mark.parametrize("mode", PublishingMode)
def test_provider_with_our_owner_and_another_is_refused_with_the_remedy(
    mode: PublishingMode,
) -> None:
    before = Record(applied=provider(traits=OURS))
    error = found(wanted(mode), provider(traits=OURS | {"OWNER_CYBORG"}), before)
    assert isinstance(error, OwnershipConflict)
    assert error.other == "OWNER_CYBORG"
    assert "If it belongs to this instance, remove OWNER_CYBORG from it." in error.remedy


def test_provider_with_both_our_owners_is_refused_with_the_remedy() -> None:
    """With the former owner's trait, an instance would still see both owners."""
    both = frozenset([US.owner, ACME.owner])
    error = found(wanted(), provider(traits=both), Record(applied=provider(traits=both)))
    assert isinstance(error, OwnershipConflict)
    assert f"If it belongs to this instance, remove {ACME.owner} from it." in error.remedy


def test_provider_of_our_former_owner_without_our_instance_trait_is_refused_with_the_reason() -> (
    None
):
    before = Record(applied=provider(traits=OURS))
    error = found(wanted(), provider(traits=frozenset(["OWNER_NOVA"])), before, publisher=ACME)
    assert isinstance(error, OwnershipConflict)
    assert "This instance had that owner before" in error.remedy


def test_owner_change_of_an_allocated_provider_is_refused() -> None:
    live = provider(traits=OURS)
    before = Record(applied=live)
    error = found(wanted(), live, before, publisher=ACME, is_allocated=True)
    assert isinstance(error, OwnershipConflict)
    assert f"published the provider as OWNER_NOVA before, and now publishes as {ACME.owner}" in str(
        error
    )
    assert "no more allocations" in error.remedy
    assert found(wanted(), live, before, publisher=ACME) is None
    assert found(wanted(), live, before, is_allocated=True) is None


def test_untagged_provider_is_refused_unless_overlaid_or_published_before() -> None:
    live = provider(inventories={"FPGA": Inventory(total=1)})
    assert isinstance(found(wanted(), live), OwnershipConflict)
    assert found(wanted(PublishingMode.OVERLAY), live) is None
    assert found(wanted(), live, Record(applied=live)) is None


def test_intended_provider_created_by_another_program_is_refused() -> None:
    """Another program may create the uuid between our intent and our write."""
    live = provider(inventories={"FPGA": Inventory(total=1)})
    assert isinstance(found(wanted(), live, Record(intended=provider())), OwnershipConflict)


def test_provider_with_our_owner_and_another_instance_trait_is_refused() -> None:
    live = provider(traits=frozenset(["OWNER_NOVA", "CUSTOM_WHARFINGER_OTHERS"]))
    error = found(wanted(), live)
    assert isinstance(error, OwnershipConflict)
    assert "CUSTOM_WHARFINGER_OTHERS" in error.other
    assert found(wanted(PublishingMode.OVERLAY), live) is None


def test_provider_that_another_instance_overlays_stays_ours() -> None:
    live = provider(traits=OURS | {"CUSTOM_WHARFINGER_OTHERS"})
    assert found(wanted(), live) is None


# Mistakes of a driver.


@pytest.mark.parametrize("added", ["OWNER_CYBORG", "CUSTOM_OWNER_ACME", "CUSTOM_WHARFINGER_OTHERS"])
def test_driver_that_adds_marks_of_others_is_refused(added: str) -> None:
    error = misuse(US, wanted(traits=frozenset([added])), None)
    assert error is not None
    assert added in error.problem


def test_marks_that_are_ours_or_exist_already_are_accepted() -> None:
    assert misuse(US, wanted(traits=OURS), None) is None
    theirs = frozenset(["OWNER_CYBORG", "CUSTOM_WHARFINGER_OTHERS"])
    assert misuse(US, wanted(traits=theirs), provider(traits=theirs)) is None


@pytest.mark.parametrize("mode", [PublishingMode.OWN, PublishingMode.OVERLAY])
def test_root_with_vcpu_is_refused_to_owners_other_than_nova(mode: PublishingMode) -> None:
    there = provider(inventories=VCPU)
    want = wanted(mode, inventories=VCPU if mode is PublishingMode.OWN else {})
    error = misuse(ACME, want, there)
    assert error is not None
    assert "so they need OWNER_NOVA" in error.problem
    assert "publishes as CUSTOM_OWNER_ACME" in error.problem
    assert "Set its owner option to OWNER_NOVA, or leave the root to nova" in error.problem
    assert misuse(US, want, there) is None


def test_root_that_loses_vcpu_may_have_any_owner() -> None:
    live = provider(inventories=VCPU)
    assert misuse(ACME, wanted(inventories=VGPU), live) is None


def test_child_with_vcpu_may_have_any_owner() -> None:
    child = wanted(inventories=VCPU, parent_uuid=ANOTHER, root_uuid=ANOTHER)
    assert misuse(ACME, child, None) is None


def test_overlaid_root_without_vcpu_may_have_any_owner() -> None:
    live = provider(inventories=VGPU)
    assert misuse(ACME, wanted(PublishingMode.OVERLAY), live) is None
