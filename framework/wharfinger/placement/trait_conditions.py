"""Conditions on traits: the parameter ``required`` of queries."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Final, Self

from wharfinger.exceptions import InvalidRequest
from wharfinger.providers.names import MAX_NAME

_TRAIT: Final = re.compile(r"[A-Z0-9_]+\Z")
#: The beginning of a condition that any of its traits meets: "in:T1,T2".
ANY_OF: Final = "in:"
_FORBIDDEN: Final = "!"
#: The subject of an error, unless the caller replaces it by a more precise one.
SUBJECT: Final = "request"

Traits = frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraitConditions:
    """Conditions on the traits of a provider; raises InvalidRequest.

    ``any_of`` has sets of traits: a provider needs at least one trait of each set.
    """

    required: Traits = frozenset()
    any_of: frozenset[Traits] = frozenset()
    forbidden: Traits = frozenset()

    def __post_init__(self) -> None:
        # A choice of one trait is the same as a required trait, which older servers accept, too.
        choices = {*map(frozenset, self.any_of), *(frozenset([one]) for one in self.required)}
        for trait in sorted(self.forbidden.union(*choices)):
            check_name(trait)
        if frozenset() in choices:
            raise _invalid(ANY_OF, "it needs at least one trait.")
        only = frozenset(trait for choice in choices if len(choice) == 1 for trait in choice)
        object.__setattr__(self, "required", only)
        object.__setattr__(self, "any_of", frozenset(one for one in choices if len(one) > 1))
        object.__setattr__(self, "forbidden", frozenset(self.forbidden))
        for choice in sorted(choices, key=sorted):
            if choice <= self.forbidden:
                both = " and ".join(sorted(choice))
                problem = (
                    f"{both} cannot be required and forbidden."
                    if len(choice) == 1
                    else f"one of {both} is required, but all of them are forbidden."
                )
                raise _invalid(",".join(self.values()), problem)

    @classmethod
    def parse(cls, values: Iterable[str], key: str = "required") -> Self:
        """Return the conditions in texts with the syntax of the API: "T1,!T2", "in:T1,T2".

        Raises InvalidRequest.
        """
        values = list(values)
        given = ""  # the text that an error names
        try:
            parts = []
            for given in values:
                parts.append(cls._parse_one(given.strip()))
            given = " ".join(values)
            return reduce(and_, parts, cls())
        except InvalidRequest as error:
            raise _invalid(given, error.problem, key) from None

    @classmethod
    def _parse_one(cls, value: str) -> Self:
        traits = frozenset(map(str.strip, value.removeprefix(ANY_OF).split(",")))
        forbidden = frozenset(trait for trait in traits if trait.startswith(_FORBIDDEN))
        if not value.startswith(ANY_OF):
            names = frozenset(trait.removeprefix(_FORBIDDEN) for trait in forbidden)
            return cls(required=traits - forbidden, forbidden=names)
        for trait in sorted(forbidden):
            problem = (
                f"no trait after in: can be forbidden. Write {trait} as a condition of its own."
            )
            raise _invalid(value, problem)
        return cls(any_of=frozenset([traits]))

    def __bool__(self) -> bool:
        return bool(self.required or self.any_of or self.forbidden)

    def __and__(self, other: Self) -> Self:
        return type(self)(
            required=self.required | other.required,
            any_of=self.any_of | other.any_of,
            forbidden=self.forbidden | other.forbidden,
        )

    @property
    def wanted(self) -> Traits:
        """All traits in ``required`` and ``any_of``."""
        return self.required.union(*self.any_of)

    def values(self) -> tuple[str, ...]:
        """Return the values of the ``required`` parameters of a query."""
        forbidden = (f"{_FORBIDDEN}{trait}" for trait in sorted(self.forbidden))
        plain = ",".join([*sorted(self.required), *forbidden])
        choices = (ANY_OF + ",".join(sorted(one)) for one in sorted(self.any_of, key=sorted))
        return (plain, *choices) if plain else (*choices,)


NO_CONDITIONS: Final = TraitConditions()


def check_name(trait: str) -> str:
    """Return the trait name; raises InvalidRequest for any other text."""
    if trait == "":
        problem = "a trait is missing: name one."
    elif ANY_OF in trait:
        problem = (
            f"{ANY_OF} has to be the beginning of a condition of its own, such as {ANY_OF}T1,T2."
        )
    elif not _TRAIT.match(trait) or len(trait) > MAX_NAME:
        problem = (
            f"{trait!r} cannot be a trait: a trait consists of A-Z, 0-9 and _, such as "
            f"HW_CPU_X86_VMX or CUSTOM_FAST, and has at most {MAX_NAME} characters."
        )
    else:
        return trait
    raise _invalid(trait, problem)


def _invalid(value: str, problem: str, key: str = "required") -> InvalidRequest:
    return InvalidRequest(subject=SUBJECT, key=key, value=value, problem=problem)
