"""Mutants that break the rules on capabilities (WHF-9xx)."""

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
    """Declares nested_providers, but has no children."""

    capabilities: ClassVar[Capabilities] = replace(
        MachinesDriver.capabilities, nested_providers=SUPPORTED
    )


@mutant("WHF-902")
class NestsInSecret(DevicesDriver):
    """Has children, but declares nested_providers as unsupported."""

    capabilities: ClassVar[Capabilities] = replace(
        DevicesDriver.capabilities, nested_providers=unsupported("there is one node")
    )


@mutant("WHF-903")
class ReshapesInSecret(DevicesDriver):
    """Raises ReshapeNeeded for an old layout, but declares reshape as unsupported."""

    capabilities: ClassVar[Capabilities] = replace(
        DevicesDriver.capabilities, reshape=unsupported("nothing ever moves")
    )


@mutant("WHF-904")
class HasAnOpinionOfCleaning(MachinesDriver):
    """Reports every provider as clean, although it declares cleaning as unsupported."""

    def is_clean(self, provider_uuid: str, since: datetime) -> bool:
        return True


@mutant("WHF-921")
class SaysWhatItKnew(DevicesDriver):
    """Returns from current_function the function in the last listing, which may be outdated."""

    def current_function(self, provider_uuid: str) -> str | None:
        function: str | None = self.devices[self.names[provider_uuid]]["function"]
        return function


@mutant("WHF-921")
class ProgramsLater(DevicesDriver):
    """Returns from program without loading the image."""

    def program(self, provider_uuid: str, image: str, function: str | None = None) -> None:
        if provider_uuid not in self.names or image not in self.world.images:
            super().program(provider_uuid, image, function)
        self.ask("list")


@mutant("WHF-922")
class SwallowsErrors(DevicesDriver):
    """Returns from program without an error when programming fails."""

    def program(self, provider_uuid: str, image: str, function: str | None = None) -> None:
        try:
            super().program(provider_uuid, image, function)
        except DriverError:
            return


@mutant("WHF-923")
class LeavesItselfOut(DevicesDriver):
    """Returns as programming_scope the other devices, but not the device itself."""

    def programming_scope(self, provider_uuid: str) -> Collection[str]:
        return [uuid for uuid in self.names if uuid != provider_uuid]


@mutant("WHF-923")
class NamesNoTrait(DevicesDriver):
    """Returns as function_trait a name that is not a trait."""

    def function_trait(self, provider_uuid: str, function: str) -> str:
        trait = super().function_trait(provider_uuid, function)
        return trait if function == "before" else function


@mutant("WHF-931")
class IsAlwaysClean(DevicesDriver):
    """Returns True from is_clean for every provider and time."""

    def is_clean(self, provider_uuid: str, since: datetime) -> bool:
        return True


@mutant("WHF-932")
class TakesFreeForClean(DevicesDriver):
    """Returns True from is_clean for every device that is not busy."""

    def is_clean(self, provider_uuid: str, since: datetime) -> bool:
        facts = self.devices.get(self.names.get(provider_uuid, ""))
        return facts is not None and not facts["busy"]


@mutant("WHF-932")
class TakesOnceCleanedForClean(DevicesDriver):
    """Returns True from is_clean for a free device that was cleaned before ``since``, too."""

    def is_clean(self, provider_uuid: str, since: datetime) -> bool:
        facts = self.devices.get(self.names.get(provider_uuid, ""), {})
        return bool(facts.get("cleaned") and not facts["busy"])


@mutant("WHF-932")
class TakesTheChangeForACleaning(DevicesDriver):
    """Returns True from is_clean for a device that it has seen become free, ignoring ``since``."""

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        devices = super().read_devices(names)
        busy = {name for name, facts in self.devices.items() if facts["busy"]}
        self.noted |= {name for name in busy & devices.keys() if not devices[name]["busy"]}
        return devices

    def is_clean(self, provider_uuid: str, since: datetime) -> bool:
        return self.names.get(provider_uuid) in self.noted


@mutant("WHF-921")
class ProgramsTheFirst(DevicesDriver):
    """Programs the first device instead of the requested one."""

    def program(self, provider_uuid: str, image: str, function: str | None = None) -> None:
        first = provider_uuid if provider_uuid not in self.names else next(iter(self.names))
        super().program(first, image, function)


@mutant("WHF-924")
class RefusesAll(DevicesDriver):
    """Raises ProgrammingRefused for each failure, also if the device may have been programmed."""

    def program(self, provider_uuid: str, image: str, function: str | None = None) -> None:
        try:
            super().program(provider_uuid, image, function)
        except DriverError as error:
            reason = str(error)
            raise ProgrammingRefused(
                driver=self.name, provider=provider_uuid, reason=reason
            ) from error
