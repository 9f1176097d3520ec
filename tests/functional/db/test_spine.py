"""Records of the first schema version after an upgrade to the tables of today."""

import json
import logging

import msgspec
import pytest

from tests.functional.db import spine
from tests.functional.db.databases import HOST, Place, upgrade
from tests.lab.cycles import record_store
from tests.lab.samples import uuid
from wharfinger.providers.provider import Record

#: A document exactly as the first version wrote it.
WRITTEN = (
    b'{"applied":{"uuid":"89171ea7-e4fb-5ca6-a96e-f485b8bf2ef9","name":"gpu-host-1_pci_0000_84_00'
    b'_0","root_uuid":"be0f8ff3-60f9-5d30-b039-82553ac6c6ab","parent_uuid":"be0f8ff3-60f9-5d30-b0'
    b'39-82553ac6c6ab","generation":null,"inventories":{"VGPU":{"total":8,"reserved":0,"min_unit"'
    b':1,"max_unit":8,"step_size":1,"allocation_ratio":1.0}},"traits":["OWNER_NOVA"],"aggregates"'
    b':[]},"intended":null,"live":null,"own_reserved":{"VGPU":1},"reservations":["cleaning"],"mod'
    b'e":"own","absent_since":null}'
)


def test_upgrade_keeps_all_records_of_the_first_version(place: Place) -> None:
    place.upgrade("0001")
    spine.keep(place, "gpus", spine.documents())
    spine.keep(place, "metal", spine.documents({spine.OTHERS: Record()}))

    upgrade(place.url, place.directory)

    context = place.open()
    assert record_store(context, HOST, "gpus").records == spine.RECORDS
    assert record_store(context, HOST, "metal").records == {spine.OTHERS: Record()}
    assert record_store(context, "another-host", "gpus").records == {}
    assert place.differences() == []


def test_document_of_the_first_version_is_read_unchanged(file: Place) -> None:
    file.upgrade("0001")
    spine.keep(file, "gpus", {spine.GPU: WRITTEN})

    memory = record_store(file.open_as_our_own(), HOST, "gpus")

    # Later versions have added reserved_since, absence and undone.
    expected = {**json.loads(WRITTEN), "reserved_since": {}, "absence": None, "undone": {}}
    del expected["absent_since"]
    assert json.loads(msgspec.json.encode(memory.get(spine.GPU))) == expected


DOCUMENT = spine.documents()[spine.GPU]
DAMAGED = {
    "nothing": b"",
    "text": b"what is this?",
    "no text": b"\xa5\xff\x00",
    "a part": DOCUMENT[:-20],
    "too deep": b"[" * 100_000,
    "another document": b"[]",
    "no root": DOCUMENT.replace(b'"root_uuid"', b'"boot_uuid"'),
    "no total": DOCUMENT.replace(b'"total"', b'"motal"'),
    "total of nothing": DOCUMENT.replace(b'"total":8', b'"total":0'),
    "less than nothing reserved": DOCUMENT.replace(b'"reserved":8', b'"reserved":-1'),
    "no amount": DOCUMENT.replace(b'"own_reserved":{"VGPU":2', b'"own_reserved":{"VGPU":"2"'),
    "no mode": DOCUMENT.replace(b'"own"', b'"ours"'),
    "no reservations": DOCUMENT.replace(b'"reservations":[', b'"reservations":null,"more":['),
    "before the epoch": DOCUMENT.replace(b'"absent_since":', b'"absent_since":-'),
}


def test_damaged_documents_are_logged_and_kept_and_the_others_moved(
    file: Place, caplog: pytest.LogCaptureFixture
) -> None:
    assert DOCUMENT not in DAMAGED.values()
    damaged = {uuid(damage): document for damage, document in DAMAGED.items()}
    file.upgrade("0001")
    spine.keep(file, "gpus", spine.documents() | damaged)

    with caplog.at_level(logging.WARNING):
        context = file.open_as_our_own()

    for one in damaged:
        [told] = [message for message in caplog.messages if one in message]
        assert f"cannot read the record that driver instance gpus has of provider {one}: " in told
        assert "stays in the table provider_documents" in told
    assert len(caplog.messages) == len(damaged)
    assert damaged_ones(file) == damaged
    assert record_store(context, HOST, "gpus").records == spine.RECORDS


def test_damaged_documents_are_kept_on_each_kind_of_database(place: Place) -> None:
    damaged = {spine.GPU: b"{", "no uuid": spine.documents()[spine.ROOT]}
    place.upgrade("0001")
    spine.keep(place, "gpus", spine.documents() | damaged)

    upgrade(place.url, place.directory)
    upgrade(place.url, place.directory)

    assert damaged_ones(place) == damaged
    others = {one: record for one, record in spine.RECORDS.items() if one != spine.GPU}
    assert record_store(place.open(), HOST, "gpus").records == others
    [(difference, table)] = place.differences()
    assert (difference, table.name) == ("remove_table", "provider_documents")


def damaged_ones(place: Place) -> dict[str, bytes]:
    return {row["uuid"]: row["document"] for row in place.rows("provider_documents")}
