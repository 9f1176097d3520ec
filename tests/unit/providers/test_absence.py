"""Absent providers, and the reasons why their removal waits."""

from dataclasses import replace
from typing import Any, Final

import pytest

from wharfinger.providers import Inventory, Provider, PublishingMode, names
from wharfinger.providers.ownership import Publisher
from wharfinger.providers.plan import DeleteProvider, SetInventories
from wharfinger.providers.plan_draft import PlanFacts, TreeDraft
from wharfinger.providers.provider import Absence, Record, Uptime
from wharfinger.providers.removal import remove

US: Final = Publisher("gpus", "OWNER_NOVA")
OURS: Final = frozenset(["OWNER_NOVA", "CUSTOM_WHARFINGER_GPUS"])
HOST: Final = names.root_uuid("host")
GPU: Final = names.child_uuid(HOST, "gpu")
BOOT: Final = "6f1e2d3c-0000-4000-8000-000000000001"
OTHER_BOOT: Final = "6f1e2d3c-0000-4000-8000-000000000002"
NOW: Final = Uptime(BOOT, 500.0)
DUE: Final = PlanFacts(publisher=US, now=1000.0, is_listing=True, removal_delay=60.0, uptime=NOW)


def since(when: float, *, boot_id: str = BOOT) -> Absence:
    """Return an absence since this wall clock time, when the uptime was ``when - 500`` seconds."""
    return Absence(when, Uptime(boot_id, when - 500.0))


def root(**contents: Any) -> Provider:
    return Provider(**{"uuid": HOST, "name": "host", "root_uuid": HOST, "traits": OURS, **contents})


def child(**contents: Any) -> Provider:
    return Provider(
        **{
            "uuid": GPU,
            "name": "gpu",
            "root_uuid": HOST,
            "parent_uuid": HOST,
            "traits": OURS,
            **contents,
        }
    )


def absent(
    live: Provider,
    *others: Provider,
    facts: PlanFacts = DUE,
    allocated: frozenset[str] = frozenset(),
    **remembered: Any,
) -> TreeDraft:
    """Plan the removal of a provider that has been absent for long; return the draft."""
    record = Record(**{"applied": live, "absence": since(900.0), **remembered})
    providers = {one.uuid: one for one in (live, *others)}
    draft = TreeDraft(
        replace(facts, allocated=allocated),
        HOST,
        live=providers,
        known={live.uuid: record},
        absent={live.uuid: live},
    )
    remove(draft)
    return draft


def waits_for(draft: TreeDraft) -> str:
    assert draft.deletions == []
    (pending,) = draft.pending
    return pending.reason


def test_remove_of_a_due_provider_deletes_it_and_its_record() -> None:
    draft = absent(child(), root())
    assert [type(step) for step in draft.deletions] == [DeleteProvider]
    assert draft.records == {GPU: None}
    assert draft.gone == {GPU}
    assert draft.pending == []


def test_remove_of_a_provider_of_another_owner_keeps_it_and_resets_its_absence() -> None:
    """If it becomes ours again, its absence begins at that time."""
    live = child(traits=frozenset(["OWNER_CYBORG"]))
    draft = absent(live, root())
    assert "OWNER_CYBORG" in waits_for(draft)
    record = draft.records[GPU]
    assert record is not None
    assert record.absence is None
    assert record.live == live


def test_absent_provider_with_a_stored_reservation_keeps_its_own_amount_from_before_a_reshape() -> (
    None
):
    """The reshape has left a reserved amount of 1; the driver's own amount is 0."""
    live = child(inventories={"VGPU": Inventory(total=4, reserved=1)}, generation=3)
    known = Record(applied=live, live=replace(live, generation=None), own_reserved={"VGPU": 0})
    draft = TreeDraft(replace(DUE, held={GPU}), HOST, live={GPU: live}, known={GPU: known})
    draft.keep_absent(live, None)
    kept = draft.records[GPU]
    assert kept is not None
    assert kept.own_reserved == {"VGPU": 0}
    assert kept.live is not None
    assert kept.live.inventories["VGPU"].is_fully_reserved


def test_remove_of_an_overlaid_provider_leaves_it_to_its_publisher() -> None:
    assert "another program publishes it" in waits_for(
        absent(child(), root(), mode=PublishingMode.OVERLAY)
    )


def test_remove_of_a_provider_with_another_instance_trait_keeps_it() -> None:
    draft = absent(child(traits=OURS | {"CUSTOM_WHARFINGER_OTHERS"}), root())
    assert "CUSTOM_WHARFINGER_OTHERS" in waits_for(draft)


@pytest.mark.parametrize("generation", [0, 4])
def test_absent_provider_that_we_only_intended_to_create_is_kept(generation: int) -> None:
    live = child(traits=frozenset(), generation=generation)
    assert "creation was completed" in waits_for(absent(live, root(), applied=None, intended=live))


@pytest.mark.parametrize(
    ("facts", "absence"),
    [(DUE, Absence(DUE.now)), (replace(DUE, roots_may_be_elsewhere=True), None)],
    ids=["all nodes known", "a node unknown"],
)
def test_absence_of_a_root_that_may_not_be_ours_is_recorded_without_its_length(
    facts: PlanFacts, absence: Absence | None
) -> None:
    """Another host takes the node over only if its absence is recorded."""
    live = root(traits=frozenset())
    draft = absent(live, facts=facts, applied=None, intended=live, absence=None)
    assert waits_for(draft)
    record = draft.records[HOST]
    assert record is not None
    assert record.absence == absence


@pytest.mark.parametrize(
    ("facts", "absence"),
    [(DUE, Absence(DUE.now)), (replace(DUE, children_may_be_elsewhere=True), None)],
    ids=["all nodes known", "a node unknown"],
)
def test_absence_of_a_child_that_may_not_be_ours_is_recorded_without_its_length(
    facts: PlanFacts, absence: Absence | None
) -> None:
    """Another host takes the child over only if its absence is recorded."""
    live = child(traits=frozenset())
    draft = absent(live, root(), facts=facts, applied=None, intended=live, absence=None)
    assert waits_for(draft)
    record = draft.records[GPU]
    assert record is not None
    assert record.absence == absence


def test_absence_of_an_overlaid_provider_is_not_recorded() -> None:
    draft = absent(root(), absence=None, mode=PublishingMode.OVERLAY)
    assert waits_for(draft)
    record = draft.records[HOST]
    assert record is not None
    assert record.absence is None


def test_remove_of_an_intended_provider_with_both_our_traits_deletes_it() -> None:
    live = child(traits=OURS)
    draft = absent(live, root(), applied=None, intended=live)
    assert [step.uuid for step in draft.deletions] == [GPU]


@pytest.mark.parametrize("mark", sorted(OURS))
def test_remove_of_an_intended_provider_with_one_of_our_traits_keeps_it(mark: str) -> None:
    live = child(traits=frozenset([mark]))
    assert "creation was completed" in waits_for(absent(live, root(), applied=None, intended=live))


@pytest.mark.parametrize("traits", [(), ("OWNER_NOVA",)])
def test_absent_provider_without_our_instance_trait_is_kept(traits: tuple[str, ...]) -> None:
    """Another program may have created it again with the same uuid; a deletion is final."""
    draft = absent(child(traits=frozenset(traits)), root())
    assert "lost the trait" in waits_for(draft)


def test_remove_of_a_device_while_a_node_is_unknown_keeps_it() -> None:
    facts = replace(DUE, children_may_be_elsewhere=True)
    assert "may have moved" in waits_for(absent(child(), root(), facts=facts))


def test_absent_root_is_deleted_even_if_another_node_could_not_be_read() -> None:
    draft = absent(root(), facts=replace(DUE, children_may_be_elsewhere=True))
    assert [step.uuid for step in draft.deletions] == [HOST]


@pytest.mark.parametrize("before", [None, since(1000.0), since(940.5)])
def test_remove_before_the_delay_waits(before: Absence | None) -> None:
    draft = absent(child(), root(), absence=before)
    assert waits_for(draft).startswith("absent for ")
    record = draft.records[GPU]
    assert record is not None
    assert record.absence == (before or since(1000.0))


@pytest.mark.parametrize(("when", "is_due"), [(940.0, True), (940.5, False), (1000.0, False)])
def test_has_lasted_at_exactly_the_delay(when: float, is_due: bool) -> None:
    assert since(when).has_lasted(60.0, NOW) is is_due


def test_has_lasted_without_a_delay_needs_a_second_listing() -> None:
    assert not since(1000.0).has_lasted(0.0, NOW)
    assert since(999.999).has_lasted(0.0, NOW)


#: Recorded absences whose length is unknown, by name.
UNCOUNTED: Final = {
    "of an old release": Absence(0.0),
    "of another boot": replace(since(600.0, boot_id=OTHER_BOOT), since=0.0),
    "later than now": Absence(0.0, Uptime(BOOT, 500.5)),
}


@pytest.mark.parametrize("what", UNCOUNTED)
def test_remove_with_an_absence_of_unknown_length_restarts_the_absence(what: str) -> None:
    draft = absent(child(), root(), absence=UNCOUNTED[what])
    assert waits_for(draft).startswith("absent for 0 s")
    record = draft.records[GPU]
    assert record is not None
    assert record.absence == Absence(DUE.now, NOW)


@pytest.mark.parametrize("wall_clock", [0.0, 1e10])
def test_remove_measures_the_absence_in_uptime(wall_clock: float) -> None:
    facts = replace(DUE, now=wall_clock)
    short, long = Absence(wall_clock, Uptime(BOOT, 441.0)), Absence(1e9, Uptime(BOOT, 440.0))
    assert waits_for(absent(child(), root(), facts=facts, absence=short)).startswith(
        "absent for 59 s"
    )
    assert absent(child(), root(), facts=facts, absence=long).deletions


@pytest.mark.parametrize("before", [None, since(900.0), Absence(1.0)])
def test_remove_without_a_boot_id_keeps_the_provider_with_a_reason(before: Absence | None) -> None:
    draft = absent(child(), root(), facts=replace(DUE, uptime=None), absence=before)
    assert "/proc/sys/kernel/random/boot_id" in waits_for(draft)
    record = draft.records[GPU]
    assert record is not None
    assert record.absence == (before or Absence(DUE.now)), "an unchanged cycle writes nothing"


@pytest.mark.parametrize("allocated", [frozenset(), frozenset([GPU])])
def test_remove_of_a_provider_that_the_driver_still_has_changes_nothing(
    allocated: frozenset[str],
) -> None:
    live = child(inventories={"VGPU": Inventory(total=4, reserved=1)})
    facts = replace(DUE, kept={GPU: "it is still there"})
    draft = absent(live, root(), facts=facts, allocated=allocated)
    assert waits_for(draft) == "it is still there"
    assert (draft.inventories, draft.gone) == ([], set())
    record = draft.records[GPU]
    assert record is not None
    assert record.absence == since(900.0), "it is asked for again by the next listing"


def test_remove_that_waits_records_the_current_state() -> None:
    """Without the record, each cycle would read the provider again."""
    live = child(generation=7)
    record = absent(live, root(), absence=None).records[GPU]
    assert record is not None
    assert record.live == live


def test_remove_of_an_allocated_provider_reserves_it_and_records_its_own_reserved_amounts() -> None:
    live = child(inventories={"VGPU": Inventory(total=4, reserved=1)})
    draft = absent(live, root(), allocated=frozenset([GPU]))
    assert "allocations" in waits_for(draft)
    (step,) = draft.inventories
    assert isinstance(step, SetInventories)
    assert step.after == {"VGPU": Inventory(total=4, reserved=4)}
    record = draft.records[GPU]
    assert record is not None
    assert record.own_reserved == {"VGPU": 1}
    assert draft.gone == {GPU}


def test_remove_of_a_kept_and_reserved_provider_does_not_count_again() -> None:
    live = child(inventories={"VGPU": Inventory(total=4, reserved=4)})
    draft = absent(live, root(), allocated=frozenset([GPU]), own_reserved={"VGPU": 1})
    assert draft.gone == set()
    assert draft.inventories == []
    record = draft.records[GPU]
    assert record is not None
    assert record.own_reserved == {"VGPU": 1}


def figures(step: SetInventories) -> dict[str, tuple[int, int]]:
    return {name: (one.total, one.reserved) for name, one in step.after.items()}


def test_remove_of_a_kept_provider_records_reason_and_start() -> None:
    live = child(inventories={"VGPU": Inventory(total=4, reserved=1)})
    record = absent(live, root(), allocated=frozenset([GPU])).records[GPU]
    assert record is not None
    (reason,) = record.reservations
    assert "allocations" in reason
    assert record.reserved_since == {reason: DUE.now}

    later = replace(DUE, now=2000.0, uptime=Uptime(BOOT, 1500.0))
    again = absent(
        replace(live, inventories={"VGPU": Inventory(total=4, reserved=4)}),
        root(),
        facts=later,
        allocated=frozenset([GPU]),
        own_reserved=record.own_reserved,
        reservations=record.reservations,
        reserved_since=record.reserved_since,
    ).records[GPU]
    assert again is not None
    assert again.reserved_since == {reason: DUE.now}


def test_remove_of_a_kept_provider_records_no_figure_of_a_foreign_reservation() -> None:
    live = child(
        inventories={
            "VGPU": Inventory(total=4, reserved=4),
            "FPGA": Inventory(total=2, reserved=1),
        }
    )
    ours = replace(
        live,
        inventories={"VGPU": Inventory(total=4), "FPGA": Inventory(total=2, reserved=1)},
    )
    draft = absent(live, root(), allocated=frozenset([GPU]), applied=ours)
    (step,) = draft.inventories
    assert figures(step) == {"VGPU": (4, 4), "FPGA": (2, 2)}
    record = draft.records[GPU]
    assert record is not None
    assert record.own_reserved == {"FPGA": 1}


@pytest.mark.parametrize("before", [None, since(950.0)])
def test_remove_of_a_reserved_provider_before_the_delay_keeps_its_own_reserved_amounts(
    before: Absence | None,
) -> None:
    live = child(inventories={"VGPU": Inventory(total=4, reserved=4)})
    draft = absent(
        live,
        root(),
        absence=before,
        own_reserved={"VGPU": 1},
        reservations=("cleaning",),
        reserved_since={"cleaning": 800.0},
    )
    record = draft.records[GPU]
    assert record is not None
    assert record.own_reserved == {"VGPU": 1}
    assert record.reserved_since == {"cleaning": 800.0}
    assert draft.inventories == []


def test_remove_of_a_due_provider_with_a_foreign_reservation_deletes_it() -> None:
    live = child(inventories={"VGPU": Inventory(total=4, reserved=4)})
    ours = replace(live, inventories={"VGPU": Inventory(total=4)})
    draft = absent(live, root(), applied=ours)
    assert [step.uuid for step in draft.deletions] == [GPU]
