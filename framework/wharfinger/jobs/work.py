"""Whether a process is at work on a job, and how a job stands, in words."""

from datetime import datetime, timedelta

from wharfinger.objects import DeviceJob


def is_at_work(job: DeviceJob, down_time: timedelta, now: datetime) -> bool:
    """Whether a process has said within ``down_time`` that it is at work on a job."""
    return job.is_unfinished and job.state != "unknown" and now - job.seen_at <= down_time


def describe(job: DeviceJob, down_time: timedelta, now: datetime) -> str:
    """How a job stands: its state, and whether it was left in it."""
    if job.is_unfinished and job.state != "unknown" and not is_at_work(job, down_time, now):
        return f"interrupted while {job.state}"
    return job.state
