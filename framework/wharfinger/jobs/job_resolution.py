"""States of device jobs, and their end by the operator."""

from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from wharfinger.exceptions import ChangedMeanwhile, JobRefused, ObjectNotFound
from wharfinger.objects import JOB_HOLDER, Context, DeviceJob, ReservationList
from wharfinger.objects.field_types import now as current_time
from wharfinger.placement.client import PlacementClient
from wharfinger.reconcile.device_jobs import delete_earlier, jobs_of
from wharfinger.reconcile.reserve_and_release import Reservations

#: A shorter down time has no effect, since times are stored in whole seconds.
_LEAST: Final = timedelta(seconds=3)


def is_at_work(job: DeviceJob, down_time: timedelta, now: datetime) -> bool:
    """Return whether a job is in progress and has reported recently."""
    is_recent = now - job.seen_at <= max(down_time, _LEAST)
    return job.is_unfinished and job.state != "unknown" and is_recent


def describe(job: DeviceJob, down_time: timedelta, now: datetime) -> str:
    """Return the state of a job as text, such as "failed" or "interrupted while programming"."""
    if job.is_unfinished and job.state != "unknown" and not is_at_work(job, down_time, now):
        return f"interrupted while {job.state}"
    return job.state


def resolve(
    client: PlacementClient,
    context: Context,
    provider_uuid: str,
    *,
    programmed: bool,
    trait: str | None = None,
    down_time: timedelta = timedelta(seconds=60),
) -> tuple[str, ...] | None:
    """End an unresolved job with the outcome that the operator reports, and release the device.

    ``provider_uuid`` is the uuid of any provider of the device. ``programmed`` is whether the
    device has the image of the job. ``trait`` is the function trait of the image; None: the trait
    in the job.

    Return why the device stays reserved, if so; None if Placement has none of its providers.
    Raises JobRefused, ReservationRefused, PlacementError, ObjectError and StateError.
    """
    jobs = [one for one in jobs_of(context, [provider_uuid]) if one.is_whole]
    job = max(jobs, key=lambda one: (one.is_unfinished, one.started_at), default=None)
    refused = partial(
        JobRefused,
        provider=job.provider_name if job else provider_uuid,
        uuid=job.provider_uuid if job else provider_uuid,
    )
    if job is not None and is_at_work(job, down_time, current_time()):
        raise refused(
            problem=f"the job of the device is in progress: process {job.process_id} on host "
            f"{job.host} last reported at {job.seen_at.isoformat()}.",
            remedy="Wait until the job ends. If the process is dead, repeat the command "
            f"{max(down_time, _LEAST).total_seconds():g} s after that report.",
        )
    uuids = job.scope if job else (provider_uuid,)
    held = ReservationList.get_by_filters(context, provider_uuid=uuids, holder=JOB_HOLDER)
    is_unfinished = job is not None and job.is_unfinished
    if not held and not is_unfinished:
        raise refused(problem="the device has no unresolved job.", remedy="There is nothing to do.")
    reservations = Reservations(client, context, down_time)
    scope = [one for uuid in uuids for one in client.list_providers(uuid=uuid)]
    if job is not None and is_unfinished and scope:
        if programmed:
            trait = trait or job.trait
            owners = {one.uuid: reservations.published_owners(one) for one in scope}
            for one in scope:
                reservations.set_function_trait(one, trait, owners[one.uuid])
            job.note_held(trait)
        else:
            job.state = "failed"
        try:
            job.save()
        except ChangedMeanwhile:
            raise refused(
                problem="another process has changed or resolved the job of the device meanwhile.",
                remedy="Check the job with `wharfinger device jobs`.",
            ) from None
        if programmed:
            delete_earlier(context, job)
    left: dict[str, None] = {}
    # Another job may have reserved the provider since. So end only the reservations read above.
    for row in held:
        with suppress(ObjectNotFound):  # another process ended it at the same time
            left |= dict.fromkeys(reservations.release_one(row.uuid))
    if job is not None and not scope:
        with suppress(ObjectNotFound):
            job.destroy()
    return tuple(left) if scope else None
