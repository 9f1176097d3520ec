"""Ask a driver for the function that a device has."""

from typing import Final

from wharfinger.driver import ComputeDriver

#: The function of a device if ``current_function`` raises.
UNKNOWN: Final = object()


def held_function(driver: ComputeDriver, uuid: str) -> object:
    """Return a device's function; None if it has none, UNKNOWN if ``current_function`` raises."""
    try:
        return driver.current_function(uuid)
    except Exception:
        return UNKNOWN
