"""Mutants of backends that fail (WHF-7..)."""

import json
from collections.abc import Sequence
from typing import Any, NoReturn

from tests.lab.conformance.honest import DevicesDriver, Facts, MachinesDriver
from tests.lab.conformance.mutants import mutant
from tests.lab.conformance.world import DENIED
from wharfinger.exceptions import BackendError


@mutant("WHF-701")
class ListsNothing(MachinesDriver):
    """A backend that does not answer has no machines."""

    def not_refreshed(self, error: BackendError) -> None:
        self.devices = {}


@mutant("WHF-701")
class ListsWhatWas(DevicesDriver):
    """A backend that does not answer has what it had."""

    def not_refreshed(self, error: BackendError) -> None:
        pass


@mutant("WHF-701")
class MayNotSeeAny(MachinesDriver):
    """It takes a denied list of machines for an empty one."""

    def refused(self, words: str, answer: Facts) -> Any:
        return [] if answer["error"] == DENIED else super().refused(words, answer)


@mutant("WHF-702")
class GivesUpForGood(DevicesDriver):
    """After an error it does not ask any more."""

    def failed(self, words: str, error: Exception) -> BackendError:
        def refuse(words: str) -> NoReturn:
            raise super(GivesUpForGood, self).failed(words, error)

        self.asked = refuse  # type: ignore[method-assign]
        return super().failed(words, error)


class Skipping(DevicesDriver):
    """It leaves out a device whose call fails with one of these errors."""

    passes_over: type[Exception]

    def not_read(self, name: str, error: BackendError) -> None:
        if not isinstance(error.__cause__, self.passes_over):
            super().not_read(name, error)


@mutant("WHF-703")
class SkipsRefused(Skipping):
    """It leaves out a device for which the backend refuses the call."""

    passes_over = ConnectionError


@mutant("WHF-704")
class SkipsUnreadable(Skipping):
    """It leaves out a device whose description cannot be read."""

    passes_over = ValueError


@mutant("WHF-704")
class ReadsAsFarAsItGoes(DevicesDriver):
    """It takes what it can read of a description, and defaults for the rest."""

    def unreadable(self, words: str, answer: str, error: ValueError) -> Any:
        if not words.startswith("show"):
            return super().unreadable(words, answer, error)
        known = json.loads(answer[: answer.rindex(",")] + "}")
        usual = {"units": 1, "reserved": 0, "traits": [], "function": None, "busy": False}
        return {**usual, "cleaned": None, **known}


@mutant("WHF-705")
class SkipsSilent(Skipping):
    """It leaves out a device whose answer does not come in time."""

    passes_over = TimeoutError


@mutant("WHF-706")
class WaitsForEver(DevicesDriver):
    """It has no time-out."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.timeout = None


@mutant("WHF-707")
class NeverConnectsAgain(DevicesDriver):
    """It has one session, for as long as it runs."""

    def connect_again(self) -> None:
        raise self.failed("connect", OSError("it has been done"))


class Trusting(MachinesDriver):
    """It keeps the old facts of a machine whose call fails with one of these errors."""

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
    """It publishes the old facts of a machine for which the backend refuses the call."""

    passes_over = ConnectionError


@mutant("WHF-704")
class KeepsWhatItCouldRead(Trusting):
    """It publishes the old facts of a machine whose description cannot be read."""

    passes_over = ValueError


@mutant("WHF-708")
class ReadsErrors(DevicesDriver):
    """It takes an error for a description, with defaults for what is not in it."""

    def refused(self, words: str, answer: Facts) -> Any:
        if not words.startswith("show"):
            return super().refused(words, answer)
        usual = {"units": 1, "reserved": 0, "traits": [], "function": None, "busy": False}
        return {**usual, "cleaned": None, **answer}


@mutant("WHF-709")
class AsksAgainAndSkips(MachinesDriver):
    """It asks three times for a machine, and leaves it out if it gets no answer."""

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
