"""What a driver comes to do while a rule is looked at.

A mutant that has otherwise what its honest driver never comes to do there is seen to do the same.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import wraps
from types import FunctionType
from typing import Any, Final

import fixtures

from tests.lab.conformance.honest import DevicesDriver, MachinesDriver
from wharfinger.driver import ComputeDriver

#: What every class has.
_USUAL: Final = {
    *vars(type("Empty", (), {})),
    *("__abstractmethods__", "__annotations__", "_abc_impl"),
}


class Reach(fixtures.Fixture):
    """Notes which methods of a driver are called, in any thread, under the rule of the time."""

    def __init__(self, kind: type[ComputeDriver]) -> None:
        super().__init__()
        self._kind = kind
        self._lock = threading.Lock()
        self._by_rule: dict[str, set[str]] = defaultdict(set)
        self.rule = ""

    def _setUp(self) -> None:
        for one in self._kind.__mro__:
            for name in _methods(one) if issubclass(one, ComputeDriver) else ():
                method = self._noting(name, vars(one)[name])
                where = f"{one.__module__}.{one.__qualname__}.{name}"
                self.useFixture(fixtures.MonkeyPatch(where, method))

    def is_otherwise(self, mutant: type[ComputeDriver], rule: str) -> bool:
        """Whether a mutant may be seen to be another driver under a rule."""
        # What is declared is read when a driver is loaded.
        own = [*_own(mutant)]
        if rule.startswith("WHF-1") or not all(map(_is_method, own)):
            return True
        return not self._by_rule[rule].isdisjoint(name for name, _ in own)

    def _noting(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self._lock:
                self._by_rule[self.rule].add(name)
            return method(*args, **kwargs)

        return call


def honest(mutant: type) -> type[ComputeDriver]:
    """The honest driver that a mutant is made of."""
    return MachinesDriver if issubclass(mutant, MachinesDriver) else DevicesDriver


def _own(mutant: type) -> Iterator[tuple[str, object]]:
    """What a mutant has otherwise, or puts before what its honest driver has."""
    for one in mutant.__mro__:
        for name, value in () if issubclass(honest(mutant), one) else vars(one).items():
            # Nobody but the mutant's own methods asks for what no other has.
            is_its_own = not hasattr(honest(mutant), name) and not isinstance(value, property)
            if name not in _USUAL and not is_its_own:
                yield name, value


def _methods(kind: type) -> list[str]:
    return [name for name, value in vars(kind).items() if _is_method((name, value))]


def _is_method(item: tuple[str, object]) -> bool:
    name, value = item
    return isinstance(value, FunctionType) and not name.startswith("__")
