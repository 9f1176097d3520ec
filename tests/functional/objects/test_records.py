"""Records of providers: each belongs to one host and driver instance; all are written together."""

from contextlib import suppress

import pytest

from tests.lab.objects import Kept
from tests.lab.samples import record, uuid
from wharfinger.exceptions import WharfingerError
from wharfinger.objects import Context, ProviderRecord, ProviderRecordList

HOST, INSTANCE = "host-1", "gpus"


def replace(
    context: Context,
    *records: ProviderRecord,
    forgotten: tuple[str, ...] = (),
    host: str = HOST,
    instance: str = INSTANCE,
) -> None:
    ProviderRecordList.replace(
        context, host, instance, ProviderRecordList(objects=list(records)), list(forgotten)
    )


def remembered(
    context: Context, host: str = HOST, instance: str = INSTANCE
) -> dict[str, ProviderRecord]:
    found = ProviderRecordList.get_by_filters(context, host=host, driver_instance=instance)
    return {one.provider_uuid: one for one in found}


def test_records_are_read_as_written(context: Context) -> None:
    one = record(
        1,
        mode="overlay",
        applied=None,
        intended="{}",
        live='{"name": "\\u0000 🦑"}',
        own_reserved={"VGPU": 3},
        reservations=["cleaning", "absent"],
        reserved_since={"cleaning": 1234567890.125, "absent": 0.5},
        absent_since=1234567890.125,
        absence='{"since":1234567890.125}',
        undone='{"VCPU":{"count":1,"ours":"total 64","theirs":"total 10"}}',
    )
    replace(context, one, record(2))
    found = remembered(context)
    assert found.keys() == {uuid("provider 1"), uuid("provider 2")}
    first = found[uuid("provider 1")]
    for name in one.obj_what_changed():
        assert getattr(first, name) == getattr(one, name), name
    assert (first.host, first.driver_instance) == (HOST, INSTANCE)


def test_record_is_replaced_by_a_later_one(kept: Kept) -> None:
    replace(kept.context)
    assert kept.rows("provider_records") == []
    replace(kept.context, record(1, absent_since=5.5), record(2))
    replace(kept.context, record(1), record(1, own_reserved={"VGPU": 1}), record(3))
    found = remembered(kept.context)
    assert found.keys() == {uuid(f"provider {number}") for number in (1, 2, 3)}
    assert found[uuid("provider 1")].own_reserved == {"VGPU": 1}
    assert found[uuid("provider 1")].absent_since is None
    assert len(kept.rows("provider_records")) == 3


def test_unset_fields_of_a_record_stay(context: Context) -> None:
    said = {"reservations": ["cleaning"], "reserved_since": {"cleaning": 5.5}}
    replace(context, record(1, absent_since=5.5, **said))
    replace(context, ProviderRecord(provider_uuid=uuid("provider 1"), absent_since=None))
    read = remembered(context)[uuid("provider 1")]
    assert {name: getattr(read, name) for name in said} == said
    assert read.absent_since is None
    read.absent_since = 7.0  # a record that was read can be changed and written again
    replace(context, read)
    assert remembered(context)[uuid("provider 1")].absent_since == 7.0


def test_forgotten_records_are_deleted(context: Context) -> None:
    replace(context, *(record(number) for number in range(4)))
    replace(
        context,
        record(0, mode="overlay"),
        forgotten=(uuid("provider 1"), uuid("provider 2"), uuid("never there")),
    )
    found = remembered(context)
    assert found.keys() == {uuid("provider 0"), uuid("provider 3")}
    assert found[uuid("provider 0")].mode == "overlay"


def test_records_of_hosts_and_instances_are_separate(context: Context) -> None:
    replace(context, record(1, mode="own"))
    replace(context, record(1, mode="overlay"), host="host-2")
    replace(context, record(1, absent_since=1.0), instance="fpgas")
    replace(context, forgotten=(uuid("provider 1"),))
    assert remembered(context) == {}
    assert remembered(context, host="host-2")[uuid("provider 1")].mode == "overlay"
    assert remembered(context, instance="fpgas")[uuid("provider 1")].absent_since == 1.0


def test_record_of_another_scope_is_not_written(context: Context) -> None:
    replace(context, record(1), host="host-2")
    with suppress(WharfingerError):  # the write may also be refused
        replace(context, record(1, mode="overlay", host="host-2"), record(2, host="host-2"))
    assert remembered(context, host="host-2").keys() == {uuid("provider 1")}
    assert remembered(context, host="host-2")[uuid("provider 1")].mode == "own"


def test_six_hundred_records_are_written_and_forgotten_together(context: Context) -> None:
    replace(context, *(record(number, absent_since=float(number)) for number in range(600)))
    found = remembered(context)
    assert len(found) == 600
    assert found[uuid("provider 599")].absent_since == 599.0
    replace(
        context,
        *(record(number, mode="overlay") for number in range(300, 700)),
        forgotten=tuple(uuid(f"provider {number}") for number in range(300)),
    )
    found = remembered(context)
    assert found.keys() == {uuid(f"provider {number}") for number in range(300, 700)}
    assert {one.mode for one in found.values()} == {"overlay"}


def test_records_are_written_all_or_none(context: Context) -> None:
    replace(context, record(1), record(2))
    with pytest.raises(WharfingerError, match="mode"):
        replace(
            context,
            record(1, mode="overlay"),
            ProviderRecord(provider_uuid=uuid("provider 3"), own_reserved={}, reservations=[]),
            forgotten=(uuid("provider 2"),),
        )
    found = remembered(context)
    assert found.keys() == {uuid("provider 1"), uuid("provider 2")}
    assert found[uuid("provider 1")].mode == "own"


def test_fields_unset_in_one_record_are_written_for_the_others(context: Context) -> None:
    bare = ProviderRecord(
        provider_uuid=uuid("provider 1"), mode="own", own_reserved={}, reservations=[]
    )
    replace(context, bare, record(2, live="{}", absent_since=3.0))
    second = remembered(context)[uuid("provider 2")]
    assert (second.live, second.absent_since, second.applied) == ("{}", 3.0, '{"name": "gpu"}')
    first = remembered(context)[uuid("provider 1")]
    assert (first.live, first.absent_since) == (None, None)


def test_get_reserved_returns_records_with_reasons_of_all_instances(context: Context) -> None:
    assert not ProviderRecordList.get_reserved(context).objects
    replace(context, record(1, reservations=["cleaning"], reserved_since={"cleaning": 5.5}))
    replace(context, record(2), host="host-2")
    replace(context, record(3, reservations=["absent", "failed"]), host="host-2", instance="fpgas")
    found = ProviderRecordList.get_reserved(context)
    assert [(one.provider_uuid, one.host, one.driver_instance) for one in found] == [
        (uuid("provider 1"), HOST, INSTANCE),
        (uuid("provider 3"), "host-2", "fpgas"),
    ]
    assert [one.reservations for one in found] == [["cleaning"], ["absent", "failed"]]
    assert found[0].reserved_since == {"cleaning": 5.5}
    assert "reserved_since" not in found[1]
    replace(context, record(1), record(4, reservations=["maintenance"]))
    assert {one.provider_uuid for one in ProviderRecordList.get_reserved(context)} == {
        uuid("provider 3"),
        uuid("provider 4"),
    }


def test_get_reserved_returns_records_with_unreadable_reasons(kept: Kept) -> None:
    replace(kept.context, record(1), record(2))
    kept.write("provider_records", {"reservations": "what"}, provider_uuid=uuid("provider 1"))
    [found] = ProviderRecordList.get_reserved(kept.context)
    assert found.provider_uuid == uuid("provider 1")
    assert "reservations" not in found
