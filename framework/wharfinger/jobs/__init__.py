"""Programming of devices.

``program`` reserves a device and loads an image into it. If the process dies meanwhile, the device
stays reserved until ``resolve`` is called.
"""

from wharfinger.jobs.device_programming import program
from wharfinger.jobs.job_resolution import describe, is_at_work, resolve

__all__ = ["describe", "is_at_work", "program", "resolve"]
