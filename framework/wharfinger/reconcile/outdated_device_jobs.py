"""Functions that jobs have loaded into devices, when they are no longer right."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from wharfinger.exceptions import ConcurrentSave, ObjectNotFound
from wharfinger.objects import Context, DeviceJob, DeviceJobList, ProviderRecordList

#: Another job, or another process that does the same, was faster: it is right.
_CONFLICTS: Final = (ConcurrentSave, ObjectNotFound)


def supersede_functions(context: Context, superseded: Mapping[str, int]) -> None:
    """Delete the functions of jobs from devices that another program has programmed since.

    ``superseded`` has the revisions of the jobs, by provider uuid. A job that has changed since,
    or come, stays.
    """
    for one in _finished(context, superseded):
        known = {superseded[uuid] for uuid in one.scope if uuid in superseded}
        if one.held_trait is not None and one.revision in known:
            one.stale_traits = sorted({*one.stale_traits, one.held_trait})
            one.held_trait = None
            with suppress(*_CONFLICTS):
                one.save()


def delete_functions(context: Context, host: str, instance: str, uuids: Iterable[str]) -> None:
    """Delete the finished jobs of an instance's devices that are gone."""
    found = [
        one
        for one in _finished(context, uuids)
        if (one.host, one.driver_instance) == (host, instance)
    ]
    scope = sorted({uuid for one in found for uuid in one.scope})
    records = ProviderRecordList.get_by_filters(context, provider_uuid=scope) if scope else ()
    known = {record.provider_uuid for record in records if "provider_uuid" in record}
    for one in found:
        if known.isdisjoint(one.scope):  # otherwise another host has taken over the device
            with suppress(*_CONFLICTS):
                one.destroy()


def _finished(context: Context, uuids: Iterable[str]) -> Iterator[DeviceJob]:
    """Yield the finished jobs of these devices; read nothing without devices."""
    wanted = frozenset(uuids)
    for one in DeviceJobList.get_by_filters(context) if wanted else ():
        if one.is_whole and not one.is_unfinished and not wanted.isdisjoint(one.scope):
            yield one
