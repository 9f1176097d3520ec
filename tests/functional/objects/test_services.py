"""Services: versions, reports, and the settings that operators make."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.lab.objects import Kept
from tests.lab.samples import service, uuid
from wharfinger.exceptions import ConcurrentSave, ObjectNotFound
from wharfinger.objects import Context, Service

LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)
AGENT, CONDUCTOR = "wharfinger-agent", "wharfinger-conductor"


def test_service_is_found_by_uuid_and_by_host_and_program(context: Context) -> None:
    service(context, 1, owners=["OWNER_NOVA", "OWNER_CYBORG"], last_seen_up=LONG_AGO).create()
    service(context, 2, host="host-1", binary=CONDUCTOR).create()
    by_uuid = Service.get_by_uuid(context, uuid("service 1"))
    by_name = Service.get_by_host_and_binary(context, "host-1", AGENT)
    assert by_uuid.uuid == by_name.uuid == uuid("service 1")
    assert by_name.owners == ["OWNER_NOVA", "OWNER_CYBORG"]
    assert by_name.last_seen_up == LONG_AGO
    assert Service.get_by_host_and_binary(context, "host-1", CONDUCTOR).uuid == uuid("service 2")


def test_minimum_version_without_a_service_is_0(context: Context) -> None:
    assert Service.get_minimum_version(context, AGENT) == 0
    assert Service.get_minimum_version_multi(context, [AGENT, CONDUCTOR]) == {
        AGENT: 0,
        CONDUCTOR: 0,
    }
    assert Service.get_minimum_version_multi(context, []) == {}
    assert Service.get_minimum_version_by_owner(context) == {}


@pytest.mark.parametrize(
    "state",
    [
        {"disabled": True, "disabled_reason": "a fan is loud"},
        {"forced_down": True},
        {"last_seen_up": LONG_AGO},
        {"last_seen_up": None},
    ],
    ids=lambda state: next(iter(state.items())),
)
def test_disabled_or_down_service_counts_for_the_minimum_version(
    context: Context, state: dict[str, object]
) -> None:
    service(context, 1, version=5, owners=["OWNER_NOVA"]).create()
    service(context, 2, version=3, owners=["OWNER_NOVA"], **state).create()
    assert Service.get_minimum_version(context, AGENT) == 3
    assert Service.get_minimum_version_by_owner(context) == {"OWNER_NOVA": 3}


def test_deleted_service_does_not_count_for_the_minimum_version(context: Context) -> None:
    service(context, 1, version=5, owners=["OWNER_NOVA"]).create()
    old = service(context, 2, version=1, owners=["OWNER_NOVA"])
    old.create()
    assert Service.get_minimum_version(context, AGENT) == 1
    old.destroy()
    assert Service.get_minimum_version(context, AGENT) == 5
    assert Service.get_minimum_version_by_owner(context) == {"OWNER_NOVA": 5}


def test_each_program_has_its_own_minimum(context: Context) -> None:
    service(context, 1, version=2).create()
    service(context, 2, version=4, binary=CONDUCTOR).create()
    service(context, 3, version=3, binary=CONDUCTOR).create()
    versions = Service.get_minimum_version_multi(context, [AGENT, CONDUCTOR, "nobody"])
    assert versions == {AGENT: 2, CONDUCTOR: 3, "nobody": 0}
    assert Service.get_minimum_version(context, CONDUCTOR) == 3


def test_minimum_of_an_owner_is_that_of_its_services(context: Context) -> None:
    service(context, 1, version=1, owners=["OWNER_NOVA"]).create()
    service(context, 2, version=2, owners=["OWNER_NOVA", "OWNER_CYBORG"]).create()
    service(context, 3, version=3, owners=["OWNER_CYBORG"], binary=CONDUCTOR).create()
    service(context, 4, version=0).create()
    assert Service.get_minimum_version_by_owner(context) == {"OWNER_NOVA": 1, "OWNER_CYBORG": 2}


def test_report_is_written_at_once(kept: Kept) -> None:
    one = service(kept.context)
    one.create()
    before = datetime.now(UTC).replace(microsecond=0)
    one.report()
    one.report()
    assert one.report_count == 2
    row = kept.row("services")
    assert (row["report_count"], row["revision"]) == (2, 1)
    found = Service.get_by_uuid(kept.context, one.uuid)
    assert before <= found.last_seen_up <= datetime.now(UTC)  # type: ignore[operator]
    assert found.last_seen_up == one.last_seen_up
    assert not one.obj_what_changed()


def test_report_and_save_at_once_are_both_kept(context: Context) -> None:
    mine = service(context)
    mine.create()
    operators = Service.get_by_uuid(context, mine.uuid)
    mine.report()
    operators.disabled, operators.disabled_reason = True, "a fan is loud"
    operators.save()
    mine.report()
    found = Service.get_by_uuid(context, mine.uuid)
    assert (found.report_count, found.disabled) == (2, True)
    assert found.disabled_reason == "a fan is loud"


def test_report_raises_no_revision_and_a_stale_save_is_still_refused(context: Context) -> None:
    mine = service(context)
    mine.create()
    mine.version = 2
    mine.report()
    assert mine.obj_what_changed() == {"version"}
    mine.save()
    operators = Service.get_by_uuid(context, mine.uuid)
    operators.disabled = True
    operators.save()
    mine.report()
    mine.version = 3
    with pytest.raises(ConcurrentSave):
        mine.save()


def test_report_of_a_deleted_service_is_refused(kept: Kept) -> None:
    one = service(kept.context)
    one.create()
    one.destroy()
    with pytest.raises(ObjectNotFound) as caught:
        one.report()
    assert caught.value.facts == {"kind": "Service", "key": one.uuid}
    assert kept.row("services")["report_count"] == 0


def test_service_is_up_after_a_recent_report(context: Context) -> None:
    one = service(context)
    one.create()
    found = Service.get_by_uuid(context, one.uuid)
    assert not found.is_up(timedelta(minutes=1))
    one.report()
    found = Service.get_by_uuid(context, one.uuid)
    assert found.is_up(timedelta(minutes=1))
    found.forced_down = True
    assert not found.is_up(timedelta(minutes=1))


def test_service_is_down_long_after_its_last_report(context: Context) -> None:
    one = service(context, last_seen_up=LONG_AGO, report_count=7)
    one.create()
    found = Service.get_by_uuid(context, one.uuid)
    assert not found.is_up(timedelta(minutes=1))
    assert found.is_up(timedelta(days=365_000))
