"""Why nodes are held: the driver's table, nova's rule, and what a reason says.

tests/functional/ironic has the table against Ironic's own.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.ironic.samples import FREE, INSTANCE, UNKNOWN, is_stricter, node, nova_reserves
from wharfinger_ironic.node import Node
from wharfinger_ironic.states import PROVISION_STATES, reasons

#: A reason has no more characters, whatever Ironic's words are.
LONGEST = 300


def held(**fields: Any) -> list[str]:
    return list(reasons(node(**fields)))


def test_a_state_holds_by_its_own_name_and_says_who_has_to_act() -> None:
    for state in PROVISION_STATES:
        told = held(provision_state=state)
        if state == "available":
            assert (told, nova_reserves(FREE)) == ([], False)
            continue
        [reason] = told
        assert reason == state or reason.startswith(f"{state} (")
        whom = {"wait": "waits for the", "hold": "waits for an operator"}
        assert whom.get(state.rsplit(maxsplit=1)[-1], "") in reason


words = st.one_of(st.none(), st.text(max_size=400))


@given(
    st.builds(
        Node,
        uuid=st.just(FREE.uuid),
        name=words,
        resource_class=words,
        traits=st.lists(st.text()).map(tuple),
        provision_state=st.one_of(words, st.sampled_from(sorted(PROVISION_STATES))),
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


@pytest.mark.parametrize("state", [None, *UNKNOWN])
def test_a_state_that_nobody_knows_holds_and_is_shown(state: str | None) -> None:
    [reason] = held(provision_state=state)
    assert "unknown to this driver" in reason
    assert " ".join(str(state).split()) in reason


@pytest.mark.parametrize("state", ["cleaning", "clean wait", "active", "enroll"])
def test_an_error_of_the_past_is_not_told(state: str) -> None:
    [reason] = held(provision_state=state, last_error="no PXE")
    assert "no PXE" not in reason


FAILED: dict[str, Any] = {"provision_state": "clean failed", "last_error": "no disk"}
ALL: dict[str, Any] = {
    "provision_state": "active",
    "maintenance": True,
    "maintenance_reason": "a fan",
    "fault": "power failure",
    "retired": True,
    "retired_reason": "sold",
    "power_state": None,
    "instance_uuid": INSTANCE,
}


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (ALL, ["active", "a fan", "power failure", "sold", "power state", INSTANCE]),
        (FAILED, ["clean failed: no disk"]),
        # What Ironic says twice is told once; an operator's words are told beside Ironic's.
        (
            {**FAILED, "maintenance": True, "maintenance_reason": "no disk"},
            ["clean failed: no disk", "maintenance"],
        ),
        (
            {**FAILED, "maintenance": True, "maintenance_reason": "INC-7"},
            ["clean failed: no disk", "maintenance: INC-7"],
        ),
        # Power was lost while it was available: Ironic's only words are the maintenance's.
        (
            {"maintenance": True, "maintenance_reason": "lost", "last_error": "lost"},
            ["maintenance: lost"],
        ),
        ({"power_state": "error"}, ["is an error"]),
        ({"power_state": None}, ["is unknown"]),
        # Words that cannot be printed are not nothing.
        ({"retired": True, "retired_reason": "\x00\u202e"}, ["retired: \\x00\\u202e"]),
    ],
)
def test_each_thing_that_holds_a_node_is_told_once_with_its_words(
    fields: dict[str, Any], told: list[str]
) -> None:
    found = held(**fields)
    assert len(found) == len(told)
    assert all(part in reason for part, reason in zip(told, found, strict=True))
    assert "\n".join(found).count("no disk") == "\n".join(told).count("no disk")


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


def test_words_of_many_lines_become_one_that_is_not_long() -> None:
    [reason] = held(
        maintenance=True, maintenance_reason="a\n\n  b\x1b[31m\r\n" + "c" * 1000 + "no PXE"
    )
    assert reason.startswith("maintenance: a b\\x1b[31m ccc")
    assert reason.endswith("cccno PXE")  # what went wrong in the end
    assert "ccc...ccc" in reason
    assert len(reason) <= LONGEST
