"""Values read of objects: again when an object was saved, and only then."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from wharfinger.tracker.revision_cache import Followed


@dataclass(frozen=True)
class One:
    key: str
    revision: int
    value: str


@dataclass
class World:
    """Objects that others save, and which of them were read."""

    objects: dict[str, One] = field(default_factory=dict)
    read: list[str] = field(default_factory=list)

    def save(self, key: str, value: str) -> None:
        before = self.objects.get(key)
        self.objects[key] = One(key, before.revision + 1 if before else 1, value)

    def get(self, keys: list[str]) -> Iterable[One]:
        self.read += keys
        return [self.objects[key] for key in keys if key in self.objects]

    @property
    def revisions(self) -> dict[str, int]:
        return {key: one.revision for key, one in self.objects.items()}

    @property
    def values(self) -> dict[str, str]:
        return {key: one.value for key, one in self.objects.items()}

    def follow(self) -> Followed[str]:
        return Followed[str](self.get, lambda one: str(one.value))


def test_what_was_not_saved_is_not_read_again() -> None:
    world = World()
    world.save("a", "1")
    world.save("b", "2")
    followed = world.follow()
    assert followed.update(world.revisions)
    assert (followed.values, sorted(world.read)) == (world.values, ["a", "b"])
    assert not followed.update(world.revisions)
    world.save("b", "3")
    assert followed.update(world.revisions)
    assert followed.values == {"a": "1", "b": "3"}
    assert world.read[2:] == ["b"]


def test_what_is_gone_is_forgotten_and_takes_no_reading() -> None:
    world = World()
    world.save("a", "1")
    world.save("b", "2")
    followed = world.follow()
    followed.update(world.revisions)
    world.read.clear()
    del world.objects["a"]
    assert followed.update(world.revisions)
    assert (followed.values, world.read) == ({"b": "2"}, [])
    # It is made again, and has the revision that it had.
    world.save("a", "9")
    assert followed.update(world.revisions)
    assert followed.values == {"a": "9", "b": "2"}


def test_what_is_saved_or_goes_while_it_is_read_is_seen_the_next_time() -> None:
    world = World()
    for key in ("a", "b", "c"):
        world.save(key, "1")
    followed = world.follow()
    before = world.revisions
    world.save("a", "2")
    del world.objects["b"]
    followed.update(before)
    assert followed.values == {"a": "2", "c": "1"}
    world.read.clear()
    assert not followed.update(world.revisions)
    assert (followed.values, world.read) == (world.values, [])
    world.save("b", "3")
    followed.update(world.revisions)
    assert followed.values == world.values


def test_what_cannot_be_read_is_asked_for_each_time_and_leaves_the_others() -> None:
    world = World()
    world.save("a", "1")
    followed = world.follow()
    for _ in range(2):
        followed.update({**world.revisions, "spoilt": 7})
        assert followed.values == {"a": "1"}
    assert world.read.count("a") == 1


_ACTS = st.tuples(st.sampled_from(["save", "delete", "update"]), st.sampled_from("abc"))


@given(st.lists(_ACTS, max_size=30))
def test_values_are_those_of_the_objects_whatever_happens_to_them(
    acts: list[tuple[str, str]],
) -> None:
    world = World()
    followed = world.follow()
    saves = 0
    for act, key in [*acts, ("update", "")]:
        match act:
            case "save":
                saves += 1
                # A revision is never had twice.
                world.objects[key] = One(key, saves, f"{saves}")
            case "delete":
                world.objects.pop(key, None)
            case "update":
                followed.update(world.revisions)
                assert followed.values == world.values
    assert len(world.read) <= saves
