"""Deciding on a job whose process is gone, or of which nobody knows what became of it."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

from wharfinger.exceptions import ConcurrentSave, JobRefused, ObjectNotFound
from wharfinger.jobs.job_activity import forget_others, is_at_work
from wharfinger.objects import JOB_HOLDER as HOLDER
from wharfinger.objects import Context, DeviceJob, DeviceJobList, ReservationList
from wharfinger.objects.field_types import now
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.model import ProviderSummary
from wharfinger.providers import ownership
from wharfinger.reconcile.reservations import Reservations


def resolve(
    client: PlacementClient,
    context: Context,
    provider_uuid: str,
    *,
    programmed: bool,
    trait: str | None = None,
    down_time: timedelta = timedelta(seconds=60),
) -> tuple[str, ...] | None:
    """End what a job has left behind, as somebody says who knows.

    ``provider_uuid`` is that of any part of the device. ``programmed``: it holds the job's image,
    and ``trait`` says which function that is (None: as the job has it); otherwise it holds what it
    held before. Returns what still reserves it; None where it is no more, and its job forgotten.

    Raises JobRefused where there is nothing to resolve, or a process was at work on it within
    ``down_time``; PlacementError, ObjectError and StateError.
    """
    job = _find(context, provider_uuid)
    subject = (job.provider_name, job.provider_uuid) if job else (provider_uuid, provider_uuid)
    if job is not None and is_at_work(job, down_time, now()):
        raise _refused(
            subject,
            f"process {job.process_id} on {job.host} is at work on it, and said so last at "
            f"{job.seen_at.isoformat()}.",
            f"Wait for its end; if it is gone, until it has been silent for "
            f"{down_time.total_seconds():g} s.",
        )
    uuids = job.scope if job else (provider_uuid,)
    held = ReservationList.get_by_filters(context, provider_uuid=uuids, holder=HOLDER)
    is_unfinished = job is not None and job.is_unfinished
    if not held and not is_unfinished:
        raise _refused(subject, "no job has left anything of it.", "There is nothing to do.")
    reservations = Reservations(client, context, down_time)
    scope = [one for uuid in uuids for one in client.list_providers(uuid=uuid)]
    if job is not None and is_unfinished and scope:
        _decide(client, reservations, scope, job, programmed=programmed, trait=trait)
        if programmed:
            forget_others(context, job)
    left: dict[str, None] = {}
    there = {one.uuid for one in scope}
    # By uuid, from before the decision: another job may have reserved the provider since.
    for one in held:
        if one.provider_uuid not in there:
            reservations.forget(one.uuid)
            continue
        with suppress(ObjectNotFound):  # another process ended it at the same time
            left |= dict.fromkeys(reservations.release_one(one.uuid))
    if job is not None and not scope:
        with suppress(ObjectNotFound):
            job.destroy()
    return tuple(left) if scope else None


def _decide(
    client: PlacementClient,
    reservations: Reservations,
    scope: Sequence[ProviderSummary],
    job: DeviceJob,
    *,
    programmed: bool,
    trait: str | None,
) -> None:
    """Note what became of a job, and have all parts of the device say so."""
    if programmed:
        _mark(client, reservations, scope, trait or job.trait)
        job.note_held(trait or job.trait)
    else:
        job.state = "failed"
    try:
        job.save()
    except (ConcurrentSave, ObjectNotFound):
        raise _refused(
            (job.provider_name, job.provider_uuid),
            "somebody else has decided on it.",
            "See `wharfinger device jobs`.",
        ) from None


def _mark(
    client: PlacementClient,
    reservations: Reservations,
    scope: Sequence[ProviderSummary],
    trait: str | None,
) -> None:
    """Set the function trait of all parts of a device.

    Raises JobRefused before the first write if another owner publishes one of them by now.
    """
    owners = {one.uuid: ownership.owners(client.get_traits(one.uuid).traits) for one in scope}
    for one in scope:
        if not reservations.is_ours(one):
            raise _refused(
                (one.name, one.uuid),
                "no driver instance publishes it any more.",
                "Have its owner say what it holds, and resolve the job as unchanged.",
            )
    for one in scope:
        reservations.set_function_trait(one, trait, owners[one.uuid])


def _find(context: Context, provider_uuid: str) -> DeviceJob | None:
    """The last job that was about a device, an unfinished one if there is one."""
    jobs = [
        one
        for one in DeviceJobList.get_by_filters(context)
        if one.is_whole and provider_uuid in one.scope
    ]
    return max(jobs, key=lambda one: (one.is_unfinished, one.started_at), default=None)


def _refused(subject: tuple[str, str], problem: str, remedy: str) -> JobRefused:
    """The error of a device, by its name and uuid."""
    name, uuid = subject
    return JobRefused(provider=name, uuid=uuid, problem=problem, remedy=remedy)
