from hypothesis import given
from hypothesis import strategies as st

from wharfinger.providers import Inventory
from wharfinger.providers.reservation import own_reserved, release, reserve_fully


@st.composite
def inventories(draw: st.DrawFn) -> dict[str, Inventory]:
    made = {}
    for name in draw(st.sets(st.sampled_from(["VCPU", "VGPU", "CUSTOM_A"]))):
        total = draw(st.integers(1, 8))
        made[name] = Inventory(
            total=total,
            reserved=draw(st.integers(0, total)),
            max_unit=total,
            allocation_ratio=draw(st.sampled_from([1.0, 16.0])),
        )
    return made


@given(inventories())
def test_full_reservation_leaves_nothing_in_any_class_and_changes_nothing_else(
    before: dict[str, Inventory],
) -> None:
    after = reserve_fully(before)
    assert all(inventory.reserved == inventory.total for inventory in after.values())
    for name, inventory in before.items():
        assert {**after[name].to_dict(), "reserved": 0} == {**inventory.to_dict(), "reserved": 0}
    assert after.keys() == before.keys()


@given(inventories())
def test_release_undoes_a_reservation(before: dict[str, Inventory]) -> None:
    figures = own_reserved(before, {})
    assert release(reserve_fully(before), figures) == before


@given(inventories())
def test_figures_are_remembered_however_often_a_provider_is_reserved(
    before: dict[str, Inventory],
) -> None:
    figures = own_reserved(before, {})
    assert own_reserved(reserve_fully(before), figures) == figures


def test_a_live_figure_that_its_owner_wrote_since_is_the_new_own_figure() -> None:
    live = {"VCPU": Inventory(total=8, reserved=3)}
    assert own_reserved(live, {"VCPU": 1}) == {"VCPU": 3}
    assert release(live, {"VCPU": 1}) == live


def test_a_full_figure_that_we_have_no_record_of_is_the_owners_own() -> None:
    live = {"VCPU": Inventory(total=8, reserved=8)}
    assert own_reserved(live, {}) == {"VCPU": 8}
    assert release(live, {}) == live


def test_an_own_figure_that_no_longer_fits_becomes_the_total() -> None:
    live = {"VCPU": Inventory(total=4, reserved=4)}
    assert release(live, {"VCPU": 6}) == {"VCPU": Inventory(total=4, reserved=4)}
