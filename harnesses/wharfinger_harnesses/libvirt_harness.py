"""The libvirt driver's harness: libvirt's own test driver, with a host that a file describes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final
from uuid import NAMESPACE_URL, uuid5

from wharfinger.conformance.harness import Expected, Fault, Harness, OldLayout, Placement
from wharfinger.providers import Inventory
from wharfinger_harnesses.libvirt_calls import Calls
from wharfinger_harnesses.libvirt_host import (
    CAPACITIES,
    CPUS,
    DOMAIN_CPUS,
    DOMAIN_MEMORY_MB,
    MEMORY_MB,
    OFFERED,
    OTHER,
    Gpu,
    host_xml,
)

NODE: Final = "conformance-gpu-host"
#: The number of GPUs after a reset, besides the one that always stays.
_GPUS: Final = 2
#: The trait that the configuration gives to the enabled mdev type.
_TRAIT: Final = "CUSTOM_VGPU_T4_2Q"
#: The number of further mdevs that every second GPU can have.
_MORE: Final = 4
#: Seconds after which the driver gives up a call.
_TIMEOUT: Final = 4.0


class LibvirtHarness(Harness):
    """A host with GPUs. Each GPU except the first is a thing."""

    patience = 1.5 * _TIMEOUT
    faults = frozenset(Fault) - {Fault.FORBIDDEN}  # the same as DENIED here

    def __init__(self, directory: Path, placement: Placement) -> None:
        super().__init__(directory, placement)
        self._path: Final = directory / "host.xml"
        self._calls: Final = Calls()
        #: Always stays, since the driver raises if no device offers the configured type.
        self._first: Final = Gpu(number=1)
        self._numbers = self._first.number
        self._gpus: dict[str, Gpu] = {}
        self._removed: dict[str, Gpu] = {}
        self._domains: Mapping[str, Sequence[str]] = {}

    def start(self) -> None:
        self._calls.attach()
        self.reset()

    def stop(self) -> None:
        self._calls.detach()

    def reset(self) -> None:
        self.expect()
        self._numbers = self._first.number
        self._gpus, self._removed, self._domains = {}, {}, {}
        self.grow(_GPUS)

    def configuration(self, instance: str) -> str:
        return self._configuration(instance, NODE, self._path)

    def second_host(self, instance: str) -> str:
        path = self.directory / "second.xml"
        path.write_text(host_xml([self._first, _gpu(self._first.number + 1)], {}))
        return self._configuration(instance, f"{NODE}-2", path)

    def _configuration(self, instance: str, node: str, path: Path) -> str:
        return (
            f"[{instance}]\n"
            f"connection_uri = test://{path}\n"
            f"timeout = {_TIMEOUT}\n"
            f"hypervisor_hostname = {node}\n"
            f"enabled_mdev_types = {OFFERED}\n"
            "\n"
            f"[{instance}:{OFFERED}]\n"
            f"traits = {_TRAIT}\n"
        )

    def things(self) -> Sequence[str]:
        return tuple(self._gpus)

    def add(self) -> str:
        self.grow(1)
        return list(self._gpus)[-1]

    def grow(self, count: int) -> None:
        for _ in range(count):
            self._numbers += 1
            gpu = _gpu(self._numbers)
            self._gpus[_thing(gpu)] = gpu
        self._write()

    def remove(self, thing: str) -> None:
        self._removed[thing] = self._gpus.pop(thing)
        self._write()

    def put_back(self, thing: str) -> None:
        self._gpus[thing] = self._removed.pop(thing)
        self._write()

    def make_busy(self, thing: str) -> None:
        # With an mdev of another type, a GPU can have none of the enabled type.
        self._hold(thing, OTHER, 1)

    def make_free(self, thing: str) -> None:
        self._hold(thing, OFFERED, 0)

    def expected(self) -> Mapping[str, Expected]:
        return {
            thing: Expected({"VGPU": gpu.capacity}, frozenset({_TRAIT}))
            for thing, gpu in self._gpus.items()
            if gpu.mdev_type == OFFERED
        }

    def change(self, thing: str) -> None:
        gpu = self._gpus[thing]
        self._gpus[thing] = replace(gpu, capacity=gpu.capacity + _MORE)
        self._write()

    def use(self, thing: str) -> None:
        self._hold(thing, OFFERED, self._gpus[thing].count + 1)

    def restart(self) -> None:
        """Do nothing: libvirt's test driver only reads the file."""

    def expect(self, at: int | None = None, fault: Fault | None = None) -> None:
        self._calls.expect(at, fault)

    def forget(self) -> None:
        self._calls.forget()

    @property
    def calls(self) -> Sequence[str]:
        return self._calls.made

    def use_old_layout(self) -> OldLayout:
        """Let two domains use vGPUs; return the layout that nova published before Stein."""
        one, two = self.things()[:_GPUS]
        self._hold(one, OFFERED, 1)
        self._hold(two, OFFERED, 2)
        (here,), (there, other) = self._gpus[one].mdevs, self._gpus[two].mdevs
        self._domains = {_consumer(0): (here, there), _consumer(1): (other,)}
        self._write()
        return OldLayout(
            inventories=self._root_before(),
            allocations={
                consumer: {
                    "VCPU": DOMAIN_CPUS,
                    "MEMORY_MB": DOMAIN_MEMORY_MB,
                    "VGPU": len(mdevs),
                }
                for consumer, mdevs in self._domains.items()
            },
            uses={
                _consumer(0): {one: {"VGPU": 1}, two: {"VGPU": 1}},
                _consumer(1): {two: {"VGPU": 1}},
            },
        )

    def _root_before(self) -> dict[str, Inventory]:
        vgpus = sum(gpu.capacity for gpu in (self._first, *self._gpus.values()))
        return {
            "VCPU": Inventory(total=CPUS, max_unit=CPUS, allocation_ratio=4.0),
            "MEMORY_MB": Inventory(total=MEMORY_MB, max_unit=MEMORY_MB, reserved=512),
            "VGPU": Inventory(total=vgpus, max_unit=vgpus),
        }

    def _hold(self, thing: str, mdev_type: str, count: int) -> None:
        self._gpus[thing] = replace(self._gpus[thing], mdev_type=mdev_type, count=count)
        self._write()

    def _write(self) -> None:
        # A driver in another thread may be reading the file.
        new = self._path.with_suffix(".new")
        new.write_text(host_xml([self._first, *self._gpus.values()], self._domains))
        new.replace(self._path)


def _gpu(number: int) -> Gpu:
    return Gpu(number=number, capacity=CAPACITIES[OFFERED] + _MORE * (number % 2))


def _thing(gpu: Gpu) -> str:
    return f"{NODE}_{gpu.name}"


def _consumer(number: int) -> str:
    return str(uuid5(NAMESPACE_URL, f"{NODE}/consumer/{number}"))
