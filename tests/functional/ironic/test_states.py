"""The driver's table of provision states, compared with Ironic's states and with nova's rule."""

from itertools import product

import pytest
from ironic.common import state_machine, states

from tests.unit.ironic.samples import INSTANCE, UNKNOWN, is_stricter, node, nova_reserves
from wharfinger_ironic.states import PROVISION_STATES, reasons


def test_table_has_every_state_of_ironic_and_no_other() -> None:
    shown = {*states.ALL_STATES, *state_machine.machine.states}
    assert set(PROVISION_STATES) == shown - {states.NOSTATE}
    kinds = [
        value
        for name, value in vars(states).items()
        if name.endswith("_STATES") and not name.startswith("_")
    ]
    assert len(kinds) > 5
    # `service` is only a target state. A node on its way there is in the state `servicing`.
    assert {state for kind in kinds for state in kind} - {states.SERVICE} <= set(PROVISION_STATES)


@pytest.mark.parametrize("state", sorted({*states.FAILURE_STATES, states.ERROR}))
def test_reason_of_a_failed_state_has_the_error(state: str) -> None:
    [reason] = reasons(node(provision_state=state, last_error="no PXE"))
    assert reason == f"{PROVISION_STATES[state]}: no PXE"


def test_node_is_reserved_if_nova_reserves_it_or_the_stricter_rule_applies() -> None:
    assert (states.NOSTATE, states.ERROR, states.AVAILABLE) == (None, "error", "available")
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
