"""Mutants of backends that fail (WHF-7..)."""

import json
from collections.abc import Sequence
from typing import Any

from tests.lab.conformance.honest import DevicesDriver, Facts, MachinesDriver
from tests.lab.conformance.mutants import mutant
from wharfinger.exceptions import BackendError


@mutant("WHF-701")
class ListsNothing(MachinesDriver):
    """A backend that does not answer has no machines."""

    def read(self) -> None:
        try:
            super().read()
        except BackendError:
            self.devices = {}


@mutant("WHF-701")
class ListsWhatWas(DevicesDriver):
    """A backend that does not answer has what it had."""

    def get_available_nodes(self, refresh: bool = False) -> list[str]:
        try:
            return super().get_available_nodes(refresh)
        except BackendError:
            return super().get_available_nodes()


@mutant("WHF-702")
class GivesUpForGood(DevicesDriver):
    """After an error it does not ask any more."""

    is_broken = False

    def asked(self, words: str) -> Any:
        if self.is_broken:
            raise self.failed(words, OSError("the connection is closed"))
        try:
            return super().asked(words)
        except BackendError:
            self.is_broken = True
            raise


class Skipping(DevicesDriver):
    """It leaves out a device of which a call does not tell it."""

    passes_over: type[Exception]

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        found: dict[str, Facts] = {}
        for name in names:
            try:
                found |= super().read_devices([name])
            except BackendError as error:
                if not isinstance(error.__cause__, self.passes_over):
                    raise
        return found


@mutant("WHF-703")
class SkipsRefused(Skipping):
    """A device of which it is refused to hear is left out."""

    passes_over = ConnectionError


@mutant("WHF-704")
class SkipsUnreadable(Skipping):
    """A device whose description cannot be read is left out."""

    passes_over = ValueError


@mutant("WHF-704")
class ReadsAsFarAsItGoes(DevicesDriver):
    """It takes what it can read of a description, and defaults for the rest."""

    def parsed(self, answer: str) -> Any:
        try:
            return super().parsed(answer)
        except ValueError:
            if not answer.startswith('{"units"'):
                raise
            known = json.loads(answer[: answer.rindex(",")] + "}")
            usual = {"units": 1, "reserved": 0, "traits": [], "function": None, "busy": False}
            return {**usual, "cleaned": None, **known}


@mutant("WHF-705")
class SkipsSilent(Skipping):
    """A device of which nothing is heard in time is left out."""

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

    def ask(self, words: str) -> Any:
        return self.asked(words)
