"""Reasons to reserve a node: the driver's table, nova's rule, and texts of reasons.

tests/functional/ironic compares the table with Ironic's own states.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.ironic.samples import FREE, INSTANCE, UNKNOWN, is_stricter, node, nova_reserves
from wharfinger_ironic.node import Node
from wharfinger_ironic.states import PROVISION_STATES, reasons

#: The maximum length of a reason.
LONGEST = 300


def held(**fields: Any) -> list[str]:
    return list(reasons(node(**fields)))


def test_reason_of_a_state_has_its_name_and_the_actor() -> None:
    for state in PROVISION_STATES:
        told = held(provision_state=state)
        if state == "available":
            assert (told, nova_reserves(FREE)) == ([], False)
            continue
        [reason] = told
        assert reason == state or reason.startswith(f"{state} (")
        actor = {"wait": "waits for the", "hold": "waits for an operator"}
        assert actor.get(state.rsplit(maxsplit=1)[-1], "") in reason


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
def test_any_node_that_nova_reserves_is_reserved(given: Node) -> None:
    told = list(reasons(given))
    assert bool(told) == (nova_reserves(given) or is_stricter(given))
    assert all(reason.isprintable() and 0 < len(reason) <= LONGEST for reason in told)
    assert len(told) == len(set(told)) <= 6


@pytest.mark.parametrize("state", [None, *UNKNOWN])
def test_unknown_state_reserves_the_node_and_is_shown(state: str | None) -> None:
    [reason] = held(provision_state=state)
    assert "unknown to this driver" in reason
    assert " ".join(str(state).split()) in reason


@pytest.mark.parametrize("state", ["cleaning", "clean wait", "active", "enroll"])
def test_error_of_the_past_is_not_shown(state: str) -> None:
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
        # Ironic's text is shown once; an operator's text is shown, too.
        (
            {**FAILED, "maintenance": True, "maintenance_reason": "no disk"},
            ["clean failed: no disk", "maintenance"],
        ),
        (
            {**FAILED, "maintenance": True, "maintenance_reason": "INC-7"},
            ["clean failed: no disk", "maintenance: INC-7"],
        ),
        # The available node lost power: Ironic's only text is the maintenance reason.
        (
            {"maintenance": True, "maintenance_reason": "lost", "last_error": "lost"},
            ["maintenance: lost"],
        ),
        ({"power_state": "error"}, ["is an error"]),
        ({"power_state": None}, ["is unknown"]),
        # A text that has only unprintable characters is shown escaped.
        ({"retired": True, "retired_reason": "\x00\u202e"}, ["retired: \\x00\\u202e"]),
    ],
)
def test_each_reason_is_shown_once_with_its_text(fields: dict[str, Any], told: list[str]) -> None:
    found = held(**fields)
    assert len(found) == len(told)
    assert all(part in reason for part, reason in zip(told, found, strict=True))
    assert "\n".join(found).count("no disk") == "\n".join(told).count("no disk")


@pytest.mark.parametrize("nothing", [None, "", "   ", "\n\t"])
def test_reason_without_text_has_no_colon(nothing: str | None) -> None:
    told = held(
        provision_state="clean failed",
        last_error=nothing,
        maintenance=True,
        maintenance_reason=nothing,
        retired=True,
        retired_reason=nothing,
    )
    assert told == ["clean failed", "maintenance", "retired"]


def test_long_text_of_many_lines_becomes_one_short_line() -> None:
    [reason] = held(
        maintenance=True, maintenance_reason="a\n\n  b\x1b[31m\r\n" + "c" * 1000 + "no PXE"
    )
    assert reason.startswith("maintenance: a b\\x1b[31m ccc")
    assert reason.endswith("cccno PXE")  # the end of the last error
    assert "ccc...ccc" in reason
    assert len(reason) <= LONGEST
