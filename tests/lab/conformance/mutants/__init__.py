"""Drivers with one defect each, by the rule that it breaks; a module for each chapter."""

from collections.abc import Callable, Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Final, TypeVar

from tests.lab.conformance.honest import LabDriver

T = TypeVar("T", bound=type[LabDriver])

_MUTANTS: Final[list[tuple[str, type[LabDriver]]]] = []


def mutant(rule: str) -> Callable[[T], T]:
    """Register a class as a mutant, which breaks the rule of that id."""

    def register(kind: T) -> T:
        _MUTANTS.append((rule, kind))
        return kind

    return register


def all_mutants() -> Iterator[tuple[str, type[LabDriver]]]:
    """Every mutant, with the id of the rule that it breaks."""
    for module in iter_modules(__path__, f"{__name__}."):
        import_module(module.name)
    yield from sorted(_MUTANTS, key=lambda one: (one[0], one[1].__qualname__))
