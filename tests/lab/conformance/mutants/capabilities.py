"""Mutants of capabilities (WHF-9..)."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from typing import ClassVar

from tests.lab.conformance.honest import DevicesDriver, Facts, MachinesDriver
from tests.lab.conformance.mutants import mutant
from wharfinger.driver import SUPPORTED, Capabilities, unsupported
from wharfinger.exceptions import DriverError, ProgrammingRefused


@mutant("WHF-901")
class NestsSomeDay(MachinesDriver):
    """It declares children, and has none."""

    capabilities: ClassVar[Capabilities] = replace(
        MachinesDriver.capabilities, nested_providers=SUPPORTED
    )


@mutant("WHF-902")
class NestsInSecret(DevicesDriver):
    """It has children, and declares that it has not."""

    capabilities: ClassVar[Capabilities] = replace(
        DevicesDriver.capabilities, nested_providers=unsupported("there is one node")
    )


@mutant("WHF-903")
class ReshapesInSecret(DevicesDriver):
    """It moves inventory of old layouts, and declares that it does not."""

    capabilities: ClassVar[Capabilities] = replace(
        DevicesDriver.capabilities, reshape=unsupported("nothing ever moves")
    )


@mutant("WHF-904")
class HasAnOpinionOfCleaning(MachinesDriver):
    """It cleans nothing, and reports every provider as clean."""

    def is_clean(self, provider_uuid: str, since: datetime) -> bool:
        return True


@mutant("WHF-921")
class SaysWhatItKnew(DevicesDriver):
    """It takes the function of a device from its snapshot, which may be outdated."""

    def current_function(self, provider_uuid: str) -> str | None:
        function: str | None = self.devices[self.names[provider_uuid]]["function"]
        return function


@mutant("WHF-921")
class ProgramsLater(DevicesDriver):
    """It returns before anything has happened."""

    def program(self, provider_uuid: str, image: str, function: str | None = None) -> None:
        if provider_uuid not in self.names or image not in self.world.images:
            super().program(provider_uuid, image, function)
        self.ask("list")


@mutant("WHF-922")
class SwallowsErrors(DevicesDriver):
    """It reports no error when programming fails."""

    def program(self, provider_uuid: str, image: str, function: str | None = None) -> None:
        try:
            super().program(provider_uuid, image, function)
        except DriverError:
            return


@mutant("WHF-923")
class LeavesItselfOut(DevicesDriver):
    """It names the others that lose what they hold, and not the device itself."""

    def programming_scope(self, provider_uuid: str) -> Collection[str]:
        return [uuid for uuid in self.names if uuid != provider_uuid]


@mutant("WHF-923")
class NamesNoTrait(DevicesDriver):
    """The trait of a new function is a name as its vendor writes it."""

    def function_trait(self, provider_uuid: str, function: str) -> str:
        trait = super().function_trait(provider_uuid, function)
        return trait if function == "before" else function


@mutant("WHF-931")
class IsAlwaysClean(DevicesDriver):
    """Everything is clean, at any time."""

    def is_clean(self, provider_uuid: str, since: datetime) -> bool:
        return True


@mutant("WHF-932")
class TakesFreeForClean(DevicesDriver):
    """It takes every device that is not busy for clean."""

    def is_clean(self, provider_uuid: str, since: datetime) -> bool:
        facts = self.devices.get(self.names.get(provider_uuid, ""))
        return facts is not None and not facts["busy"]


@mutant("WHF-932")
class TakesOnceCleanedForClean(DevicesDriver):
    """It reports a device as clean that was cleaned before the given time."""

    def is_clean(self, provider_uuid: str, since: datetime) -> bool:
        facts = self.devices.get(self.names.get(provider_uuid, ""), {})
        return bool(facts.get("cleaned") and not facts["busy"])


@mutant("WHF-932")
class TakesTheChangeForACleaning(DevicesDriver):
    """It has seen the device become free, and asks no clock when that was."""

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        devices = super().read_devices(names)
        busy = {name for name, facts in self.devices.items() if facts["busy"]}
        self.noted |= {name for name in busy & devices.keys() if not devices[name]["busy"]}
        return devices

    def is_clean(self, provider_uuid: str, since: datetime) -> bool:
        return self.names.get(provider_uuid) in self.noted


@mutant("WHF-921")
class ProgramsTheFirst(DevicesDriver):
    """It programs the first device, whichever is meant."""

    def program(self, provider_uuid: str, image: str, function: str | None = None) -> None:
        first = provider_uuid if provider_uuid not in self.names else next(iter(self.names))
        super().program(first, image, function)


@mutant("WHF-924")
class RefusesAll(DevicesDriver):
    """It reports each failure as if programming had not begun."""

    def program(self, provider_uuid: str, image: str, function: str | None = None) -> None:
        try:
            super().program(provider_uuid, image, function)
        except DriverError as error:
            reason = str(error)
            raise ProgrammingRefused(
                driver=self.name, provider=provider_uuid, reason=reason
            ) from error
