"""Work on devices that takes its time, and must not be taken for done when it is not.

``program`` loads an image into a device that is reserved for it; ``resolve`` is for what an
operator has to decide afterwards. Both keep to what the database says: a process may end at any
step, and nothing is released by itself then.
"""

from wharfinger.jobs.device_programming import program
from wharfinger.jobs.job_activity import describe, is_at_work
from wharfinger.jobs.job_resolution import resolve
from wharfinger.objects import JOB_HOLDER as HOLDER

__all__ = ["HOLDER", "describe", "is_at_work", "program", "resolve"]
