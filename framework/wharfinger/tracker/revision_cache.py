"""Values that are read of objects, for as long as nobody saves those again."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Generic, TypeVar

_Value = TypeVar("_Value")


class Followed(Generic[_Value]):
    """A value for each of many objects, by key; an object is read when its revision has changed.

    ``get`` reads the objects of some keys, ``read`` makes a value of one.
    """

    def __init__(
        self, get: Callable[[list[str]], Iterable[Any]], read: Callable[[Any], _Value]
    ) -> None:
        self._get: Final = get
        self._read: Final = read
        self._revisions: Mapping[str, int] = {}
        self.values: Mapping[str, _Value] = {}

    def update(self, revisions: Mapping[str, int]) -> bool:
        """Bring the values in line with these revisions of all objects; whether that took any."""
        if revisions == self._revisions:
            return False
        values = {key: self.values[key] for key in revisions.keys() & self.values.keys()}
        seen = {key: self._revisions[key] for key in values}
        moved = [key for key, revision in revisions.items() if seen.get(key) != revision]
        for one in self._get(moved) if moved else ():
            # It may have been saved again meanwhile.
            values[one.key], seen[one.key] = self._read(one), one.revision
        self._revisions, self.values = seen, values
        return True
