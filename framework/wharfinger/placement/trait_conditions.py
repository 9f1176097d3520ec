"""Conditions on traits: what ``required`` says, for candidates and for providers. Pure."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Self

from wharfinger.exceptions import InvalidRequest
from wharfinger.providers.names import MAX_NAME

_TRAIT: Final = re.compile(r"[A-Z0-9_]+\Z")
#: What a choice between traits begins with.
ANY_OF: Final = "in:"
_FORBIDDEN: Final = "!"
#: What an error is about, until somebody knows better.
SUBJECT: Final = "request"

Traits = frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraitConditions:
    """What a provider's traits have to be; all of it holds.

    ``required`` are those that it has; of each set in ``any_of``, it has one or more; of
    ``forbidden``, none. Raises InvalidRequest for what no provider could be.
    """

    required: Traits = frozenset()
    any_of: frozenset[Traits] = frozenset()
    forbidden: Traits = frozenset()

    def __post_init__(self) -> None:
        for trait in self.required | self.forbidden | frozenset().union(*self.any_of):
            check_name(trait)
        choices = frozenset(map(frozenset, self.any_of))
        if frozenset() in choices:
            raise _invalid(ANY_OF, "it names no trait, and one has to be there.")
        # A choice of one is none, and older servers take it.
        only = frozenset(trait for choice in choices if len(choice) == 1 for trait in choice)
        object.__setattr__(self, "required", frozenset(self.required) | only)
        object.__setattr__(self, "any_of", frozenset(one for one in choices if len(one) > 1))
        object.__setattr__(self, "forbidden", frozenset(self.forbidden))
        for choice in sorted([*self.any_of, *({trait} for trait in self.required)], key=sorted):
            if choice <= self.forbidden:
                both = " and ".join(sorted(choice))
                problem = (
                    f"{both} cannot be required and forbidden."
                    if len(choice) == 1
                    else f"one of {both} is to be there, and all of them are forbidden."
                )
                raise _invalid(",".join(self.values()), problem)

    @classmethod
    def parse(cls, values: Iterable[str], key: str = "required") -> Self:
        """Read conditions as the API writes them: "T1,!T2", "in:T1,T2"; all of them hold.

        ``key`` is where they stand. Raises InvalidRequest.
        """
        required: set[str] = set()
        any_of: set[Traits] = set()
        forbidden: set[str] = set()
        values = list(values)
        for value in values:
            try:
                if value.strip().startswith(ANY_OF):
                    any_of.add(frozenset(_choice(value.strip())))
                    continue
                for item in value.split(","):
                    trait = check_name(item.strip().removeprefix(_FORBIDDEN))
                    (forbidden if item.strip().startswith(_FORBIDDEN) else required).add(trait)
            except InvalidRequest as error:
                raise _invalid(value, error.problem, key) from None
        try:
            return cls(
                required=frozenset(required),
                any_of=frozenset(any_of),
                forbidden=frozenset(forbidden),
            )
        except InvalidRequest as error:
            raise _invalid(" ".join(values), error.problem, key) from None

    def __bool__(self) -> bool:
        return bool(self.required or self.any_of or self.forbidden)

    def __and__(self, other: Self) -> Self:
        """The conditions of both."""
        return type(self)(
            required=self.required | other.required,
            any_of=self.any_of | other.any_of,
            forbidden=self.forbidden | other.forbidden,
        )

    @property
    def wanted(self) -> Traits:
        """All traits that are required, or may be one that is."""
        return self.required.union(*self.any_of)

    def values(self) -> tuple[str, ...]:
        """The conditions as the API writes them, each for a ``required`` of its own.

        One, which all servers take, unless there is a choice between traits.
        """
        return tuple(self._values())

    def _values(self) -> Iterator[str]:
        forbidden = (f"{_FORBIDDEN}{trait}" for trait in sorted(self.forbidden))
        if plain := ",".join([*sorted(self.required), *forbidden]):
            yield plain
        for choice in sorted(self.any_of, key=sorted):
            yield f"{ANY_OF}{','.join(sorted(choice))}"


#: Any provider will do.
NO_CONDITIONS: Final = TraitConditions()


def check_name(trait: str) -> str:
    """Return what can be the name of a trait; raise InvalidRequest for anything else.

    Which traits there are, Placement says: its os-traits may be newer than ours.
    """
    if trait == "":
        raise _invalid(trait, "a trait is missing: name one.")
    if ANY_OF in trait:
        raise _invalid(
            trait,
            f"{ANY_OF} begins a condition, and is about all of it: put {trait!r} in one of its "
            "own.",
        )
    if not _TRAIT.match(trait) or len(trait) > MAX_NAME:
        raise _invalid(
            trait,
            f"{trait!r} cannot be a trait: those are of A-Z, 0-9 and _, such as HW_CPU_X86_VMX or "
            f"CUSTOM_FAST, with at most {MAX_NAME} characters.",
        )
    return trait


def _choice(value: str) -> Iterator[str]:
    for item in value.removeprefix(ANY_OF).split(","):
        trait = item.strip()
        if trait.startswith(_FORBIDDEN):
            raise _invalid(
                value,
                f"nothing after in: can be forbidden. Put {trait} in a condition of its own.",
            )
        yield check_name(trait)


def _invalid(value: str, problem: str, key: str = "required") -> InvalidRequest:
    return InvalidRequest(subject=SUBJECT, key=key, value=value, problem=problem)
