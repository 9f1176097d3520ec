"""Repeat functions after errors that another process can cause."""

from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from tenacity import retry, retry_if_exception_type, stop_after_attempt
from tenacity.wait import wait_base, wait_random_exponential

from wharfinger.exceptions import WharfingerError

_WAIT: Final = wait_random_exponential(max=2.0)  # seconds
_P = ParamSpec("_P")
_R = TypeVar("_R")


def retry_on(
    *errors: type[WharfingerError], attempts: int = 5, wait: wait_base = _WAIT
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Return a decorator that retries a function on these errors."""
    return retry(
        retry=retry_if_exception_type(errors),
        stop=stop_after_attempt(attempts),
        wait=wait,
        reraise=True,
    )
