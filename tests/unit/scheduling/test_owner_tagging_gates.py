"""Gates, computed from rows of services.

The gate of an owner is on if all services that may publish for the owner tag every provider.
"""

from typing import Any

import pytest

from tests.lab.samples import service, uuid
from wharfinger.objects import OWNER_TAG_VERSION, Service
from wharfinger.scheduling.owner_tagging_gates import Gate, gates

NOVA, CYBORG, ACME = "OWNER_NOVA", "OWNER_CYBORG", "CUSTOM_OWNER_ACME"
TAGS, BEFORE = OWNER_TAG_VERSION, OWNER_TAG_VERSION - 1


def publishing(number: int, version: int, *owners: str, **values: Any) -> Service:
    return service(None, number, version=version, owners=list(owners), **values)


def behind(*numbers: int) -> tuple[str, ...]:
    return tuple(f"host-{number}/wharfinger-agent" for number in numbers)


@pytest.mark.parametrize(
    ("versions", "old"),
    [
        ([TAGS], ()),
        ([TAGS, TAGS + 1], ()),
        ([BEFORE], (0,)),
        ([BEFORE, TAGS], (0,)),
        ([TAGS, TAGS + 5, BEFORE, 0], (2, 3)),
    ],
)
def test_gates_is_on_when_each_service_tags_everything(
    versions: list[int], old: tuple[int, ...]
) -> None:
    [gate] = gates(publishing(*each, NOVA) for each in enumerate(versions)).values()

    assert gate == Gate(NOVA, len(versions), behind(*old))
    assert gate.is_on is (not old)


def test_gates_are_one_for_each_owner() -> None:
    assert gates([]) == {}
    found = gates(
        [
            publishing(1, TAGS, NOVA),
            publishing(2, BEFORE, CYBORG),
            publishing(3, TAGS, ACME, NOVA),
            publishing(4, BEFORE, CYBORG, "CUSTOM_OWNER_OTHER"),
            publishing(5, BEFORE),  # a service without an owner
        ]
    )
    assert found == {
        NOVA: Gate(NOVA, 2, ()),
        ACME: Gate(ACME, 1, ()),
        CYBORG: Gate(CYBORG, 2, behind(2, 4)),
        "CUSTOM_OWNER_OTHER": Gate("CUSTOM_OWNER_OTHER", 1, behind(4)),
    }


@pytest.mark.parametrize("values", [{"disabled": True}, {"forced_down": True}], ids=str)
def test_gates_count_services_that_are_disabled_or_down(values: dict[str, bool]) -> None:
    found = gates([publishing(1, TAGS, NOVA), publishing(2, BEFORE, NOVA, **values)])

    assert found[NOVA].behind == behind(2)


def test_gates_service_of_unknown_owners_may_publish_for_each() -> None:
    unknown = service(None, 2, version=TAGS)

    assert gates([unknown]) == {}
    assert gates([unknown, publishing(1, TAGS, NOVA, ACME)]) == {
        owner: Gate(owner, 1, behind(2)) for owner in (NOVA, ACME)
    }


def test_gates_service_of_an_unknown_version_may_be_an_old_one() -> None:
    found = gates([publishing(1, TAGS, NOVA, ACME), service(None, 2, owners=[NOVA])])

    assert found == {NOVA: Gate(NOVA, 2, behind(2)), ACME: Gate(ACME, 1, ())}


@pytest.mark.parametrize("missing", ["host", "binary"])
def test_gates_name_a_service_without_a_name_by_its_uuid(missing: str) -> None:
    values = {"host": "host-1", "binary": "wharfinger-agent"}
    del values[missing]
    nameless = Service(None, uuid=uuid("it"), version=BEFORE, owners=[NOVA], **values)

    assert gates([nameless])[NOVA].behind == (uuid("it"),)
