"""Contents of a database of the first schema version: a JSON document for each provider."""

from collections.abc import Mapping

import msgspec
import sqlalchemy as sa

from tests.functional.db.databases import Place
from tests.lab.samples import uuid
from wharfinger.providers import Inventory, Provider
from wharfinger.providers.provider import Absence, PublishingMode, Record

ROOT, GPU, OTHERS, NEW = (uuid(name) for name in ("root", "gpu", "others", "new"))

_CARD = Provider(
    uuid=GPU,
    name="gpu-1 ⚓",
    root_uuid=ROOT,
    parent_uuid=ROOT,
    generation=7,
    inventories={"VGPU": Inventory(total=8, reserved=8, max_unit=2, allocation_ratio=1.5)},
    traits=frozenset({"OWNER_NOVA", "CUSTOM_FAST"}),
    aggregates=frozenset({uuid("aggregate")}),
)
#: Records with all kinds of contents.
RECORDS: Mapping[str, Record] = {
    ROOT: Record(
        applied=Provider(uuid=ROOT, name="host-1", root_uuid=ROOT),
        live=Provider(uuid=ROOT, name="host-1", root_uuid=ROOT, generation=0),
    ),
    GPU: Record(
        applied=_CARD,
        live=_CARD,
        own_reserved={"VGPU": 2},
        reservations=("cleaning", 'it\'s "new"'),
        absence=Absence(1763700000.123),
    ),
    OTHERS: Record(
        live=Provider(uuid=OTHERS, name="others", root_uuid=OTHERS, generation=3),
        mode=PublishingMode.OVERLAY,
    ),
    NEW: Record(intended=Provider(uuid=NEW, name="new", root_uuid=ROOT, parent_uuid=ROOT)),
}


def documents(records: Mapping[str, Record] = RECORDS) -> dict[str, bytes]:
    """Return the documents of records as the first version wrote them."""
    return {uuid: _document(record) for uuid, record in records.items()}


def _document(record: Record) -> bytes:
    written = msgspec.to_builtins(record)
    assert not written.pop("reserved_since")
    del written["absence"], written["undone"]
    written["absent_since"] = record.absence and record.absence.since
    return msgspec.json.encode(written)


def keep(place: Place, instance: str, documents: Mapping[str, bytes]) -> None:
    """Store documents in a database of the first version."""
    table = sa.table("provider_records", *map(sa.column, ("instance", "uuid", "document")))
    rows = [
        {"instance": instance, "uuid": uuid, "document": document}
        for uuid, document in documents.items()
    ]
    with place.engine.begin() as connection:
        connection.execute(sa.insert(table), rows)
