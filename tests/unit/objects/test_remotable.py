"""Remotable methods behave the same in this process and through a server."""

from datetime import UTC, datetime
from typing import Any, Self

import pytest

from wharfinger.exceptions import InvalidObject
from wharfinger.objects import Context, WharfingerObject, field_types
from wharfinger.objects.base import REGISTERED, ObjectList, remotable
from wharfinger.objects.field_base import ListOfObjectsField, ObjectField
from wharfinger.objects.remote_objects import ObjectServer, RemoteObjects

NOWHERE = Context()
MOMENT = datetime(2031, 5, 1, tzinfo=UTC)


class Crane(WharfingerObject):
    """An object with remotable methods."""

    fields = {
        "name": field_types.name(),
        "loads": field_types.texts(default=[]),
        "seen": field_types.moment(nullable=True),
        "twin": ObjectField("Crane", nullable=True),
    }
    name: str
    loads: list[str]
    seen: datetime | None
    twin: "Crane | None"

    @classmethod
    @remotable
    def build(cls, context: Context, name: str) -> Self:
        return cls(context, name=name)

    @remotable
    def lift(self, load: str, seen: datetime | None = None) -> int:
        self.loads.append(load)
        self.seen = seen
        self.obj_reset_changes(["loads"])
        return len(self.loads)

    @remotable
    def pair(self, twin: "Crane") -> "Crane":
        self.twin = twin
        return twin


class CraneList(ObjectList[Crane]):
    """A list with a remotable method."""

    fields = {"objects": ListOfObjectsField("Crane")}
    child_versions = {"1.0": "1.0"}

    @remotable
    def lift_all(self, load: str) -> None:
        for one in self.objects:
            one.loads = [*one.loads, load]
            one.obj_reset_changes(["loads"])


@pytest.fixture(autouse=True, params=["here", "there"])
def keeper(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Store the objects in this process, or behind a server."""

    def answer(question: bytes) -> bytes:
        with monkeypatch.context() as there:
            there.setattr(WharfingerObject, "indirection_api", None)
            return ObjectServer(NOWHERE).answer(question)

    for kind in (Crane, CraneList):
        monkeypatch.setitem(REGISTERED, kind.__name__, kind)
    if request.param == "there":
        monkeypatch.setattr(WharfingerObject, "indirection_api", RemoteObjects(answer))


def crane(name: str = "one") -> Crane:
    return Crane(NOWHERE, name=name, loads=[])


def test_remotable_class_method_returns_an_object() -> None:
    for made in (Crane.build(NOWHERE, "new"), Crane.build(context=NOWHERE, name="new")):
        assert (type(made), made.name, made._context) == (Crane, "new", NOWHERE)
        assert made.obj_what_changed() == {"name"}


def test_remotable_method_changes_the_object_and_returns_its_result() -> None:
    one = crane()
    assert [one.lift("iron"), one.lift("coal", MOMENT)] == [1, 2]
    assert (one.loads, one.seen) == (["iron", "coal"], MOMENT)
    assert one.obj_what_changed() == {"name", "seen"}


def test_remotable_method_takes_and_returns_objects() -> None:
    one = crane()
    found = one.pair(crane("other"))
    assert (found.name, one.twin and one.twin.name) == ("other", "other")


def test_remotable_method_of_a_list_changes_the_callers_objects() -> None:
    cranes = [crane("one"), crane("two")]
    several = CraneList(NOWHERE, objects=cranes)
    several.lift_all("iron")
    assert [one.loads for one in cranes] == [["iron"], ["iron"]]
    assert all(one is mine for one, mine in zip(several, cranes, strict=True))
    assert cranes[0].obj_what_changed() == {"name"}


def test_remotable_method_of_an_object_without_a_context_is_refused() -> None:
    with pytest.raises(InvalidObject, match="lift"):
        Crane(name="one", loads=[]).lift("iron")


def test_remotable_method_refuses_an_argument_that_json_cannot_carry() -> None:
    value: Any = object()
    with pytest.raises((TypeError, ValueError), match=r"cannot be sent|is not text"):
        crane().lift(value)
