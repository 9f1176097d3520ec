"""Result of a cycle, collected over its attempts."""

from collections.abc import Iterable, Set
from dataclasses import dataclass, field, replace
from typing import Self

from wharfinger.exceptions import WharfingerError
from wharfinger.providers.plan import ForeignReservation, PendingRemoval, Plan, Step, TreePlan


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleResult:
    """Result of one cycle of a driver instance."""

    steps: tuple[Step, ...] = ()
    pending: tuple[PendingRemoval, ...] = ()
    #: Full reservations of other programs, which the cycle has kept.
    foreign: tuple[ForeignReservation, ...] = ()
    problems: tuple[WharfingerError, ...] = ()
    #: How often a tree could not be written because another process had changed it.
    conflicts: int = 0

    def with_problems(self, more: Iterable[WharfingerError]) -> Self:
        """Return this result with more problems."""
        return replace(self, problems=(*self.problems, *more))


@dataclass(slots=True)
class Attempts:
    """Attempts of one cycle to write its trees."""

    #: The latest plan of each tree, and the errors of its write, by root uuid.
    trees: dict[str, TreePlan] = field(default_factory=dict)
    failures: dict[str, list[WharfingerError]] = field(default_factory=dict)
    #: Pending removals and errors that belong to no tree.
    orphans: tuple[PendingRemoval, ...] = ()
    foreign: tuple[ForeignReservation, ...] = ()
    errors: dict[str, WharfingerError] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    #: The roots of the trees that the next attempt plans; None: all.
    remaining: Set[str] | None = None
    #: Whether another process prevented a write of the last attempt.
    is_blocked: bool = False
    #: The conflict that prevented the last attempt from making a plan.
    conflict: WharfingerError | None = None
    #: The number of conflicts in all attempts.
    conflicts: int = 0

    def add(self, plan: Plan) -> None:
        """Drop the earlier plans of the ``remaining`` trees, and add a plan."""
        self.conflict = None
        self.orphans, self.foreign = plan.orphans, plan.foreign
        for root in self.remaining or ():
            self.trees.pop(root, None)
            self.failures.pop(root, None)
        self.errors.update((error.identity, error) for error in plan.errors)
        self.trees.update((tree.root_uuid, tree) for tree in plan.trees)

    def result(self) -> CycleResult:
        """Return the result of all attempts together."""
        plan = Plan(trees=tuple(self.trees.values()), orphans=self.orphans)
        failures = (error for errors in self.failures.values() for error in errors)
        return CycleResult(
            steps=tuple(self.steps),
            pending=plan.pending,
            foreign=self.foreign,
            conflicts=self.conflicts,
            problems=(
                *self.errors.values(),
                *plan.problems,
                *failures,
                *([self.conflict] if self.conflict else ()),
            ),
        )
