"""Mutants: drivers with one defect each, which breaks one rule. A module for each chapter of rules.

Each docstring says what the driver does wrong.
"""

from collections.abc import Callable, Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Final, TypeVar

from tests.lab.conformance.honest import LabDriver

T = TypeVar("T", bound=type[LabDriver])

_MUTANTS: Final[list[tuple[str, type[LabDriver]]]] = []


def mutant(rule: str) -> Callable[[T], T]:
    """Register a class as a mutant that breaks the rule with this id."""

    def register(kind: T) -> T:
        _MUTANTS.append((rule, kind))
        return kind

    return register


def all_mutants() -> Iterator[tuple[str, type[LabDriver]]]:
    """Yield all mutants in the order of the rules, each with the id of the rule that it breaks."""
    for module in iter_modules(__path__, f"{__name__}."):
        import_module(module.name)
    yield from sorted(_MUTANTS, key=lambda one: (one[0], one[1].__qualname__))
