"""Programming of devices: ``program`` loads an image, ``resolve`` ends an unresolved job."""

from wharfinger.jobs.device_programming import program
from wharfinger.jobs.job_resolution import describe, is_at_work, resolve

__all__ = ["describe", "is_at_work", "program", "resolve"]
