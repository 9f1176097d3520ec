"""Programming of devices.

``program`` loads an image into a device that it has reserved. ``resolve`` ends what a job has left
undecided, as an operator states. A process may end at any step: nothing is released by itself then.
"""

from wharfinger.jobs.device_programming import program
from wharfinger.jobs.job_resolution import describe, is_at_work, resolve
from wharfinger.objects import JOB_HOLDER as HOLDER

__all__ = ["HOLDER", "describe", "is_at_work", "program", "resolve"]
