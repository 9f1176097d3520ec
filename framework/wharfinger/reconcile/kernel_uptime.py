"""Read the uptime of the machine."""

import time
from pathlib import Path
from typing import Final

from oslo_utils.uuidutils import is_uuid_like

from wharfinger.providers.provider import Uptime

#: The boot id of Linux; a container has the boot id of its host.
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def boottime() -> float:
    """Return the seconds since the boot, including the time in suspend."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def read() -> Uptime | None:
    """Return the boot id and the uptime; None without a valid boot id."""
    try:
        boot_id = BOOT_ID.read_text("ascii").strip()
    except (OSError, UnicodeError):
        return None
    return Uptime(boot_id, boottime()) if is_uuid_like(boot_id) else None
