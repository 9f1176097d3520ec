"""The function that a device holds, as a driver reports it."""

from typing import Final

from wharfinger.driver import ComputeDriver

#: The function of a device for which the driver raises.
UNKNOWN: Final = object()


def held_function(driver: ComputeDriver, uuid: str) -> object:
    """Return the function of a device, None for nothing, and UNKNOWN where the driver raises."""
    try:
        return driver.current_function(uuid)
    except Exception:
        return UNKNOWN
