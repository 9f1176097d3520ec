"""Deciding on a job whose process is gone, or of which nobody knows what became of it."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

from wharfinger.exceptions import ConcurrentSave, JobRefused, ObjectNotFound
from wharfinger.jobs.marking import mark
from wharfinger.jobs.programming import HOLDER
from wharfinger.jobs.work import is_at_work
from wharfinger.objects import Context, DeviceJob, DeviceJobList, ReservationList
from wharfinger.objects.kinds import now
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.holds import Holds
from wharfinger.placement.model import ProviderSummary
from wharfinger.providers import ownership


def resolve(
    client: PlacementClient,
    context: Context,
    provider: ProviderSummary,
    *,
    programmed: bool,
    trait: str | None = None,
    down_time: timedelta = timedelta(seconds=60),
) -> tuple[str, ...]:
    """End what a job has left behind, as somebody says who knows; returns what still reserves it.

    ``programmed``: the device holds the job's image, and ``trait`` says which function that is
    (None: as the job has it). Otherwise it holds what it held before. Raises JobRefused where there
    is nothing to resolve, or a process was at work on it within ``down_time``; ReservationRefused,
    PlacementError, ObjectError and StateError.
    """
    job = _find(context, provider)
    if job is not None and is_at_work(job, down_time, now()):
        raise _at_work(job, down_time)
    is_unfinished = job is not None and job.is_unfinished
    uuids = job.scope if job is not None else (provider.uuid,)
    held = {
        one.provider_uuid
        for one in ReservationList.get_by_filters(context, provider_uuid=uuids, holder=HOLDER)
    }
    if not held and not is_unfinished:
        raise _refused(provider, "no job has left anything of it.", "There is nothing to do.")
    holds = Holds(client, context)
    scope = [one for uuid in uuids for one in client.list_providers(uuid=uuid)]
    if job is not None and is_unfinished:
        if programmed:
            job.trait = trait or job.trait
            _mark(client, holds, scope, job.trait)
        job.state = "programmed" if programmed else "failed"
        _save(provider, job)
    left: dict[str, None] = {}
    for one in scope:
        with suppress(ObjectNotFound):  # somebody else has done so at the same time
            left |= dict.fromkeys(holds.release(one, HOLDER))
    return tuple(left)


def _mark(
    client: PlacementClient, holds: Holds, scope: Sequence[ProviderSummary], trait: str | None
) -> None:
    """Have all providers of a device say what it holds; raises JobRefused before any does."""
    owners = {one.uuid: ownership.owners(client.get_traits(one.uuid).traits) for one in scope}
    for one in scope:
        if not holds.is_ours(one.uuid):
            raise _refused(
                one,
                "no driver instance publishes it any more.",
                "Have its owner say what it holds, and resolve the job as unchanged.",
            )
    for one in scope:
        mark(client, one, trait, owners[one.uuid])


def forget(context: Context, job: DeviceJob, down_time: timedelta) -> None:
    """End a job, and its reservation, of a device that is no more; raises as ``resolve`` does."""
    if is_at_work(job, down_time, now()):
        raise _at_work(job, down_time)
    held = ReservationList.get_by_filters(context, provider_uuid=job.provider_uuid, holder=HOLDER)
    for one in (*held, job):
        with suppress(ObjectNotFound):
            one.destroy()


def _find(context: Context, provider: ProviderSummary) -> DeviceJob | None:
    """The last job that was about a device, an unfinished one if there is one."""
    jobs = [one for one in DeviceJobList.get_by_filters(context) if provider.uuid in one.scope]
    return max(jobs, key=lambda one: (one.is_unfinished, one.started_at), default=None)


def _at_work(job: DeviceJob, down_time: timedelta) -> JobRefused:
    return JobRefused(
        provider=job.provider_name,
        uuid=job.provider_uuid,
        problem=f"process {job.process_id} on {job.host} is at work on it, and said so last at "
        f"{job.seen_at.isoformat()}.",
        remedy=f"Wait for its end; if it is gone, until it has been silent for "
        f"{down_time.total_seconds():g} s.",
    )


def _save(provider: ProviderSummary, job: DeviceJob) -> None:
    try:
        job.save()
    except (ConcurrentSave, ObjectNotFound):
        raise _refused(
            provider, "somebody else has decided on it.", "See `wharfinger device jobs`."
        ) from None


def _refused(provider: ProviderSummary, problem: str, remedy: str) -> JobRefused:
    return JobRefused(provider=provider.name, uuid=provider.uuid, problem=problem, remedy=remedy)
