"""Nodes below whose root a driver instance publishes, while another service publishes the root.

Such a node has no row: its root is not ours to offer, and several driver instances of a host may
publish below it. The record of the root shows that the instance overlays it.
"""

from collections.abc import Iterator
from typing import Any

from wharfinger.objects import ComputeNode, Context, ProviderRecord, ProviderRecordList
from wharfinger.providers import Provider, PublishingMode, provider_record


def overlaid_nodes(context: Context, **where: Any) -> list[ComputeNode]:
    """Return the overlaid nodes whose records have these values, each once for each host.

    They have ``uuid``, ``host`` and ``hypervisor_hostname`` alone, and are not stored. A record
    that cannot be read, or whose provider is absent, is left out. Raises ObjectError, StateError.
    """
    records = ProviderRecordList.get_by_filters(context, mode=PublishingMode.OVERLAY, **where)
    found = {(one.host, root.uuid): root for one in records for root in _roots(one)}
    return [
        ComputeNode(context, uuid=uuid, host=host, hypervisor_hostname=root.name)
        for (host, uuid), root in found.items()
    ]


def _roots(record: ProviderRecord) -> Iterator[Provider]:
    """Yield the provider of a record if it is a root that the instance has overlaid."""
    is_there = all(name in record for name in ("host", "applied", "absent_since"))
    if not is_there or record.applied is None or record.absent_since is not None:
        return
    try:
        provider = provider_record.decode(record.applied)
    except ValueError:
        return
    if provider.parent_uuid is None:
        yield provider
