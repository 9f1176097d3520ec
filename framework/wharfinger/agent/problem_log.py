"""Log a problem when it begins and when it is over, but not in between."""

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
#: Parts of a text that differ in each occurrence: addresses of objects, ids of requests.
_CHANGING: Final = re.compile(r"\b0x[0-9a-f]+|\breq-[0-9a-f-]+")


class Problems:
    """The present problems of one ``subject``, such as a driver instance.

    Several checks report problems. A problem is over when no check reports it. Errors of one
    outage, such as of Placement, are one problem.
    """

    def __init__(self, subject: str) -> None:
        self._subject: Final = subject
        self._found: Final[dict[Hashable, dict[str, str]]] = {}

    def found(
        self, by: Hashable, errors: Iterable[BaseException] = (), *, is_whole: bool = False
    ) -> None:
        """Replace the problems that a check found before; log problems that are new or over.

        ``by`` identifies the check. If the errors ended the whole check (``is_whole``), a
        BackendError or a status 5xx of Placement counts as an outage, too.
        """
        before = self._all()
        self._found[by] = self._log_new(errors, before, is_whole=is_whole)
        now = self._all()
        for key, text in before.items():
            if key not in now:
                LOG.warning("%s: solved: %s", self._subject, text)

    def also_found(self, by: Hashable, errors: Iterable[BaseException]) -> None:
        """Add problems of a check that did not examine everything; log new ones."""
        self._found.setdefault(by, {}).update(self._log_new(errors, self._all(), is_whole=False))

    def _log_new(
        self, errors: Iterable[BaseException], known: Mapping[str, str], *, is_whole: bool
    ) -> dict[str, str]:
        found: dict[str, str] = {}
        for error in errors:
            text = _text(error)
            key = outage_of(error, is_whole=is_whole) or _identity(error, text)
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


def outage_of(error: BaseException, *, is_whole: bool) -> str | None:
    """Return the dependency that an error shows to be down, or None.

    ``is_whole`` is whether the error ended the whole cycle. Some errors show an outage only then.
    """
    match error:
        case PlacementUnavailable() | UnexpectedAnswer():
            return "Placement"
        case PlacementError(status=status) if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return "Placement" if is_whole else None
        case DatabaseUnavailable():
            return error.path
        case BackendError():
            return f"driver {error.driver}" if is_whole else None
    return None


def is_outage(problem: WharfingerError) -> bool:
    """Return whether a problem of a part of the cycle shows that a dependency is down."""
    return outage_of(problem, is_whole=False) is not None


def _identity(error: BaseException, text: str) -> str:
    return _CHANGING.sub("", error.identity if isinstance(error, WharfingerError) else text)


def _text(error: BaseException) -> str:
    if isinstance(error, WharfingerError):
        return with_code(error)
    return printable(f"{type(error).__name__}: {error}. This is a fault")
