"""Functions that jobs have loaded into devices, when they are no longer right."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from wharfinger.exceptions import ConcurrentSave, ObjectNotFound
from wharfinger.objects import Context, DeviceJob, DeviceJobList

#: Another job, or another process that does the same, was faster: it is right.
_CONFLICTS: Final = (ConcurrentSave, ObjectNotFound)


def supersede_functions(context: Context, superseded: Mapping[str, str | None]) -> None:
    """Delete the functions of jobs from devices that another program has programmed since.

    ``superseded`` has the traits of these functions, by provider uuid. A later job may have loaded
    another function meanwhile: it stays.
    """
    for one in _finished(context, superseded):
        if one.held_trait is not None and one.held_trait in {
            superseded[uuid] for uuid in one.scope if uuid in superseded
        }:
            one.stale_traits = sorted({*one.stale_traits, one.held_trait})
            one.held_trait = None
            with suppress(*_CONFLICTS):
                one.save()


def delete_functions(context: Context, host: str, instance: str, uuids: Iterable[str]) -> None:
    """Delete the finished jobs of an instance's devices that are gone."""
    for one in _finished(context, uuids):
        if (one.host, one.driver_instance) == (host, instance):
            with suppress(*_CONFLICTS):
                one.destroy()


def _finished(context: Context, uuids: Iterable[str]) -> Iterator[DeviceJob]:
    """Yield the finished jobs of these devices; read nothing without devices."""
    wanted = frozenset(uuids)
    for one in DeviceJobList.get_by_filters(context) if wanted else ():
        if one.is_whole and not one.is_unfinished and not wanted.isdisjoint(one.scope):
            yield one
