"""Drivers with one defect each, by the rule that it breaks; a module for each chapter."""

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pkgutil import iter_modules
from typing import Final, TypeVar

from tests.lab.conformance.honest import LabDriver

T = TypeVar("T", bound=type[LabDriver])

_MUTANTS: Final[list[tuple[str, type[LabDriver]]]] = []


#: The ids of other rules that a mutant breaks, too.
ALSO_BROKEN: Final[dict[type[LabDriver], Sequence[str]]] = {}


def mutant(rule: str, also: Sequence[str] = ()) -> Callable[[T], T]:
    """Register a class as a mutant: it breaks the rule of that id, may break those in ``also``,
    and no other."""

    def register(kind: T) -> T:
        _MUTANTS.append((rule, kind))
        ALSO_BROKEN[kind] = also
        return kind

    return register


def all_mutants() -> Iterator[tuple[str, type[LabDriver]]]:
    """Every mutant, with the id of the rule that it breaks."""
    for module in iter_modules(__path__, f"{__name__}."):
        import_module(module.name)
    yield from sorted(_MUTANTS, key=lambda one: (one[0], one[1].__qualname__))
