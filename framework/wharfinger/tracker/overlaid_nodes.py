"""Overlaid nodes: a driver instance publishes providers below a root of another service.

Such a node has no row. The driver instance has a record of the root in overlay mode.
"""

from collections.abc import Iterator
from typing import Any

from wharfinger.objects import (
    ComputeNode,
    ComputeNodeList,
    Context,
    ProviderRecord,
    ProviderRecordList,
)
from wharfinger.providers import Provider, PublishingMode, provider_record


def overlaid_nodes(context: Context, **where: Any) -> list[ComputeNode]:
    """Return the overlaid nodes, from the records of their roots that match the filter ``where``.

    The objects have only ``uuid``, ``host`` and ``hypervisor_hostname``, and are not stored. Raises
    ObjectError and StateError.
    """
    records = ProviderRecordList.get_by_filters(context, mode=PublishingMode.OVERLAY, **where)
    found = {(one.host, root.uuid): root for one in records for root in _roots(one)}
    return [
        ComputeNode(context, uuid=uuid, host=host, hypervisor_hostname=root.name)
        for (host, uuid), root in found.items()
    ]


def nodes_named(context: Context, host: str | None, name: str | None) -> list[ComputeNode]:
    """Return the nodes of a host with this name: those with rows, or else the overlaid nodes.

    Raises ObjectError, StateError.
    """
    rows = ComputeNodeList.get_by_filters(context, host=host, hypervisor_hostname=name)
    return list(rows) or [
        one for one in overlaid_nodes(context, host=host) if one.hypervisor_hostname == name
    ]


def _roots(record: ProviderRecord) -> Iterator[Provider]:
    is_there = all(name in record for name in ("host", "applied", "absent_since"))
    if not is_there or record.applied is None or record.absent_since is not None:
        return
    try:
        provider = provider_record.decode(record.applied)
    except ValueError:
        return
    if provider.parent_uuid is None:
        yield provider
