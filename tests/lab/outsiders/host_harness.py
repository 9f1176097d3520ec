"""The harness of the host drivers. Its backend is a file."""

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Final
from uuid import NAMESPACE_URL, uuid5

from tests.lab.outsiders.host import READERS, UNITS
from wharfinger.conformance.harness import COMMON_FAULTS, Fault, Harness, OldLayout, Placement
from wharfinger.providers import Inventory

#: The name of the host in the configuration.
HOST: Final = "compute-7"


class HostHarness(Harness):
    """Writes a file with a host and its devices. Each device is a thing."""

    patience = 2.0
    faults = COMMON_FAULTS | {Fault.MISSING}
    count: ClassVar[int] = 3

    def __init__(self, directory: Path, placement: Placement) -> None:
        super().__init__(directory, placement)
        self.path = directory / "host.json"
        self.devices: dict[str, dict[str, Any]] = {}
        self.removed: dict[str, dict[str, Any]] = {}
        self.instances: dict[str, dict[str, int]] = {}
        self.made = 0
        self.lock = threading.Lock()
        self.at: int | None = None
        self.fault: Fault | None = None
        self.over = threading.Event()
        self.read: list[str] = []

    def start(self) -> None:
        READERS[str(self.path)] = self.reader

    def stop(self) -> None:
        self.over.set()
        READERS.pop(str(self.path), None)

    def restart(self) -> None:
        self.path.unlink()
        self.write()

    def configuration(self, instance: str) -> str:
        return f"[DEFAULT]\nhost = {HOST}\n[{instance}]\npath = {self.path}\n"

    def reset(self) -> None:
        self.devices, self.removed, self.instances, self.made = {}, {}, {}, 0
        for _ in range(self.count):
            self.add()

    def things(self) -> Sequence[str]:
        return [self.name(address) for address in self.devices]

    def name(self, address: str) -> str:
        return f"{HOST}_pci_{address}"

    def address(self, thing: str) -> str:
        return thing.removeprefix(f"{HOST}_pci_")

    def add(self) -> str:
        address = f"{self.made}:00.0"
        self.made += 1
        uuid = str(uuid5(NAMESPACE_URL, f"serial {self.made}"))
        self.devices[address] = self.new_device(uuid)
        self.write()
        return self.name(address)

    def new_device(self, uuid: str) -> dict[str, Any]:
        return {"uuid": uuid, "units": 8, "traits": ["HW_GPU_API_VULKAN"], "state": "ok"}

    def remove(self, thing: str) -> None:
        address = self.address(thing)
        self.removed[address] = self.devices.pop(address)
        self.write()

    def put_back(self, thing: str) -> None:
        address = self.address(thing)
        self.devices[address] = self.removed.pop(address)
        self.write()

    def make_busy(self, thing: str) -> None:
        self.devices[self.address(thing)]["state"] = "resetting"
        self.write()

    def make_free(self, thing: str) -> None:
        self.devices[self.address(thing)]["state"] = "ok"
        self.write()

    def write(self) -> None:
        """Replace the file by a new one, atomically."""
        new = self.path.with_suffix(".new")
        host = {"cpus": 8, "memory": 32768, "traits": ["HW_CPU_X86_AVX2"]}
        text = {"host": host, "devices": self.devices, "instances": self.instances}
        new.write_text(json.dumps(text))
        new.replace(self.path)

    # The driver reads the file only through this method.

    def reader(self, path: Path, deadline: float) -> str:
        with self.lock:
            meets = self.fault if self.at in (None, len(self.read)) else None
            over = self.over
            self.read.append(f"read {path.name}")
        match meets:
            case Fault.RAISE:
                raise ConnectionResetError("the file server is away")
            case Fault.HANG:
                over.wait(deadline)
                raise TimeoutError("the file server does not answer")
            case Fault.MISSING:
                raise FileNotFoundError("the file server has no such file")
            case Fault.DENIED:
                raise PermissionError("the file may not be read")
            case Fault.ERROR:
                return '{"error": "stale file handle"}'
        text = path.read_text()
        return text[: len(text) // 2] if meets is Fault.HALF else text

    def expect(self, at: int | None = None, fault: Fault | None = None) -> None:
        with self.lock:
            self.over.set()
            self.over = threading.Event()
            self.at, self.fault, self.read = at, fault, []

    @property
    def calls(self) -> Sequence[str]:
        return tuple(self.read)

    def use_old_layout(self) -> OldLayout:
        one, two, *_ = self.devices
        first, second = (str(uuid5(NAMESPACE_URL, f"instance {number}")) for number in (1, 2))
        self.instances = {first: {one: 1}, second: {one: 1, two: 2}}
        self.write()
        return OldLayout(
            inventories={
                "VCPU": Inventory(total=8, max_unit=8, allocation_ratio=16.0),
                UNITS: Inventory(total=24, max_unit=24),
            },
            allocations={first: {"VCPU": 2, UNITS: 1}, second: {"VCPU": 1, UNITS: 3}},
        )
