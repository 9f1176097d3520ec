"""Find nodes whose root provider another service publishes.

They have no ComputeNode rows, only records of their roots.
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
from wharfinger.providers.provider import Provider, PublishingMode, decode


def overlaid_nodes(context: Context, **where: Any) -> list[ComputeNode]:
    """Return nodes whose roots have records in overlay mode that match.

    They have only a uuid, host and hypervisor_hostname. Raises ObjectError and StateError.
    """
    records = ProviderRecordList.get_by_filters(context, mode=PublishingMode.OVERLAY, **where)
    found = {(one.host, root.uuid): root for one in records for root in _roots(one)}
    return [
        ComputeNode(context, uuid=uuid, host=host, hypervisor_hostname=root.name)
        for (host, uuid), root in found.items()
    ]


def nodes_named(context: Context, host: str | None, name: str | None) -> list[ComputeNode]:
    """Return the nodes with this host and name. Raises ObjectError and StateError."""
    rows = ComputeNodeList.get_by_filters(context, host=host, hypervisor_hostname=name)
    return list(rows) or [
        one for one in overlaid_nodes(context, host=host) if one.hypervisor_hostname == name
    ]


def _roots(record: ProviderRecord) -> Iterator[Provider]:
    is_there = all(name in record for name in ("host", "applied", "absent_since"))
    if not is_there or record.applied is None or record.absent_since is not None:
        return
    try:
        provider = decode(record.applied)
    except ValueError:
        return
    if provider.parent_uuid is None:
        yield provider
