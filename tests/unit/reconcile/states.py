"""States of one reconcile cycle for unit tests, without a database, Placement or backend."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from wharfinger.objects import Context, HostState, Reservation
from wharfinger.providers import Provider, names
from wharfinger.providers.ownership import Publisher
from wharfinger.providers.provider import Record
from wharfinger.reconcile.cycle_state import CycleState
from wharfinger.reconcile.node_list import NodeList
from wharfinger.reconcile.observe import by_provider

US: Final = Publisher("gpus", "OWNER_NOVA")
_NO_NODES: Final = NodeList()
_NO_RECORDS: Final[Mapping[str, Record]] = MappingProxyType({})


def state_of(
    *live: Provider,
    nodes: NodeList = _NO_NODES,
    records: Mapping[str, Record] = _NO_RECORDS,
    reservations: Iterable[Reservation] = (),
    service_disabled: bool | None = False,
    **facts: Any,
) -> CycleState:
    """Return a state with these providers in Placement.

    ``facts`` are other fields of the state. A field that is not given has its default.
    """
    rows = HostState(
        Context(),
        service_disabled=service_disabled,
        node_revisions={node.uuid: 1 for node in nodes.nodes},
        nodes=[],
        instance_revisions={},
        instances=[],
        migrations=[],
        record_revisions=dict.fromkeys(records, 1),
        records=[],
        reservations=list(reservations),
        jobs=[],
    )
    values: dict[str, Any] = {
        "publisher": US,
        "now": 1000.0,
        "removal_delay": 60.0,
        "nodes": nodes,
        "every_node": nodes,
        "rows": rows,
        "records": dict(records),
        "reservations": by_provider(rows.reservations),
        "live": {provider.uuid: provider for provider in live},
    }
    return CycleState(**(values | facts))


def root(name: str, uuid: str | None = None, **contents: Any) -> Provider:
    """Return the root provider of a node."""
    uuid = uuid or names.root_uuid(name)
    return replace(Provider(uuid=uuid, name=name, root_uuid=uuid, generation=1), **contents)


def child(name: str, parent: Provider, **contents: Any) -> Provider:
    """Return a provider below another one."""
    provider = Provider(
        uuid=names.child_uuid(parent.uuid, name),
        name=name,
        root_uuid=parent.root_uuid,
        parent_uuid=parent.uuid,
        generation=1,
    )
    return replace(provider, **contents)


def published(*providers: Provider, **contents: Any) -> dict[str, Record]:
    """Return the records of providers that the driver instance has published, by uuid."""
    return {
        one.uuid: replace(Record(applied=replace(one, generation=None), live=one), **contents)
        for one in providers
    }
