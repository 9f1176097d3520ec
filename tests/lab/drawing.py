"""Draw the cases that a test run tries: a random sample, or with ``--all`` every case.

Whether a case is drawn depends on the seed, the test and the case, and hardly on the other tests of
the run. So ``--seed N`` draws the same cases again, also in a run of only some tests.

Put a case that has failed once into ``keep``, so that each run tries it.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import seed as seeded

T = TypeVar("T")
_Property = TypeVar("_Property", bound=Callable[..., None])

MARKER: Final = "drawn"
#: The scope for which a marker draws.
_OF: Final = ("test", "module")
#: The report of a failure names up to this many cases, and counts more.
_NAMED: Final = 20


@dataclass
class Draw:
    """Draws cases for one test, and records them for the report if the test fails.

    ``seed`` is None if every case is tried.
    """

    seed: int | None
    test: str
    notes: list[str] = field(default_factory=list)

    def __call__(self, cases: Iterable[T], number: int, keep: Collection[T] = ()) -> list[T]:
        """Return ``number`` random cases and those of ``keep``, in their order."""
        every = list(cases)
        chosen = chosen_of(
            [str(index) for index in range(len(every))], number, self.seed, self.test
        )
        drawn = [one for index, one in enumerate(every) if index in chosen or one in keep]
        if len(drawn) <= _NAMED:
            self.notes.append(f"{len(drawn)} of {len(every)} cases: {', '.join(map(str, drawn))}")
        else:
            self.notes.append(f"{len(drawn)} of {len(every)} cases")
        return drawn

    def number(self, every: int, some: int) -> int:
        """Return the number of examples of a hypothesis property: ``every`` with --all."""
        number = every if self.seed is None else some
        self.notes.append(f"{number} of {every} examples")
        return number

    def examples(self, every: int, some: int) -> Callable[[_Property], _Property]:
        """Return a decorator that sets the seed and the number of examples of a property."""
        limits = settings(
            max_examples=self.number(every, some),
            database=None,
            deadline=None,
            phases=[Phase.explicit, Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        )
        return lambda test: seeded(self.seed or 0)(limits(test))


@dataclass(frozen=True)
class _Marked:
    """The arguments of a marker: how many cases are tried, and the ids of those always tried."""

    number: int
    keep: Collection[str] = ()
    of: str = "test"

    def __post_init__(self) -> None:
        if self.of not in _OF or isinstance(self.keep, str):
            raise pytest.UsageError(f"pytest.mark.{MARKER}: of is one of {_OF}, and keep a list")

    def place(self, item: pytest.Item) -> str:
        """Return the node id of the test or module among whose cases the marker draws."""
        return item.nodeid.partition("::" if self.of == "module" else "[")[0]

    def keeps(self, item: pytest.Item) -> bool:
        """Return whether ``keep`` has the case of this item."""
        id = item.nodeid.partition("[")[2].removesuffix("]")
        return any(f"-{one}-" in f"-{id}-" for one in self.keep)


def chosen_of(cases: Sequence[str], number: int, seed: int | None, place: str) -> set[int]:
    """Return the indexes of ``number`` cases drawn by the seed; without a seed, of all cases."""
    if seed is None:
        return set(range(len(cases)))

    def rank(index: int) -> float:
        return random.Random(f"{seed} {place} {cases[index]}").random()

    return set(sorted(range(len(cases)), key=rank)[:number])


def add_options(parser: pytest.Parser) -> None:
    group = parser.getgroup("drawing", "which of many cases are tried")
    group.addoption("--all", action="store_true", dest="every_case", help="try every case")
    group.addoption(
        "--seed", type=int, help="draw cases and order tests by this seed; default: a random one"
    )


def configure(config: pytest.Config) -> None:
    """Choose the seed of the run. An xdist worker uses the seed of its controller.

    pytest-randomly, if it is installed, orders the tests by the same seed.
    """
    config.addinivalue_line(
        "markers",
        f"{MARKER}(number, keep=(), of='test'): try so many of the parametrised cases of a test, "
        "or of those so marked in a module; and always those whose ids are in keep",
    )
    if config.option.seed is None:
        given = getattr(config, "workerinput", {})
        config.option.seed = given.get("seed", random.randrange(1_000_000))
    if getattr(config.option, "randomly_seed", None) == "default":
        config.option.randomly_seed = config.option.seed


def seed_of(config: pytest.Config) -> int | None:
    """Return the seed of the run, or None if it tries every case."""
    return None if config.option.every_case else int(config.option.seed)


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the items with the marker ``drawn`` whose cases were not drawn."""
    seed = seed_of(config)
    if seed is None:
        return
    groups: dict[tuple[str, int], list[tuple[pytest.Item, _Marked]]] = defaultdict(list)
    for item in items:
        for mark in item.iter_markers(MARKER):
            marked = _Marked(*mark.args, **mark.kwargs)
            # All items of a marked function share one mark object.
            groups[marked.place(item), id(mark)].append((item, marked))
    left_out: set[pytest.Item] = set()
    # Draw for modules first; tests draw from the rest.
    for (place, _), members in sorted(groups.items(), key=lambda group: group[1][0][1].of):
        others = [item for item, one in members if not one.keeps(item) and item not in left_out]
        number = members[0][1].number
        chosen = chosen_of([item.nodeid for item in others], number, seed, place)
        left_out |= {item for index, item in enumerate(others) if index not in chosen}
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


def report(config: pytest.Config, write: Callable[[str], None]) -> None:
    """Write which cases the run has tried, and how to try them again."""
    seed = seed_of(config)
    if seed is None:
        write(f"every case was tried, in the order of --seed {config.option.seed}")
    else:
        write(f"drawn with --seed {seed}, which draws the same cases again; --all tries every case")


def explain(item: pytest.Item, failed: pytest.TestReport) -> None:
    """Add a section with the drawn cases to the report of a failed test."""
    draw = getattr(item, "funcargs", {}).get("draw")
    notes = draw.notes if isinstance(draw, Draw) else []
    if notes or item.get_closest_marker(MARKER):
        seed = seed_of(item.config)
        how = "every case (--all)" if seed is None else f"drawn with --seed {seed}"
        failed.sections.append(("drawn cases", "\n".join([how, *notes])))
