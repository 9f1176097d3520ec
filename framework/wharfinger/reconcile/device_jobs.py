"""Find device jobs, and update or delete outdated ones."""

from collections.abc import Iterable, Mapping
from contextlib import suppress

from wharfinger.exceptions import ChangedMeanwhile
from wharfinger.objects import Context, DeviceJob, DeviceJobList, ProviderRecordList


def jobs_of(context: Context, uuids: Iterable[str]) -> list[DeviceJob]:
    """Return the jobs of the devices to which these providers belong."""
    wanted = frozenset(uuids)
    jobs = DeviceJobList.get_by_filters(context) if wanted else ()
    return [one for one in jobs if "provider_uuid" in one and not wanted.isdisjoint(one.scope)]


def supersede_functions(context: Context, job_revisions: Mapping[str, int]) -> None:
    """Note in the given jobs that their function was replaced."""
    for one in _finished(context, job_revisions):
        known = {job_revisions[uuid] for uuid in one.scope if uuid in job_revisions}
        if one.held_trait is not None and one.revision in known:
            one.stale_traits = sorted({*one.stale_traits, one.held_trait})
            one.held_trait = None
            with suppress(ChangedMeanwhile):  # by another job or process: nothing is left to do
                one.save()


def delete_jobs(context: Context, host: str, instance: str, gone: Iterable[str]) -> None:
    """Delete finished jobs of ``gone`` providers, not of providers with a record."""
    found = [
        one
        for one in _finished(context, gone)
        if (one.host, one.driver_instance) == (host, instance)
    ]
    scope = sorted({uuid for one in found for uuid in one.scope})
    records = ProviderRecordList.get_by_filters(context, provider_uuid=scope) if scope else ()
    known = {record.known("provider_uuid") for record in records}
    for one in found:
        if known.isdisjoint(one.scope):
            with suppress(ChangedMeanwhile):
                one.destroy()


def delete_earlier(context: Context, job: DeviceJob) -> None:
    """Delete the other finished jobs of the job's device."""
    for one in _finished(context, job.scope):
        if one.provider_uuid != job.provider_uuid:
            with suppress(ChangedMeanwhile):
                one.destroy()


def _finished(context: Context, uuids: Iterable[str]) -> list[DeviceJob]:
    return [one for one in jobs_of(context, uuids) if one.is_whole and not one.is_unfinished]
