"""Why nodes are held: the table against Ironic's own, and against nova's rule."""

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ironic.common import state_machine, states

from tests.unit.ironic.samples import FREE, node
from wharfinger_ironic.node import Node
from wharfinger_ironic.states import PROVISION_STATES, reasons

INSTANCE = "00000000-0000-4000-8000-00000000000f"
#: Not Ironic's, though some look like it.
UNKNOWN = ("", "Available", "AVAILABLE", " available", "available ", "available\n", "teleporting")
#: A reason has no more characters, whatever Ironic's words are.
LONGEST = 300


def nova_reserves(given: Node) -> bool:
    """Nova 34's rule: what is used, and what is in no state to be used."""
    used = given.instance_uuid is not None
    no_power = given.power_state is states.NOSTATE or given.power_state == states.ERROR
    good_state = given.provision_state is states.NOSTATE or given.provision_state == "available"
    return used or given.maintenance or no_power or not good_state


def is_stricter(given: Node) -> bool:
    """Where this driver holds a node that nova would give out."""
    return bool(given.fault or given.retired or given.provision_state is None)


def held(**fields: Any) -> list[str]:
    return list(reasons(node(**fields)))


# The table.


def test_the_table_has_every_state_of_ironic_and_no_other() -> None:
    shown = {*states.ALL_STATES, *state_machine.machine.states}
    assert set(PROVISION_STATES) == shown - {states.NOSTATE}


def test_the_table_has_what_ironic_sorts_states_into() -> None:
    kinds = [
        value
        for name, value in vars(states).items()
        if name.endswith("_STATES") and not name.startswith("_")
    ]
    assert len(kinds) > 5
    # `service` is what is asked for, and no state: the node is servicing then.
    assert {state for kind in kinds for state in kind} - {states.SERVICE} <= set(PROVISION_STATES)


def test_a_node_is_to_be_had_in_one_state_alone() -> None:
    assert [state for state, why in PROVISION_STATES.items() if why is None] == ["available"]


@pytest.mark.parametrize("state", sorted(states.ALL_STATES - {states.AVAILABLE}))
def test_a_state_holds_by_its_own_name(state: str) -> None:
    [reason] = held(provision_state=state)
    assert reason == state or reason.startswith(f"{state} (")


@pytest.mark.parametrize("state", sorted(states.ALL_STATES))
def test_a_state_in_which_a_node_waits_says_for_whom(state: str) -> None:
    whom = {"wait": "waits for the", "hold": "waits for an operator"}.get(
        state.rsplit(maxsplit=1)[-1], ""
    )
    assert whom in str(PROVISION_STATES[state])


# Nova's rule.


def test_a_node_is_held_wherever_nova_holds_it_and_else_where_it_is_said() -> None:
    count = stricter = 0
    for state, maintenance, power, instance, fault, retired in product(
        (*states.ALL_STATES, None, *UNKNOWN),
        (False, True),
        (None, "error", "power on", "power off", "rebooting", "soft power off"),
        (None, INSTANCE),
        (None, "power failure", "clean failure"),
        (False, True),
    ):
        given = node(
            provision_state=state,
            maintenance=maintenance,
            power_state=power,
            instance_uuid=instance,
            fault=fault,
            retired=retired,
        )
        ours, theirs = any(reasons(given)), nova_reserves(given)
        assert ours == (theirs or is_stricter(given)), given
        count += 1
        stricter += ours and not theirs
    assert (count, stricter) == (40 * 144, 4 * (5 + 6))


def test_a_node_that_nothing_holds_is_free() -> None:
    assert held() == []
    assert not nova_reserves(FREE)


words = st.one_of(st.none(), st.text(max_size=400))


@given(
    st.builds(
        Node,
        uuid=st.just(FREE.uuid),
        name=words,
        resource_class=words,
        traits=st.lists(st.text()).map(tuple),
        provision_state=st.one_of(words, st.sampled_from(sorted(states.ALL_STATES))),
        power_state=st.one_of(words, st.sampled_from(["error", "power on"])),
        maintenance=st.booleans(),
        maintenance_reason=words,
        fault=words,
        retired=st.booleans(),
        retired_reason=words,
        instance_uuid=st.one_of(st.none(), st.uuids().map(str)),
        last_error=words,
    )
)
def test_whatever_a_node_says_it_is_held_where_nova_holds_it(given: Node) -> None:
    told = list(reasons(given))
    assert bool(told) == (nova_reserves(given) or is_stricter(given))
    assert all(reason.isprintable() and 0 < len(reason) <= LONGEST for reason in told)
    assert len(told) == len(set(told)) <= 6


# What is said.


@pytest.mark.parametrize("state", [None, *UNKNOWN])
def test_a_state_that_nobody_knows_holds_and_is_shown(state: str | None) -> None:
    [reason] = held(provision_state=state)
    assert "unknown to this driver" in reason
    assert " ".join(str(state).split()) in reason


@pytest.mark.parametrize("state", sorted({*states.FAILURE_STATES, states.ERROR}))
def test_what_has_failed_says_why(state: str) -> None:
    [reason] = held(provision_state=state, last_error="no PXE")
    assert reason == f"{PROVISION_STATES[state]}: no PXE"


@pytest.mark.parametrize("state", ["cleaning", "clean wait", "active", "enroll"])
def test_an_error_of_the_past_is_not_told(state: str) -> None:
    [reason] = held(provision_state=state, last_error="no PXE")
    assert "no PXE" not in reason


def test_what_ironic_says_twice_is_told_once() -> None:
    error = "Node x failed step: {'step': 'erase_devices'}: no disk"
    told = held(
        provision_state="clean failed",
        maintenance=True,
        maintenance_reason=error,
        fault="clean failure",
        last_error=error,
    )
    assert told == [
        f"clean failed: {error}",
        "maintenance",
        "fault: clean failure",
    ]


def test_an_operators_words_are_told_beside_ironics() -> None:
    told = held(
        provision_state="clean failed",
        maintenance=True,
        maintenance_reason="disk ordered, INC-7",
        last_error="no disk",
    )
    assert told == [
        "clean failed: no disk",
        "maintenance: disk ordered, INC-7",
    ]


def test_ironics_words_are_told_where_the_state_does_not_have_them() -> None:
    # Power was lost while it was available: Ironic's only words are the maintenance's.
    lost = "During sync_power_state, max retries exceeded"
    told = held(maintenance=True, maintenance_reason=lost, last_error=lost, fault="power failure")
    assert sum(lost in reason for reason in told) == 1


@pytest.mark.parametrize("nothing", [None, "", "   ", "\n\t"])
def test_no_words_leave_no_colon(nothing: str | None) -> None:
    told = held(
        provision_state="clean failed",
        last_error=nothing,
        maintenance=True,
        maintenance_reason=nothing,
        retired=True,
        retired_reason=nothing,
    )
    assert told == ["clean failed", "maintenance", "retired"]


def test_all_that_holds_a_node_is_told() -> None:
    told = held(
        provision_state="active",
        maintenance=True,
        maintenance_reason="a fan",
        fault="power failure",
        retired=True,
        retired_reason="sold",
        power_state=None,
        instance_uuid=INSTANCE,
    )
    assert told == [
        "active (in use)",
        "maintenance: a fan",
        "fault: power failure",
        "retired: sold",
        "its power state is unknown",
        f"it belongs to instance {INSTANCE}",
    ]


def test_an_error_of_power_is_not_an_unknown_one() -> None:
    assert held(power_state="error") == ["its power state is an error"]
    assert held(power_state=None) == ["its power state is unknown"]


def test_words_of_many_lines_become_one_that_is_not_long() -> None:
    [reason] = held(
        maintenance=True, maintenance_reason="a\n\n  b\x1b[31m\r\n" + "c" * 1000 + "no PXE"
    )
    assert reason.startswith("maintenance: a b\\x1b[31m ccc")
    assert reason.endswith("cccno PXE")  # what went wrong in the end
    assert "ccc...ccc" in reason
    assert len(reason) <= LONGEST


def test_words_of_nothing_printable_are_not_nothing() -> None:
    [reason] = held(retired=True, retired_reason="\x00\u202e")
    assert reason == "retired: \\x00\\u202e"
