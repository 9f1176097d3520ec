"""Result of a cycle with several attempts."""

from wharfinger.providers.plan import ForeignReservation, PendingRemoval, Plan, TreePlan
from wharfinger.reconcile.cycle_result import Attempts

PENDING = PendingRemoval(uuid="u1", name="gpu-1", reason="absent for 0 s")
FOREIGN = ForeignReservation(
    uuid="u2", name="gpu-2", classes=frozenset(["VGPU"]), is_releasable=False
)
FIRST = TreePlan(root_uuid="here", pending=(PENDING,))


def test_result_keeps_the_pending_removals_of_a_tree_that_the_next_attempt_leaves_out() -> None:
    attempts = Attempts()
    attempts.add(Plan(trees=(FIRST, TreePlan(root_uuid="conflict"))))
    attempts.remaining = {"conflict"}

    attempts.add(Plan())

    assert attempts.result().pending == (PENDING,)


def test_result_has_the_foreign_reservations_of_the_last_plan_once() -> None:
    attempts = Attempts()
    attempts.add(Plan(foreign=(FOREIGN,)))
    attempts.remaining = {"conflict"}

    attempts.add(Plan(foreign=(FOREIGN,)))

    assert attempts.result().foreign == (FOREIGN,)


def test_result_has_the_last_plan_of_a_tree_that_is_planned_again() -> None:
    attempts = Attempts()
    attempts.add(Plan(trees=(FIRST,)))
    attempts.remaining = {"here"}

    attempts.add(Plan(trees=(TreePlan(root_uuid="here"),)))

    assert attempts.result().pending == ()
