"""Mutants that program wrongly, or return a wrong current_function (WHF-925 to 929 and others)."""

from collections.abc import Sequence
from typing import ClassVar
from uuid import NAMESPACE_URL, uuid5

from tests.lab.conformance.honest import DevicesDriver, Facts
from tests.lab.conformance.mutants import mutant
from wharfinger.exceptions import BackendError
from wharfinger.providers import Inventory, ProviderTree


@mutant("WHF-925")
class EchoesWhatItLoaded(DevicesDriver):
    """Returns the function that it has loaded last, also if the device has another one."""

    def program(self, provider_uuid: str, image: str, function: str | None = None) -> None:
        super().program(provider_uuid, image, function)
        self.loaded = {**getattr(self, "loaded", {}), provider_uuid: function}

    def current_function(self, provider_uuid: str) -> str | None:
        held = super().current_function(provider_uuid)
        return getattr(self, "loaded", {}).get(provider_uuid, held)


@mutant("WHF-925")
class EchoesWhatAnyLoaded(DevicesDriver):
    """Returns the function that any instance of this process has loaded last."""

    loaded: ClassVar[dict[tuple[str, str], str | None]] = {}

    def program(self, provider_uuid: str, image: str, function: str | None = None) -> None:
        super().program(provider_uuid, image, function)
        self.loaded[str(id(self.world)), provider_uuid] = function

    def current_function(self, provider_uuid: str) -> str | None:
        held = super().current_function(provider_uuid)
        return self.loaded.get((str(id(self.world)), provider_uuid), held)


@mutant("WHF-926")
class EchoesAJobThatFailed(DevicesDriver):
    """Returns the requested function after program has failed."""

    def program(self, provider_uuid: str, image: str, function: str | None = None) -> None:
        self.unknown: dict[str, str | None] = {provider_uuid: function}
        super().program(provider_uuid, image, function)
        self.unknown = {}

    def current_function(self, provider_uuid: str) -> str | None:
        held = super().current_function(provider_uuid)
        return getattr(self, "unknown", {}).get(provider_uuid, held)


@mutant("WHF-926")
class EchoesAnImageThatWasRefused(DevicesDriver):
    """Returns the requested function after the backend has answered "try again later"."""

    def program(self, provider_uuid: str, image: str, function: str | None = None) -> None:
        try:
            super().program(provider_uuid, image, function)
        except BackendError as error:
            if "later" in str(error):
                self.there: dict[str, str | None] = {provider_uuid: function}
            raise

    def current_function(self, provider_uuid: str) -> str | None:
        held = super().current_function(provider_uuid)
        return getattr(self, "there", {}).get(provider_uuid, held)


@mutant("WHF-927")
class ProgramsByTheSlot(DevicesDriver):
    """Programs the device that is now in the slot in which it first saw the requested one."""

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        devices = super().read_devices(names)
        slots: dict[str, int] = getattr(self, "slots", {})
        self.slots = {name: slots.get(name, at) for at, name in enumerate(devices)}
        return devices

    def program(self, provider_uuid: str, image: str, function: str | None = None) -> None:
        devices = [*self.devices]
        slot = self.slots.get(self.names.get(provider_uuid, ""), len(devices))
        meant = {name: uuid for uuid, name in self.names.items()}
        if slot < len(devices):
            provider_uuid = meant[devices[slot]]
        super().program(provider_uuid, image, function)


@mutant("WHF-921")
class ProgramsTwo(DevicesDriver):
    """Programs the last device, too, when it programs the first one."""

    def program(self, provider_uuid: str, image: str, function: str | None = None) -> None:
        super().program(provider_uuid, image, function)
        first, *_, last = self.devices
        if self.names[provider_uuid] == first:
            self.ask(f"program {last} {image}")


@mutant("WHF-925")
class LoadsNothingTwice(DevicesDriver):
    """Does not load an image that it has loaded into the device before."""

    def program(self, provider_uuid: str, image: str, function: str | None = None) -> None:
        if (provider_uuid, image) not in getattr(self, "loaded", set()):
            super().program(provider_uuid, image, function)
            self.loaded = {*getattr(self, "loaded", set()), (provider_uuid, image)}


@mutant("WHF-928")
class EchoesWhileTheBackendIsAway(DevicesDriver):
    """Returns the function that it has loaded last if the backend does not answer."""

    def program(self, provider_uuid: str, image: str, function: str | None = None) -> None:
        super().program(provider_uuid, image, function)
        self.loaded = {**getattr(self, "loaded", {}), provider_uuid: function}

    def current_function(self, provider_uuid: str) -> str | None:
        try:
            return super().current_function(provider_uuid)
        except BackendError:
            if provider_uuid not in getattr(self, "loaded", {}):
                raise
            function: str | None = self.loaded[provider_uuid]
            return function


@mutant("WHF-925")
class SaysTheNameThatWasAsked(DevicesDriver):
    """Returns the requested name of a function in place of the name that the backend has."""

    def program(self, provider_uuid: str, image: str, function: str | None = None) -> None:
        super().program(provider_uuid, image, function)
        held = super().current_function(provider_uuid)
        self.wanted = {**getattr(self, "wanted", {}), held: function}

    def current_function(self, provider_uuid: str) -> str | None:
        held = super().current_function(provider_uuid)
        function: str | None = getattr(self, "wanted", {}).get(held, held)
        return function


@mutant("WHF-929")
class NamesPortsByFunction(DevicesDriver):
    """Publishes a port of each device, with the device's function in its name."""

    def port(self, name: str, facts: Facts) -> str:
        return f"{name}:{facts['function']}"

    def gone(self, tree: ProviderTree, node: str) -> list[str]:
        ports = {self.port(name, facts) for name, facts in self.devices.items()}
        return [name for name in super().gone(tree, node) if name not in ports]

    def remove(self, tree: ProviderTree, name: str) -> None:
        if tree.exists(name):  # a port goes with its device
            super().remove(tree, name)

    def describe(self, tree: ProviderTree, name: str, facts: Facts) -> None:
        super().describe(tree, name, facts)
        port = self.port(name, facts)
        if not tree.exists(port):
            self.new_port(tree, name, facts)
        tree.update_inventory(port, {"CUSTOM_LAB_PORT": Inventory(total=1, max_unit=1)})
        if facts["busy"]:
            self.reserve(tree, port)

    def new_port(self, tree: ProviderTree, name: str, facts: Facts) -> None:
        tree.new_child(self.port(name, facts), name)


@mutant("WHF-929")
class NewPortForEachFunction(NamesPortsByFunction):
    """Publishes a port of each device, with a uuid that depends on the device's function."""

    def port(self, name: str, facts: Facts) -> str:
        return f"{name}:port"

    def uuid(self, name: str, facts: Facts) -> str:
        return str(uuid5(NAMESPACE_URL, f"{name}:{facts['function']}"))

    def describe(self, tree: ProviderTree, name: str, facts: Facts) -> None:
        port = self.port(name, facts)
        if tree.exists(port) and tree.data(port).uuid != self.uuid(name, facts):
            tree.remove(port)
        super().describe(tree, name, facts)

    def new_port(self, tree: ProviderTree, name: str, facts: Facts) -> None:
        tree.new_child(self.port(name, facts), name, uuid=self.uuid(name, facts))
