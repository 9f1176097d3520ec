"""Why a node cannot be given out: the table of Ironic's states, and what else holds it.

Nova's driver holds back a node that is in maintenance, whose power state is unknown or an error,
that has an instance, and that is in any state but ``available``. So does this one; a test holds the
two side by side. What is stricter here: ``fault`` and ``retired`` hold, too, and so does a
node without a provision state.
"""

from collections.abc import Iterator
from typing import Final

from wharfinger.exceptions import printable
from wharfinger_ironic.node import Node

#: The provision states of Ironic (39), and why a node in one is not to be had. The reason starts
#: with the state as Ironic shows it; None: it is to be had. One that is not here holds as well.
PROVISION_STATES: Final[dict[str, str | None]] = {
    "available": None,
    # On its way there.
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
    # On its way back.
    "deleting": "deleting (its instance is taken down)",
    "deleted": "deleted (its instance has been taken down)",
    "error": "error",
}

#: Power states in which nothing can be deployed; None is unknown.
_NO_POWER: Final = {
    None: "its power state is unknown",
    "error": "its power state is an error",
}

#: Characters of Ironic's own words that are shown.
_LONGEST: Final = 200


def reasons(node: Node) -> Iterator[str]:
    """Why a node cannot be given out, in words for people; nothing where it can."""
    state, told = node.provision_state, None
    if state is None or state not in PROVISION_STATES:
        yield f"provision state {_shown(str(state))}: unknown to this driver"
    elif (held := PROVISION_STATES[state]) is not None:
        told = node.last_error if _has_failed(state) else None
        yield _with_words(held, told)
    if node.maintenance:
        why = node.maintenance_reason  # Ironic gives its error when a step failed
        yield _with_words("maintenance", None if why == told else why)
    if node.fault:
        yield f"fault: {_shown(node.fault)}"
    if node.retired:
        yield _with_words("retired", node.retired_reason)
    if node.power_state in _NO_POWER:
        yield _NO_POWER[node.power_state]
    if node.instance_uuid:
        yield f"it belongs to instance {_shown(node.instance_uuid)}"


def _has_failed(state: str) -> bool:
    return state == "error" or state.endswith(" failed")


def _with_words(reason: str, words: str | None) -> str:
    """The reason, and what Ironic or an operator has written of it."""
    return f"{reason}: {_shown(words)}" if words and words.strip() else reason


def _shown(words: str) -> str:
    """Words from outside in one line of bounded length: its beginning, and its end."""
    line = printable(" ".join(words.split()))
    half = (_LONGEST - 3) // 2
    return line if len(line) <= _LONGEST else f"{line[:half]}...{line[-half:]}"
