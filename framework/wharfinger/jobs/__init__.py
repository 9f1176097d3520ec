"""Programming of devices.

``program`` reserves a device and loads an image into it. If the process dies meanwhile, the device
stays reserved. Then the operator reports which image the device has, and ``resolve`` ends the job.
"""

from wharfinger.jobs.device_programming import program
from wharfinger.jobs.job_resolution import describe, is_at_work, resolve

__all__ = ["describe", "is_at_work", "program", "resolve"]
