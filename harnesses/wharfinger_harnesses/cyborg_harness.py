"""The Cyborg driver's harness: a real Cyborg with simulated devices."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Final
from uuid import NAMESPACE_DNS, NAMESPACE_URL, uuid3, uuid5

from wharfinger.conformance.harness import Expected, Placement
from wharfinger.driver import unsupported
from wharfinger.providers import Inventory
from wharfinger_harnesses.cyborg import Cyborg, Part, deployable, device
from wharfinger_harnesses.cyborg_rows import Rows, copied
from wharfinger_harnesses.daemons import LabError
from wharfinger_harnesses.service_harness import ServiceHarness

HOST: Final = "conformance-fpga-host"
_SECOND: Final = "second-fpga-host"
_ROOT: Final = str(uuid5(NAMESPACE_URL, HOST))
_REGION: Final = "r0"
#: The function of each FPGA after a reset.
_FUNCTION: Final = "0A00"
#: The number of FPGAs after a reset.
_FPGAS: Final = 2
#: Never removed, since the driver takes an empty list of devices for an error.
_GPU: Final = device("00", deployable(_REGION, "PGPU", traits=["CUSTOM_GPU_LAB"]), kind="GPU")
#: The most devices. With many more, Cyborg answers after the driver's time-out.
_MOST: Final = 65
_CONFIGURATION: Final = """\
[{instance}]
auth_type = none
endpoint = {url}
timeout = 2
program_timeout = 4
"""


@dataclass(frozen=True, slots=True)
class _Model:
    part: Part
    rows: Rows
    provider: str
    inventories: Mapping[str, Inventory]
    traits: frozenset[str]


class CyborgHarness(ServiceHarness):
    """A host with a GPU and FPGAs. ``things`` lists FPGAs."""

    changes = unsupported("Cyborg does not update a device that it has published")
    growth = 16

    def __init__(self, directory: Path, placement: Placement) -> None:
        super().__init__(directory, placement)
        self._functions: Final = (f"{number:04X}" for number in count(0x0A01))
        self._numbers = count()
        self._removed: dict[str, Part] = {}
        #: Accelerator request of each busy thing.
        self._requests: dict[str, str] = {}
        #: Function in each image.
        self._images: dict[str, str] = {}

    def start(self) -> None:
        self._have_root()  # the agent needs the root provider when it starts
        parts = [*map(_part, range(1 + _FPGAS))]
        self._cyborg = Cyborg(self.placement.url, host=HOST, hardware=parts)
        self._serve(self._cyborg)
        self._models = [*map(self._model, parts)]

    def _model(self, part: Part) -> _Model:
        client, provider = self.placement.client, _provider_uuid(part)
        return _Model(
            part,
            self._cyborg.tables.read(_thing(part)),
            provider,
            client.get_inventories(provider).inventories,
            frozenset(client.get_traits(provider).traits),
        )

    def reset(self) -> None:
        self.expect()
        self._have_root()
        for thing in [*self._requests]:
            self._end_binding(thing)
        self._cyborg.tables.clear()
        for held in (self._cyborg.directory / "holds").iterdir():
            held.unlink()
        self._numbers = count()
        self._removed.clear()
        self._cyborg.set_hardware()
        self.grow(1 + _FPGAS)

    def configuration(self, instance: str) -> str:
        return _CONFIGURATION.format(instance=instance, url=self._proxy.url)

    def second_host(self, instance: str) -> str:
        self._have_root(_SECOND)
        parts = [*map(_part, range(1 + _FPGAS))]
        # Not the same Cyborg, of which the driver would publish both hosts.
        second = Cyborg(self.placement.url, host=_SECOND, hardware=parts)
        self._open.enter_context(second)
        return _CONFIGURATION.format(instance=instance, url=second.url)

    def things(self) -> Sequence[str]:
        return [_thing(found) for found in self._cyborg.hardware() if found != _GPU]

    def add(self) -> str:
        self.grow(1)
        return self.things()[-1]

    def grow(self, count: int) -> None:
        there = self._cyborg.hardware()
        if len(there) + count > _MOST:
            raise LabError(f"{len(there) + count} devices are too many for Cyborg")
        numbers = [*islice(self._numbers, count)]
        self._cyborg.set_hardware(*there, *map(_part, numbers))
        self._cyborg.tables.write([*map(self._publish_copy, numbers)])

    def _publish_copy(self, number: int) -> Rows:
        model, part = self._models[_model_index(number)], _part(number)
        client, provider = self.placement.client, _provider_uuid(part)
        generation = client.create_provider(provider, _thing(part), _ROOT).generation
        generation = client.set_inventories(provider, generation, model.inventories)
        client.set_traits(provider, generation, model.traits)
        texts = {
            _thing(model.part): _thing(part),
            f'"bus": "{model.part["bus"]}"': f'"bus": "{part["bus"]}"',
            model.provider: provider,
        }
        return copied(model.rows, number, texts)

    def remove(self, thing: str) -> None:
        if thing in self._requests:
            self.make_free(thing)
        self._removed[thing] = self._device(thing)
        self._have_hardware(*(had for had in self._cyborg.hardware() if _thing(had) != thing))

    def put_back(self, thing: str) -> None:
        self._have_hardware(*self._cyborg.hardware(), self._removed.pop(thing))

    def make_busy(self, thing: str) -> None:
        bus = self._device(thing)["bus"]
        # Cyborg would not publish the trait of a new function.
        held = self._images.get(self._cyborg.programmed(bus) or "", _FUNCTION)
        provider = str(self._described(thing)["rp_uuid"])
        self._cyborg.change_device(bus, hold=True)
        image = self._cyborg.create_image(held)
        self._images[image] = held
        self._requests[thing] = self._cyborg.bind(provider, bitstream_id=image)
        self._cyborg.wait_for_programming(bus)
        self._cyborg.change_device(bus, hold=False)

    def make_free(self, thing: str) -> None:
        bus, request = self._device(thing)["bus"], self._requests.pop(thing)
        if self._cyborg.underway(bus):
            self._cyborg.go(bus)
            self._wait_until_bound(thing, request)
        self._cyborg.delete_request(request)

    def _wait_until_bound(self, thing: str, request: str) -> None:
        if (told := self._cyborg.wait_for_nova(request))["status"] != "completed":
            raise LabError(f"{thing} was not bound: {told}\n{self._cyborg.log()}")

    def expected(self) -> Mapping[str, Expected]:
        return {
            thing: Expected(
                {"FPGA": self._device(thing)["deployables"][0]["accelerators"]},
                frozenset({*self._device(thing)["deployables"][0]["traits"]}),
            )
            for thing in self.things()
            if thing not in self._requests
        }

    def use(self, thing: str) -> None:
        self.make_busy(thing)
        bus, request = self._device(thing)["bus"], self._requests.pop(thing)
        self._cyborg.go(bus)
        self._wait_until_bound(thing, request)

    def image(self, thing: str) -> tuple[str, str]:
        function = next(self._functions)
        image = self._cyborg.create_image(function)
        self._images[image] = function
        return image, function

    def _end_binding(self, thing: str) -> None:
        # Cyborg needs the provider, which the kit has deleted.
        provider = str(self._described(thing)["rp_uuid"])
        self.placement.client.create_provider(provider, thing, _ROOT)
        self.make_free(thing)
        self.placement.client.delete_provider(provider)

    def _have_hardware(self, *devices: Part) -> None:
        self._cyborg.set_hardware(*devices)
        self._cyborg.discover()
        known = {one["name"] for one in self._cyborg.deployables() if one["rp_uuid"]}
        if known != {*map(_thing, devices)}:
            raise LabError(f"Cyborg has found {sorted(known)}:\n{self._cyborg.log()}")

    def _device(self, thing: str) -> Part:
        (found,) = (one for one in self._cyborg.hardware() if _thing(one) == thing)
        return found

    def _described(self, thing: str) -> Part:
        return self._cyborg.deployable(self._device(thing)["bus"], _REGION)

    def _have_root(self, host: str = HOST) -> None:
        if not self.placement.client.list_providers(name=host):
            root = str(uuid5(NAMESPACE_URL, host))
            made = self.placement.client.create_provider(root, host, None)
            generation = self.placement.client.set_inventories(
                root, made.generation, {"VCPU": Inventory(total=8, max_unit=8)}
            )
            self.placement.client.set_traits(root, generation, {"OWNER_NOVA", "COMPUTE_NODE"})


def _model_index(number: int) -> int:
    # FPGAs with odd numbers are copies of number 1, those with even numbers of number 2.
    return number and 2 - number % 2


def _part(number: int) -> Part:
    if not number:
        return _GPU
    is_double = number % 2 == 0
    traits = ["CUSTOM_FPGA_LAB", *(["CUSTOM_FPGA_DOUBLE"] if is_double else [])]
    part = deployable(_REGION, accelerators=1 + is_double, traits=traits)
    return device(f"{number:02x}", part, function=_FUNCTION, reports_function=True)


def _provider_uuid(part: Part) -> str:
    # Cyborg's conductor computes the same uuid.
    return str(uuid3(NAMESPACE_DNS, _thing(part)))


def _thing(found: Part) -> str:
    return f"{HOST}_{found['bus']}_{_REGION}"
