"""What there is to know of jobs: whether a process is at work on one, and which still count."""

from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from wharfinger.exceptions import ConcurrentSave, ObjectNotFound
from wharfinger.objects import Context, DeviceJob, DeviceJobList

#: Times are kept in whole seconds.
_LEAST: Final = timedelta(seconds=3)


def is_at_work(job: DeviceJob, down_time: timedelta, now: datetime) -> bool:
    """Whether a process has said within ``down_time``, or 3 s, that it is at work on a job."""
    is_recent = now - job.seen_at <= max(down_time, _LEAST)
    return job.is_unfinished and job.state != "unknown" and is_recent


def forget_others(context: Context, job: DeviceJob) -> None:
    """Forget the finished jobs of other parts of a device: this one is the last word."""
    for one in DeviceJobList.get_by_filters(context):
        if (
            one.is_whole
            and one.provider_uuid != job.provider_uuid
            and not one.is_unfinished
            and not set(one.scope).isdisjoint(job.scope)
        ):
            with suppress(ConcurrentSave, ObjectNotFound):
                one.destroy()


def describe(job: DeviceJob, down_time: timedelta, now: datetime) -> str:
    """How a job stands: its state, and whether it was left in it."""
    if job.is_unfinished and job.state != "unknown" and not is_at_work(job, down_time, now):
        return f"interrupted while {job.state}"
    return job.state
