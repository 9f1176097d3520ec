"""The inventory of one resource class on one provider."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from types import MappingProxyType
from typing import Any, Final, Self

from wharfinger.exceptions import InvalidInventory, shown
from wharfinger.providers.names import check_resource_class

#: Placement's limit for total, reserved, min_unit, max_unit and step_size.
MAX_INT: Final = 0x7FFFFFFF
#: Placement's limit for allocation_ratio.
MAX_RATIO: Final = 3.40282e38


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """Inventory of one resource class of a provider, in units of the class.

    The fields and defaults are those of the Placement API. With ``reserved == total``, no unit is
    free. Raises InvalidInventory for values that Placement cannot store.
    """

    total: int
    reserved: int = 0
    min_unit: int = 1
    max_unit: int = MAX_INT
    step_size: int = 1
    allocation_ratio: float = 1.0

    def __post_init__(self) -> None:
        for name, lowest in _LOWEST.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise _invalid(f"{name} must be a whole number, not {shown(value)}")
            if not lowest <= value <= MAX_INT:
                raise _invalid(f"{name} must be from {lowest} to {MAX_INT}, not {shown(value)}")
            if type(value) is not int:
                object.__setattr__(self, name, int.__index__(value))
        ratio = self.allocation_ratio
        if isinstance(ratio, bool) or not isinstance(ratio, int | float):
            raise _invalid(f"allocation_ratio must be a number, not {shown(ratio)}")
        if not abs(ratio) <= MAX_RATIO:
            raise _invalid(f"allocation_ratio must be above 0 and at most {MAX_RATIO}")
        if type(ratio) is not float:
            exact = float.__float__(ratio) if isinstance(ratio, float) else int.__float__(ratio)
            object.__setattr__(self, "allocation_ratio", exact)

    def check(self) -> Self:
        """Return this inventory; raise InvalidInventory if its figures contradict each other."""
        if self.reserved > self.total:
            raise _invalid(f"reserved {self.reserved} is more than total {self.total}")
        if self.min_unit > self.max_unit:
            raise _invalid(f"min_unit {self.min_unit} is more than max_unit {self.max_unit}")
        if not self.allocation_ratio > 0:
            raise _invalid(f"allocation_ratio must be above 0, not {self.allocation_ratio}")
        return self

    @property
    def is_fully_reserved(self) -> bool:
        """Return whether all units are reserved."""
        return self.reserved >= self.total

    @property
    def capacity(self) -> float:
        """Return the largest sum of allocations, in units."""
        return (self.total - self.reserved) * self.allocation_ratio

    @property
    def least(self) -> int:
        """Return the smallest amount that can be allocated."""
        return -(-self.min_unit // self.step_size) * self.step_size

    @classmethod
    def from_mapping(cls, record: Mapping[str, Any]) -> Self:
        """Convert a dict in the format of the Placement API. Raises InvalidInventory."""
        unknown = sorted(map(str, set(record) - _FIELDS))
        if unknown:
            known = ", ".join(sorted(_FIELDS))
            raise _invalid(f"unknown keys: {', '.join(unknown)}; the known keys are {known}")
        if "total" not in record:
            raise _invalid("total is missing")
        return cls(**record)

    def to_dict(self) -> dict[str, Any]:
        """Return a dict in the format of the Placement API."""
        return asdict(self)


_FIELDS: Final = frozenset(field.name for field in fields(Inventory))
_LOWEST: Final = {"total": 1, "reserved": 0, "min_unit": 1, "max_unit": 1, "step_size": 1}


def check_inventories(
    where: str,
    inventories: Mapping[str, Inventory | Mapping[str, Any]],
    there: Mapping[str, Inventory] = MappingProxyType({}),
) -> dict[str, Inventory]:
    """Check the inventories of a provider, and convert dicts.

    Raises InvalidInventory and InvalidName.
    """
    if not isinstance(inventories, Mapping):
        raise InvalidInventory(
            where=where, problem=f"must be a dict by resource class, not {shown(inventories)}"
        )
    checked = {}
    for key, record in inventories.items():
        name = check_resource_class(key, where)
        try:
            if not isinstance(record, Inventory | Mapping):
                raise _invalid(f"must be an Inventory or a dict, not {shown(record)}")
            inventory = record if isinstance(record, Inventory) else Inventory.from_mapping(record)
            checked[name] = inventory if inventory == there.get(name) else inventory.check()
        except InvalidInventory as error:
            raise InvalidInventory(where=f"{where}, {name}", problem=error.problem) from None
    return checked


def _invalid(problem: str) -> InvalidInventory:
    return InvalidInventory(where="a resource class", problem=problem)
