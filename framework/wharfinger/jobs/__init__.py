"""Programming of devices.

``program`` reserves a device and loads an image into it. ``resolve`` ends a job that was
interrupted, or whose outcome is unknown.
"""

from wharfinger.jobs.device_programming import program
from wharfinger.jobs.job_resolution import describe, is_at_work, resolve

__all__ = ["describe", "is_at_work", "program", "resolve"]
