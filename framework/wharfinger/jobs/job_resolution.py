"""Standing of device jobs, and the decision on a job whose process is gone or left it undecided."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from wharfinger.exceptions import ConcurrentSave, JobRefused, ObjectNotFound
from wharfinger.objects import JOB_HOLDER as HOLDER
from wharfinger.objects import Context, DeviceJob, DeviceJobList, ReservationList
from wharfinger.objects.field_types import now as current_time
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.model import ProviderSummary
from wharfinger.providers import ownership
from wharfinger.reconcile.reserve_and_release import Reservations

#: Times are kept in whole seconds.
_LEAST: Final = timedelta(seconds=3)


def is_at_work(job: DeviceJob, down_time: timedelta, now: datetime) -> bool:
    """Return whether a process has reported within ``down_time``, or 3 s, to work on a job."""
    is_recent = now - job.seen_at <= max(down_time, _LEAST)
    return job.is_unfinished and job.state != "unknown" and is_recent


def describe(job: DeviceJob, down_time: timedelta, now: datetime) -> str:
    """Return the state of a job, and whether its process has left it in that state."""
    if job.is_unfinished and job.state != "unknown" and not is_at_work(job, down_time, now):
        return f"interrupted while {job.state}"
    return job.state


def forget_others(context: Context, job: DeviceJob) -> None:
    """Delete the finished jobs of other parts of a device: this one is newer."""
    for one in DeviceJobList.get_by_filters(context):
        if (
            one.is_whole
            and one.provider_uuid != job.provider_uuid
            and not one.is_unfinished
            and not set(one.scope).isdisjoint(job.scope)
        ):
            with suppress(ConcurrentSave, ObjectNotFound):
                one.destroy()


def resolve(
    client: PlacementClient,
    context: Context,
    provider_uuid: str,
    *,
    programmed: bool,
    trait: str | None = None,
    down_time: timedelta = timedelta(seconds=60),
) -> tuple[str, ...] | None:
    """End an unresolved job as the operator states, and release its device.

    ``provider_uuid`` is the uuid of any part of the device. ``programmed``: the device holds the
    job's image. Otherwise it holds what it held before the job. ``trait`` is the function trait of
    the image; None: the trait of the job. Return the reasons that keep the device reserved. Return
    None if the device no longer exists; then the job is deleted.

    Raises JobRefused where there is nothing to resolve, or a process was at work on it within
    ``down_time``; PlacementError, ObjectError and StateError.
    """
    job = _find(context, provider_uuid)
    subject = {"provider": job.provider_name if job else provider_uuid}
    subject["uuid"] = job.provider_uuid if job else provider_uuid
    if job is not None and is_at_work(job, down_time, current_time()):
        raise JobRefused(
            **subject,
            problem=f"process {job.process_id} on {job.host} is at work on it, and said so last at "
            f"{job.seen_at.isoformat()}.",
            remedy="Wait for its end; if it is gone, until it has been silent for "
            f"{down_time.total_seconds():g} s.",
        )
    uuids = job.scope if job else (provider_uuid,)
    held = ReservationList.get_by_filters(context, provider_uuid=uuids, holder=HOLDER)
    is_unfinished = job is not None and job.is_unfinished
    if not held and not is_unfinished:
        raise JobRefused(
            **subject, problem="no job has left anything of it.", remedy="There is nothing to do."
        )
    reservations = Reservations(client, context, down_time)
    scope = [one for uuid in uuids for one in client.list_providers(uuid=uuid)]
    if job is not None and is_unfinished and scope:
        if programmed:
            _note_held(client, reservations, scope, job, trait or job.trait)
        else:
            job.state = "failed"
        try:
            job.save()
        except (ConcurrentSave, ObjectNotFound):
            raise JobRefused(
                **subject,
                problem="somebody else has decided on it.",
                remedy="See `wharfinger device jobs`.",
            ) from None
        if programmed:
            forget_others(context, job)
    left: dict[str, None] = {}
    # By uuid, from before the decision: another job may have reserved the provider since.
    for one in held:
        with suppress(ObjectNotFound):  # another process ended it at the same time
            left |= dict.fromkeys(reservations.release_one(one.uuid))
    if job is not None and not scope:
        with suppress(ObjectNotFound):
            job.destroy()
    return tuple(left) if scope else None


def _note_held(
    client: PlacementClient,
    reservations: Reservations,
    scope: Sequence[ProviderSummary],
    job: DeviceJob,
    trait: str | None,
) -> None:
    """Set the function trait of all parts of a device, and note it in its job.

    Raises JobRefused before the first write if another owner publishes one of them by now.
    """
    owners = {one.uuid: ownership.owners(client.get_traits(one.uuid).traits) for one in scope}
    for one in scope:
        if not reservations.is_ours(one):
            raise JobRefused(
                provider=one.name,
                uuid=one.uuid,
                problem="no driver instance publishes it any more.",
                remedy="Have its owner say what it holds, and resolve the job as unchanged.",
            )
    for one in scope:
        reservations.set_function_trait(one, trait, owners[one.uuid])
    job.note_held(trait)


def _find(context: Context, provider_uuid: str) -> DeviceJob | None:
    """Return the last job that was about a device, an unfinished one if there is one."""
    jobs = [
        one
        for one in DeviceJobList.get_by_filters(context)
        if one.is_whole and provider_uuid in one.scope
    ]
    return max(jobs, key=lambda one: (one.is_unfinished, one.started_at), default=None)
