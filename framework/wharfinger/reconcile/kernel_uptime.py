"""The machine's uptime, as the kernel counts it."""

import time
from pathlib import Path
from typing import Final

from oslo_utils.uuidutils import is_uuid_like

from wharfinger.providers.absence_timer import Uptime

#: The file in which Linux has the boot id; a container has the boot id of its host.
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def read() -> Uptime | None:
    """Return the uptime, including the time in suspend; None if it cannot be read."""
    try:
        boot_id = BOOT_ID.read_text("ascii").strip()
        seconds = time.clock_gettime(time.CLOCK_BOOTTIME)
    except (AttributeError, OSError, UnicodeError):
        return None
    return Uptime(boot_id, seconds) if is_uuid_like(boot_id) else None
