"""Result of a cycle, collected over its attempts."""

from collections.abc import Iterable, Set
from dataclasses import dataclass, field, replace
from typing import Self

from wharfinger.exceptions import WharfingerError
from wharfinger.providers.plan import ForeignReservation, PendingRemoval, Plan, Step


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

    #: The latest plans of all trees together.
    plan: Plan = field(default_factory=Plan)
    #: The errors of the last write of each tree, by root uuid.
    failures: dict[str, list[WharfingerError]] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    #: The roots of the trees to plan next, and the names and uuids of their nodes; None: all.
    remaining: Set[str] | None = None
    #: Whether another process prevented a write of the last attempt.
    is_blocked: bool = False
    #: The conflict that prevented the last attempt from making a plan.
    conflict: WharfingerError | None = None
    #: The number of conflicts in all attempts.
    conflicts: int = 0

    def add(self, plan: Plan) -> None:
        """Replace the earlier plans of trees that are planned again."""
        self.conflict = None
        again = {tree.root_uuid for tree in plan.trees}.union(self.remaining or ())
        for root in again:
            self.failures.pop(root, None)
        kept = (tree for tree in self.plan.trees if tree.root_uuid not in again)
        errors = {error.identity: error for error in (*self.plan.errors, *plan.errors)}
        self.plan = replace(plan, trees=(*kept, *plan.trees), errors=tuple(errors.values()))

    def result(self) -> CycleResult:
        """Return the result of all attempts together."""
        failures = (error for errors in self.failures.values() for error in errors)
        return CycleResult(
            steps=tuple(self.steps),
            pending=self.plan.pending,
            foreign=self.plan.foreign,
            conflicts=self.conflicts,
            problems=(
                *self.plan.problems,
                *failures,
                *([self.conflict] if self.conflict else ()),
            ),
        )
