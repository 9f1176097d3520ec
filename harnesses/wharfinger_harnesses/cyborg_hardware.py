"""Cyborg's accelerator driver `lab`: simulated devices that a file describes and controls.

The file `hardware.json` has a list of devices for each host. A device has these keys:

``bus``
    the address of the device on its host, such as "0c";
``kind``
    the type of the device in Cyborg, by default FPGA, the only type that can be programmed;
``deployables``
    deployables with ``name``, ``resource_class``, ``accelerators`` and ``traits``;
``function``
    the id of the function that the device has without an image;
``reports_function``
    whether each deployable has a trait for the function;
``programming``
    "succeeds" (the default); "fails" (the driver reports a failure); "raises" (the driver raises an
    error); "fails late" or "raises late" (with the new function in the device);
``hold``
    whether programming waits for a file in the directory `go/HOST_BUS`;
``seconds``
    the duration of programming, without the time of ``hold``.

The file `holds/HOST_BUS` has the uuid of the image in a device. The file `programmings` has a
line for each start and end of a programming.
"""

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from cyborg.accelerator.drivers.fpga.base import FPGADriver
from cyborg.common import constants
from cyborg.conf import CONF
from cyborg.objects.driver_objects.driver_attach_handle import DriverAttachHandle
from cyborg.objects.driver_objects.driver_attribute import DriverAttribute
from cyborg.objects.driver_objects.driver_controlpath_id import DriverControlPathID
from cyborg.objects.driver_objects.driver_deployable import DriverDeployable
from cyborg.objects.driver_objects.driver_device import DriverDevice

#: Seconds between two checks of whether a programming may continue.
_PAUSE = 0.02
#: The length of a uuid. Cyborg's file of an image has a name that begins with the image's uuid.
_UUID = 36


def _directory() -> Path:
    return Path(CONF.state_path)


def _read(name: str) -> Any:
    return json.loads((_directory() / name).read_text())


class LabDriver(FPGADriver):  # type: ignore[misc]
    """Accelerator driver for the simulated devices of one host."""

    VENDOR = "lab"

    def __init__(self, host: str | None = None) -> None:
        self._host = host or CONF.agent.resource_provider_name

    def discover(self) -> list[Any]:
        """Return the present devices as Cyborg's objects."""
        return [self._describe(device) for device in self._devices()]

    def program(self, controlpath_id: Mapping[str, Any], image: str) -> bool:
        """Simulate the programming of a device; return whether it succeeded."""
        bus = controlpath_id["cpid_info"]["bus"]
        (device,) = (device for device in self._devices() if device["bus"] == bus)
        facts = {"host": self._host, "bus": bus, "image": Path(image).name[:_UUID]}
        facts |= {"programming": uuid4().hex, "process": os.getpid()}
        outcome = device.get("programming", "succeeds")
        _note("start", **facts, size=Path(image).stat().st_size)
        time.sleep(device.get("seconds", 0))
        if device.get("hold"):
            _wait_for_go(_directory() / "go" / self._named(bus))
        if outcome == "succeeds" or outcome.endswith("late"):
            self._hold(bus, facts["image"])
        _note("end", **facts, outcome=outcome)
        if outcome.startswith("raises"):
            raise RuntimeError("hardware.json makes programming fail")
        return bool(outcome == "succeeds")

    def _devices(self) -> list[dict[str, Any]]:
        devices: list[dict[str, Any]] = _read("hardware.json").get(self._host, [])
        return devices

    def _named(self, bus: str) -> str:
        return f"{self._host}_{bus}"

    def _hold(self, bus: str, image: str) -> None:
        new = _directory() / "holds" / f"{self._named(bus)}.new"
        new.write_text(image)
        new.replace(new.with_suffix(""))

    def _function(self, device: Mapping[str, Any]) -> str | None:
        holds = _directory() / "holds" / self._named(device["bus"])
        function: str | None = device.get("function")
        if holds.exists():
            function = _read("images.json").get(holds.read_text())
        return function

    def _describe(self, device: Mapping[str, Any]) -> Any:
        return DriverDevice(
            vendor="1234",
            model="lab",
            type=device.get("kind", constants.DEVICE_FPGA),
            std_board_info=json.dumps({"product_id": "0001"}),
            vendor_board_info="lab",
            stub=False,
            controlpath_id=DriverControlPathID(
                cpid_type=constants.CPID_TYPE_PCI,
                cpid_info=json.dumps(_address(device["bus"], "00", 0)),
            ),
            deployable_list=[
                self._describe_deployable(device, deployable, index)
                for index, deployable in enumerate(device["deployables"], start=1)
            ],
        )

    def _describe_deployable(
        self, device: Mapping[str, Any], deployable: Mapping[str, Any], index: int
    ) -> Any:
        traits = [*deployable["traits"]]
        if device.get("reports_function") and (function := self._function(device)):
            traits.append(_function_trait(function))
        attributes = {"rc": deployable["resource_class"]}
        attributes.update((f"trait{number}", trait) for number, trait in enumerate(traits))
        kind = device.get("kind", constants.DEVICE_FPGA)
        programmable = kind == constants.DEVICE_FPGA
        return DriverDeployable(
            name=f"{self._named(device['bus'])}_{deployable['name']}",
            driver_name=self.VENDOR if programmable else f"{self.VENDOR}_{kind.lower()}",
            num_accelerators=deployable["accelerators"],
            attribute_list=[
                DriverAttribute(key=key, value=value) for key, value in attributes.items()
            ],
            attach_handle_list=[
                DriverAttachHandle(
                    attach_type=constants.AH_TYPE_TEST_PCI,
                    attach_info=json.dumps(_address(device["bus"], f"{index:02x}", number)),
                    in_use=False,
                )
                for number in range(deployable["accelerators"])
            ],
        )


def _note(event: str, **facts: Any) -> None:
    with (_directory() / "programmings").open("a") as file:
        file.write(f"{json.dumps({'event': event, 'at': time.time(), **facts})}\n")


def _wait_for_go(gos: Path) -> None:
    while True:
        for go in gos.glob("*"):
            with suppress(FileNotFoundError):
                return go.unlink()
        time.sleep(_PAUSE)


def _address(bus: str, device: str, function: int) -> dict[str, str]:
    return {"domain": "0000", "bus": bus, "device": device, "function": str(function)}


def _function_trait(function: str) -> str:
    return f"{constants.FPGA_FUNCTION_ID}_{LabDriver.VENDOR}_{function.replace('-', '')}".upper()
