"""Programming of devices.

``program`` reserves a device and loads an image into it. If its process dies, the device stays
reserved. The operator then states what the device holds, and ``resolve`` ends the job.
"""

from wharfinger.jobs.device_programming import program
from wharfinger.jobs.job_resolution import describe, is_at_work, resolve
from wharfinger.objects import JOB_HOLDER as HOLDER

__all__ = ["HOLDER", "describe", "is_at_work", "program", "resolve"]
