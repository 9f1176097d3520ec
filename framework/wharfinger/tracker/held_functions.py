"""The functions that devices were programmed with, as their jobs have it."""

from collections.abc import Iterable, Mapping
from operator import attrgetter

from wharfinger.exceptions import ConcurrentSave, ObjectNotFound
from wharfinger.objects import Context, DeviceJob, DeviceJobList
from wharfinger.providers.functions import HeldFunction

_NEEDED = ("provider_uuid", "siblings", "state", "trait", "former_trait", "started_at")


def read(context: Context, host: str, instance: str) -> Mapping[str, HeldFunction]:
    """Those of an instance's devices, by provider uuid, as the last job of each left them.

    Raises ObjectError, StateError.
    """
    jobs = DeviceJobList.get_by_filters(context, host=host, driver_instance=instance)
    held: dict[str, HeldFunction] = {}
    for one in sorted(filter(_is_readable, jobs), key=attrgetter("started_at")):
        trait = one.held_trait
        for uuid in one.scope:
            held.pop(uuid, None)
            if trait is not None:
                held[uuid] = HeldFunction(trait, one.former_trait)
    return held


def forget(context: Context, uuids: Iterable[str]) -> None:
    """Forget what devices held that are no more; not while a job for one is unfinished."""
    wanted = sorted(uuids)
    for one in DeviceJobList.get_by_filters(context, provider_uuid=wanted) if wanted else ():
        if _is_readable(one) and not one.is_unfinished:
            try:
                one.destroy()
            except (ConcurrentSave, ObjectNotFound):
                continue  # another job has begun, or another process has forgotten it


def _is_readable(job: DeviceJob) -> bool:
    return all(name in job for name in _NEEDED)
