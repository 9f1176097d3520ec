"""The functions that devices were programmed with, as their jobs have it."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from operator import attrgetter
from typing import Final

from wharfinger.exceptions import ConcurrentSave, ObjectNotFound
from wharfinger.objects import Context, DeviceJob, DeviceJobList
from wharfinger.providers.function_traits import HeldFunction

#: What tells of another job, or of another process that does the same: it is right.
_OTHERS_WORK: Final = (ConcurrentSave, ObjectNotFound)


def read(context: Context) -> Mapping[str, HeldFunction]:
    """Those of all devices, by provider uuid; raises ObjectError, StateError."""
    held: dict[str, HeldFunction] = {}
    jobs = DeviceJobList.get_by_filters(context)
    known = (one for one in jobs if one.is_whole and one.held_since is not None)
    for one in sorted(known, key=attrgetter("held_since")):
        function = HeldFunction(one.held_trait, frozenset(one.stale_traits), one.scope)
        held.update(dict.fromkeys(one.scope, function))
    return held


def supersede(context: Context, uuids: Iterable[str]) -> None:
    """Have jobs say no more what devices hold of which somebody else has said so since."""
    for one in _finished(context, uuids):
        if one.held_trait is not None:
            one.stale_traits = sorted({*one.stale_traits, one.held_trait})
            one.held_trait = None
            with suppress(*_OTHERS_WORK):
                one.save()


def forget(context: Context, host: str, instance: str, uuids: Iterable[str]) -> None:
    """Forget what an instance's devices held that are no more."""
    for one in _finished(context, uuids):
        if (one.host, one.driver_instance) == (host, instance):
            with suppress(*_OTHERS_WORK):
                one.destroy()


def _finished(context: Context, uuids: Iterable[str]) -> Iterator[DeviceJob]:
    """The finished jobs of these devices; none is read where there are no devices."""
    wanted = frozenset(uuids)
    for one in DeviceJobList.get_by_filters(context) if wanted else ():
        if one.is_whole and not one.is_unfinished and not wanted.isdisjoint(one.scope):
            yield one
