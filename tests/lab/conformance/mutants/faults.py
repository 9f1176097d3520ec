"""Mutants that break the rules on failing backends (WHF-7xx)."""

import json
from collections.abc import Sequence
from typing import Any, NoReturn

from tests.lab.conformance.honest import DevicesDriver, Facts, MachinesDriver
from tests.lab.conformance.mutants import mutant
from tests.lab.conformance.world import DENIED, FORBIDDEN, Refused
from wharfinger.exceptions import BackendError


@mutant("WHF-701")
class ListsNothing(MachinesDriver):
    """Returns an empty list of machines if the backend does not answer."""

    def not_refreshed(self, error: BackendError) -> None:
        self.devices = {}


@mutant("WHF-701")
class ListsWhatWas(DevicesDriver):
    """Returns the list of its last listing if the backend does not answer."""

    def not_refreshed(self, error: BackendError) -> None:
        pass


@mutant("WHF-701")
class MayNotSeeAny(MachinesDriver):
    """Takes the answer that it has no access for an empty list."""

    def refused(self, words: str, answer: Facts) -> Any:
        return [] if answer["error"] == DENIED else super().refused(words, answer)


@mutant("WHF-701")
class MayNotList(DevicesDriver):
    """Returns an empty list if the backend forbids it to list."""

    def refused(self, words: str, answer: Facts) -> Any:
        if words in ("list", "uses") and answer["error"] == FORBIDDEN:
            return []
        return super().refused(words, answer)


@mutant("WHF-701")
class HasNothingWhereNothingIsFound(DevicesDriver):
    """Returns an empty list if the backend answers that the list does not exist."""

    def ask(self, words: str) -> Any:
        try:
            return super().ask(words)
        except Refused:
            if words in ("list", "uses"):
                return []
            raise


@mutant("WHF-708")
class FreesWhatIsNotFound(MachinesDriver):
    """Publishes a machine as before, but free, if the backend answers that it does not exist."""

    def ask(self, words: str) -> Any:
        try:
            return super().ask(words)
        except Refused:
            known = self.devices.get(words.removeprefix("show "))
            if known is None:
                raise
            return {**known, "busy": False}


@mutant("WHF-702")
class GivesUpForGood(DevicesDriver):
    """Fails all requests after the first error."""

    def failed(self, words: str, error: Exception) -> BackendError:
        def refuse(words: str) -> NoReturn:
            raise super(GivesUpForGood, self).failed(words, error)

        self.asked = refuse  # type: ignore[method-assign]
        return super().failed(words, error)


class Skipping(DevicesDriver):
    """Leaves out a device if reading the device fails with the error ``passes_over``."""

    passes_over: type[Exception]

    def not_read(self, name: str, error: BackendError) -> None:
        if not isinstance(error.__cause__, self.passes_over):
            super().not_read(name, error)


@mutant("WHF-703")
class SkipsRefused(Skipping):
    """Leaves out a device if the connection fails while it reads the device."""

    passes_over = ConnectionError


@mutant("WHF-704")
class SkipsUnreadable(Skipping):
    """Leaves out a device if the answer about the device is not complete JSON."""

    passes_over = ValueError


@mutant("WHF-704")
class ReadsAsFarAsItGoes(DevicesDriver):
    """Takes the complete part of a broken-off answer, and defaults for the rest."""

    def unreadable(self, words: str, answer: str, error: ValueError) -> Any:
        if not words.startswith("show"):
            return super().unreadable(words, answer, error)
        known = json.loads(answer[: answer.rindex(",")] + "}")
        usual = {"units": 1, "reserved": 0, "traits": [], "function": None, "busy": False}
        return {**usual, "cleaned": None, **known}


@mutant("WHF-705")
class SkipsSilent(Skipping):
    """Leaves out a device if the backend does not answer in time."""

    passes_over = TimeoutError


@mutant("WHF-706")
class WaitsForEver(DevicesDriver):
    """Has no time-out for requests."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.timeout = None


@mutant("WHF-707")
class NeverConnectsAgain(DevicesDriver):
    """Does not connect again after the backend was restarted."""

    def connect_again(self) -> None:
        raise self.failed("connect", OSError("it has been done"))


class Trusting(MachinesDriver):
    """Keeps the old facts of a machine if reading the machine fails with ``passes_over``."""

    passes_over: type[Exception]

    def not_read(self, name: str, error: BackendError) -> None:
        if name not in self.devices or not isinstance(error.__cause__, self.passes_over):
            super().not_read(name, error)
        self.noted.add(name)

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        self.noted.clear()
        found = super().read_devices(names)
        return {name: self.devices[name] if name in self.noted else found[name] for name in names}


@mutant("WHF-703")
class KeepsWhatItKnew(Trusting):
    """Keeps the old facts of a machine if the connection fails while it reads the machine."""

    passes_over = ConnectionError


@mutant("WHF-704")
class KeepsWhatItCouldRead(Trusting):
    """Keeps the old facts of a machine if the answer is not complete JSON."""

    passes_over = ValueError


@mutant("WHF-708")
class ReadsErrors(DevicesDriver):
    """Takes an error answer for the facts of a device, with defaults for what it lacks."""

    def refused(self, words: str, answer: Facts) -> Any:
        if not words.startswith("show"):
            return super().refused(words, answer)
        usual = {"units": 1, "reserved": 0, "traits": [], "function": None, "busy": False}
        return {**usual, "cleaned": None, **answer}


@mutant("WHF-709")
class AsksAgainAndSkips(MachinesDriver):
    """Asks three times for a machine, and leaves the machine out if the backend does not answer."""

    def asked(self, words: str) -> Any:
        for _ in range(2):
            try:
                return super().asked(words)
            except BackendError as error:
                if not isinstance(error.__cause__, OSError):
                    raise
        return super().asked(words)

    def not_read(self, name: str, error: BackendError) -> None:
        if not isinstance(error.__cause__, OSError):
            super().not_read(name, error)
