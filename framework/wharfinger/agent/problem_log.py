"""What is wrong, told in the log when it begins and when it is over, and not in between."""

import re
from collections.abc import Hashable, Iterable, Mapping
from typing import Final

from oslo_log import log as logging

from wharfinger.exceptions import WharfingerError, printable

LOG: Final = logging.getLogger(__name__)
#: What is another in each telling of one and the same: addresses of objects, ids of requests.
_CHANGING: Final = re.compile(r"\b0x[0-9a-f]+|\breq-[0-9a-f-]+")


class Problems:
    """What is wrong with one thing, as those tell who look at it.

    One who looks says all that is wrong for him; what several say is one problem, and over when
    nobody says it any more. Problems are the same if their texts are.
    """

    def __init__(self, subject: str) -> None:
        self._subject: Final = subject
        self._found: Final[dict[Hashable, dict[str, str]]] = {}

    def found(self, by: Hashable, errors: Iterable[BaseException] = ()) -> None:
        """Take note of all that somebody has found, in place of what he found before."""
        before = self._all()
        self._found[by] = self._told(errors, before)
        now = self._all()
        for key, text in before.items():
            if key not in now:
                LOG.info("%s: over: %s", self._subject, text)

    def also_found(self, by: Hashable, errors: Iterable[BaseException]) -> None:
        """Take note of what somebody has found who has not looked at everything."""
        self._found.setdefault(by, {}).update(self._told(errors, self._all()))

    def _told(self, errors: Iterable[BaseException], known: Mapping[str, str]) -> dict[str, str]:
        """What is wrong, by what makes it the same; told where that is not known."""
        found: dict[str, str] = {}
        for error in errors:
            text = _text(error)
            key = _CHANGING.sub("", text)
            if key not in known and key not in found:
                fault = None if isinstance(error, WharfingerError) else error
                LOG.warning("%s: %s", self._subject, text, exc_info=fault)
            found[key] = text
        return found

    def _all(self) -> dict[str, str]:
        return {key: text for found in self._found.values() for key, text in found.items()}


def _text(error: BaseException) -> str:
    if isinstance(error, WharfingerError):
        return str(error)
    return printable(f"{type(error).__name__}: {error}. This is a fault")
