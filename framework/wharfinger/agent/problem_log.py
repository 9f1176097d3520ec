"""Warn when a problem begins and when it is over."""

import re
from collections.abc import Hashable, Iterable, Mapping
from http import HTTPStatus
from typing import Final

from oslo_log import log as logging

from wharfinger.error_codes import with_code
from wharfinger.exceptions import (
    BackendError,
    DatabaseUnavailable,
    PlacementError,
    PlacementUnavailable,
    UnexpectedAnswer,
    WharfingerError,
    printable,
)

LOG: Final = logging.getLogger(__name__)
#: Addresses of objects and ids of requests: they differ in each occurrence.
_CHANGING: Final = re.compile(r"\b0x[0-9a-f]+|\breq-[0-9a-f-]+")


class Problems:
    """The present problems of one subject, such as a driver instance."""

    def __init__(self, subject: str) -> None:
        self._subject: Final = subject
        self._found: Final[dict[Hashable, dict[str, str]]] = {}

    def found(
        self, check: Hashable, errors: Iterable[BaseException] = (), *, ends_check: bool = False
    ) -> None:
        """Replace the problems that a check found before; log the differences."""
        before = self._all()
        self._found[check] = self._log_new(errors, before, ends_check=ends_check)
        now = self._all()
        for key, text in before.items():
            if key not in now:
                LOG.warning("%s: solved: %s", self._subject, text)

    def also_found(self, check: Hashable, errors: Iterable[BaseException]) -> None:
        """Add problems to those that a check found before; log new problems."""
        self._found.setdefault(check, {}).update(
            self._log_new(errors, self._all(), ends_check=False)
        )

    def _log_new(
        self, errors: Iterable[BaseException], known: Mapping[str, str], *, ends_check: bool
    ) -> dict[str, str]:
        found: dict[str, str] = {}
        for error in errors:
            text = _text(error)
            key = outage_of(error, ends_check=ends_check) or _identity(error, text)
            if key in known or key in found:
                LOG.debug("%s: still unsolved: %s", self._subject, text)
                found.setdefault(key, known.get(key, text))
            else:
                fault = None if isinstance(error, WharfingerError) else error
                LOG.warning("%s: %s", self._subject, text, exc_info=fault)
                found[key] = text
        return found

    def _all(self) -> dict[str, str]:
        return {key: text for found in self._found.values() for key, text in found.items()}


def outage_of(error: BaseException, *, ends_check: bool) -> str | None:
    """Return the dependency that an error shows to be down, or None."""
    match error:
        case PlacementUnavailable() | UnexpectedAnswer():
            return "Placement"
        case PlacementError(status=status) if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return "Placement" if ends_check else None
        case DatabaseUnavailable():
            return error.path
        case BackendError():
            return f"driver {error.driver}" if ends_check else None
    return None


def is_outage(problem: WharfingerError) -> bool:
    """Return whether Placement or the database seems down."""
    return outage_of(problem, ends_check=False) is not None


def _identity(error: BaseException, text: str) -> str:
    return _CHANGING.sub("", error.identity if isinstance(error, WharfingerError) else text)


def _text(error: BaseException) -> str:
    if isinstance(error, WharfingerError):
        return with_code(error)
    return printable(f"{type(error).__name__}: {error}. This is a fault")
