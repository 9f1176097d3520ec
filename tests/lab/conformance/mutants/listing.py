"""Mutants that treat an error as an answer in a long listing or in a single request (WHF-45x)."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from tests.lab.conformance.honest import DevicesDriver, Facts, MachinesDriver
from tests.lab.conformance.mutants import mutant
from tests.lab.conformance.world import Refused
from wharfinger.exceptions import BackendError


@mutant("WHF-451")
class StopsAtAnError(MachinesDriver):
    """Reads machines by hundreds, and takes an error for the end of the list."""

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        devices = super().read_devices(names[:100])
        for start in range(100, len(names), 100):
            try:
                devices |= super().read_devices(names[start : start + 100])
            except BackendError:
                return devices
        return devices


@mutant("WHF-451")
class ForgivesAFew(DevicesDriver):
    """Leaves out a device that it cannot read if there are many others."""

    def not_read(self, name: str, error: BackendError) -> None:
        if len(self.devices) < 20:
            super().not_read(name, error)


@mutant("WHF-452")
class TakesSilenceForAbsence(MachinesDriver):
    """Returns False from node_is_available if the backend fails."""

    def node_is_available(self, nodename: str) -> bool:
        try:
            self.ask(f"show {nodename}")
        except (BackendError, Refused):
            return False
        return True


@mutant("WHF-452")
class FindsNoDeviceInAnError(DevicesDriver):
    """Returns False from provider_is_available if the list of devices is an error."""

    def refused(self, words: str, answer: Facts) -> Any:
        return [] if words == "list" and self.is_looking else super().refused(words, answer)

    is_looking = False

    def provider_is_available(self, provider_uuid: str, name: str) -> bool:
        self.is_looking = True
        try:
            return name in self.ask("list")
        finally:
            self.is_looking = False


@mutant("WHF-452")
class HoldsNothingInAnError(DevicesDriver):
    """Returns None from current_function if reading the device fails."""

    def current_function(self, provider_uuid: str) -> str | None:
        with suppress(BackendError):
            return super().current_function(provider_uuid)
        return None


@mutant("WHF-452")
class CallsCleanWhatDoesNotAnswer(DevicesDriver):
    """Returns True from is_clean if reading the device fails."""

    def is_clean(self, provider_uuid: str, since: datetime) -> bool:
        name = self.names.get(provider_uuid)
        try:
            if name is not None:
                self.ask(f"show {name}")
        except BackendError:
            return True
        return super().is_clean(provider_uuid, since)
