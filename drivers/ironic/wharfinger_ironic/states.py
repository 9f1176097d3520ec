"""The reasons for which a node's provider is reserved."""

from collections.abc import Iterator
from typing import Final

from wharfinger.exceptions import printable
from wharfinger_ironic.node import Node

#: The provision states of Ironic 39.0, each with the reason to reserve a node in this state. None:
#: the node is free.
PROVISION_STATES: Final[dict[str, str | None]] = {
    "available": None,
    # Before ``available``.
    "enroll": "enroll (not managed yet)",
    "verifying": "verifying (its credentials are tried)",
    "manageable": "manageable (not provided)",
    "inspecting": "inspecting",
    "inspect wait": "inspect wait (waits for the node)",
    "inspect failed": "inspect failed",
    "adopting": "adopting (it was deployed before Ironic had it)",
    "adopt failed": "adopt failed",
    # Cleaning.
    "cleaning": "cleaning",
    "clean wait": "clean wait (waits for the node)",
    "clean hold": "clean hold (waits for an operator)",
    "clean failed": "clean failed",
    # In use.
    "deploying": "deploying",
    "wait call-back": "wait call-back (deploying, waits for the node)",
    "deploy hold": "deploy hold (waits for an operator)",
    "deploy complete": "deploy complete",
    "deploy failed": "deploy failed",
    "active": "active (in use)",
    "rescuing": "rescuing",
    "rescue wait": "rescue wait (waits for the rescue system)",
    "rescue": "rescue (in use, with a rescue system)",
    "rescue failed": "rescue failed",
    "unrescuing": "unrescuing",
    "unrescue failed": "unrescue failed",
    "servicing": "servicing",
    "service wait": "service wait (waits for the node)",
    "service hold": "service hold (waits for an operator)",
    "service failed": "service failed",
    # After use.
    "deleting": "deleting (its instance is taken down)",
    "deleted": "deleted (its instance has been taken down)",
    "error": "error",
}

#: Power states in which a node cannot be deployed; None is unknown.
_POWER_REASONS: Final = {
    None: "its power state is unknown",
    "error": "its power state is an error",
}

#: The largest number of characters of a shown text.
_LONGEST: Final = 200


def reasons(node: Node) -> Iterator[str]:
    """Yield the reasons to reserve a node; none if it is free."""
    state, told = node.provision_state, None
    if state is None or state not in PROVISION_STATES:
        yield f"provision state {_shown(str(state))}: unknown to this driver"
    elif (held := PROVISION_STATES[state]) is not None:
        told = node.last_error if _has_failed(state) else None
        yield _with_words(held, told)
    if node.maintenance:
        why = node.maintenance_reason  # after a failed step, Ironic repeats its error here
        yield _with_words("maintenance", None if why == told else why)
    if node.fault:
        yield f"fault: {_shown(node.fault)}"
    if node.retired:
        yield _with_words("retired", node.retired_reason)
    if node.power_state in _POWER_REASONS:
        yield _POWER_REASONS[node.power_state]
    if node.instance_uuid:
        yield f"it belongs to instance {_shown(node.instance_uuid)}"


def _has_failed(state: str) -> bool:
    return state == "error" or state.endswith(" failed")


def _with_words(reason: str, words: str | None) -> str:
    return f"{reason}: {_shown(words)}" if words and words.strip() else reason


def _shown(words: str) -> str:
    line = printable(" ".join(words.split()))
    half = (_LONGEST - 3) // 2
    return line if len(line) <= _LONGEST else f"{line[:half]}...{line[-half:]}"
