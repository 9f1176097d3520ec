"""A fixture that runs a real Cyborg for tests."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import requests

from wharfinger_harnesses.cyborg_rows import DeviceTables
from wharfinger_harnesses.daemons import TIMEOUT, LabError
from wharfinger_harnesses.openstack import PAUSE, OpenStackService, Options

HOST = "fpga-host-1"
#: Further headers of a request by nova.
_SERVICE = {"X-Service-Roles": "service"}

T = TypeVar("T")

#: A device or a deployable in the format of cyborg_hardware.py.
Part = Mapping[str, Any]


def deployable(
    name: str = "r0",
    resource_class: str = "FPGA",
    accelerators: int = 1,
    traits: Sequence[str] = ("CUSTOM_FPGA_LAB",),
) -> dict[str, Any]:
    """Return a deployable for ``device``."""
    return {
        "name": name,
        "resource_class": resource_class,
        "accelerators": accelerators,
        "traits": [*traits],
    }


def device(bus: str, *deployables: Part, **more: Any) -> dict[str, Any]:
    """Return a device in the format of cyborg_hardware.py."""
    return {"bus": bus, "deployables": [*(deployables or [deployable()])], **more}


class Cyborg(OpenStackService):
    """Runs Cyborg's conductor and API, and sends requests to the API.

    With ``placement``, a URL, it also runs an agent for each host. Placement must then have a root
    provider with the name of each host. Most methods raise LabError if a request fails.
    """

    name = "cyborg"
    service_program = Path(__file__).with_name("cyborg_service.py")
    mounted_at = "/accelerator/v2"
    tables: DeviceTables

    def __init__(
        self,
        placement: str | None = None,
        options: Options | None = None,
        *,
        host: str = HOST,
        hosts: Sequence[str] = (),
        hardware: Sequence[Part] = (),
        reports_every: float | None = None,
    ) -> None:
        self._hosts = hosts or (host,)
        self.host = self._hosts[0]
        agents = {} if placement is None else {"placement": {"endpoint_override": placement}}
        super().__init__({"DEFAULT": {"host": self.host}}, agents, options or {})
        self._initial = hardware
        self._reports_every = reports_every

    def _setUp(self) -> None:
        super()._setUp()
        self.tables = DeviceTables(self._engine)
        self._write("hardware.json", {host: [] for host in self._hosts})
        self._write("images.json", {})
        self.set_hardware(*self._initial)
        every = [] if self._reports_every is None else ["--reports-every", str(self._reports_every)]
        self.serve(*every)

    # Requests to Cyborg.

    def create_profile(self, name: str, *groups: Mapping[str, str]) -> dict[str, Any]:
        """Create a device profile, and return it."""
        created: dict[str, Any] = self._succeed(
            "POST", "/device_profiles", [{"name": name, "groups": groups}]
        )
        return created

    def deployables(self) -> list[dict[str, Any]]:
        """Return all deployables."""
        described: list[dict[str, Any]] = self._succeed("GET", "/deployables")["deployables"]
        return described

    def deployable(self, bus: str, name: str = "r0", host: str | None = None) -> dict[str, Any]:
        """Return a deployable of a device. Raises LabError if Cyborg lacks it."""
        named = f"{host or self.host}_{bus}_{name}"
        for described in self.deployables():
            if described["name"] == named:
                return described
        raise LabError(f"Cyborg knows no deployable {named}")

    def program(self, deployable_uuid: str, image: str) -> requests.Response:
        """Ask Cyborg to program a deployable; return the answer, even an error."""
        body = [{"op": "replace", "path": "/program", "value": [{"image_uuid": image}]}]
        return self.ask("PATCH", f"/deployables/{deployable_uuid}/program", body)

    def bind(
        self,
        provider_uuid: str,
        host: str | None = None,
        instance: str | None = None,
        **accel: str,
    ) -> str:
        """Begin to bind a new accelerator request to a provider; return the request's uuid."""
        name = f"lab-{uuid4()}"
        wanted = {f"accel:{key}": value for key, value in accel.items()}
        self.create_profile(name, {"resources:FPGA": "1", **wanted})
        made = self._succeed("POST", "/accelerator_requests", {"device_profile_name": name})
        uuid = str(made["arqs"][0]["uuid"])
        fields = {
            "hostname": host or self.host,
            "device_rp_uuid": provider_uuid,
            "instance_uuid": instance or str(uuid4()),
        }
        changes = [
            {"op": "add", "path": f"/{field}", "value": value} for field, value in fields.items()
        ]
        self._succeed("PATCH", "/accelerator_requests", {uuid: changes}, **_SERVICE)
        return uuid

    def request(self, uuid: str) -> dict[str, Any]:
        """Return the accelerator request with this uuid."""
        described: dict[str, Any] = self._succeed("GET", f"/accelerator_requests/{uuid}")
        return described

    def wait_for_request(self, uuid: str, state: str) -> dict[str, Any]:
        """Wait for a state of an accelerator request; return the request."""
        return self._wait(
            f"accelerator request {uuid} is not {state}",
            lambda: found if (found := self.request(uuid))["state"] == state else None,
        )

    def delete_request(self, uuid: str) -> None:
        """Delete an accelerator request."""
        self._succeed("DELETE", f"/accelerator_requests?arqs={uuid}", **_SERVICE)

    # The hardware.

    def set_hardware(self, *devices: Part, host: str | None = None) -> None:
        """Replace the devices that the agent of a host finds at its next report."""
        hardware = self._read("hardware.json")
        hardware[host or self.host] = devices
        self._write("hardware.json", hardware)

    def hardware(self, host: str | None = None) -> list[dict[str, Any]]:
        """Return the simulated devices of a host."""
        devices: list[dict[str, Any]] = self._read("hardware.json")[host or self.host]
        return devices

    def add_device(
        self, bus: str, *deployables: Part, host: str | None = None, **more: Any
    ) -> None:
        """Add a simulated device to a host."""
        self.set_hardware(*self.hardware(host), device(bus, *deployables, **more), host=host)

    def remove_device(self, bus: str, host: str | None = None) -> None:
        """Remove a simulated device from a host."""
        others = [found for found in self.hardware(host) if found["bus"] != bus]
        self.set_hardware(*others, host=host)

    def change_device(self, bus: str, host: str | None = None, **fields: Any) -> None:
        """Set these keys of a simulated device."""
        changed = [
            {**found, **fields} if found["bus"] == bus else found for found in self.hardware(host)
        ]
        self.set_hardware(*changed, host=host)

    def resize(
        self, bus: str, accelerators: int, name: str = "r0", host: str | None = None
    ) -> None:
        """Set the number of accelerators of a simulated deployable."""
        (parts,) = (found["deployables"] for found in self.hardware(host) if found["bus"] == bus)
        resized = [
            {**part, "accelerators": accelerators} if part["name"] == name else part
            for part in parts
        ]
        self.change_device(bus, host, deployables=resized)

    def discover(self, host: str | None = None) -> None:
        """Let the agent of a host report its devices. Raises LabError if it fails."""
        self._control(f"discover?host={host or self.host}")

    @contextmanager
    def impatient(self, seconds: int = 1) -> Iterator[None]:
        """In the block, shorten the timeout of Cyborg's RPC calls."""
        self._control(f"patience?seconds={seconds}")
        try:
            yield
        finally:
            self._control("patience?seconds=60")

    def _control(self, path: str) -> None:
        answer = requests.post(f"{self.root}/lab/{path}", timeout=TIMEOUT)
        if not answer.ok:
            raise LabError(f"{path}: {answer.text}")

    # Programming.

    def create_image(self, function: str | None = None) -> str:
        """Create an image in Glance; return its uuid."""
        uuid = str(uuid4())
        self._write("images.json", {**self._read("images.json"), uuid: function})
        return uuid

    def programmed(self, bus: str, host: str | None = None) -> str | None:
        """Return the uuid of the image in a device, or None without one."""
        with suppress(FileNotFoundError):
            return (self.directory / "holds" / self._device(bus, host)).read_text()
        return None

    def programmings(self, bus: str, host: str | None = None) -> list[dict[str, Any]]:
        """Return the events of a device's programmings, the oldest first."""
        return [
            event
            for event in self._lines("programmings")
            if (event["bus"], event["host"]) == (bus, host or self.host)
        ]

    def underway(self, bus: str, host: str | None = None) -> list[dict[str, Any]]:
        """Return the start events of a device's programmings in progress."""
        events = self.programmings(bus, host)
        over = {event["programming"] for event in events if event["event"] == "end"}
        return [
            event
            for event in events
            if event["programming"] not in over and event["process"] == self.process.pid
        ]

    def wait_for_programming(
        self, bus: str, host: str | None = None, count: int = 1
    ) -> dict[str, Any]:
        """Wait until a device has ``count`` programmings underway; return the last start event."""
        begun = self._wait(
            f"{self._device(bus, host)} is not being programmed",
            lambda: found if len(found := self.underway(bus, host)) >= count else None,
        )
        return begun[-1]

    def wait_until_programmed(self, bus: str, host: str | None = None) -> dict[str, Any]:
        """Wait until the last programming of a device has ended; return its end event."""

        def ended() -> dict[str, Any] | None:
            events = self.programmings(bus, host)
            done = events and events[-1]["event"] == "end" and not self.underway(bus, host)
            return events[-1] if done else None

        return self._wait(f"{self._device(bus, host)} has not been programmed", ended)

    def go(self, bus: str, host: str | None = None) -> None:
        """Let one held programming of a device continue, now or later."""
        gos = self.directory / "go" / self._device(bus, host)
        gos.mkdir(exist_ok=True)
        (gos / uuid4().hex).touch()

    def _device(self, bus: str, host: str | None) -> str:
        return f"{host or self.host}_{bus}"

    # Events, files and waits.

    def told_to_nova(self) -> list[dict[str, Any]]:
        """Return the external events that Cyborg has sent to nova."""
        return self._lines("nova")

    def wait_for_nova(self, request_uuid: str) -> dict[str, Any]:
        """Wait until nova has an event about an accelerator request; return the event."""

        def told() -> dict[str, Any] | None:
            events = [event for event in self.told_to_nova() if event["tag"] == request_uuid]
            return events[-1] if events else None

        return self._wait(f"nova received no event of {request_uuid}", told)

    def _read(self, name: str) -> Any:
        return json.loads((self.directory / name).read_text())

    def _write(self, name: str, content: Any) -> None:
        # Cyborg may read the file at any moment.
        new = self.directory / f"{name}.new"
        new.write_text(json.dumps(content))
        new.replace(self.directory / name)

    def _lines(self, name: str) -> list[dict[str, Any]]:
        with suppress(FileNotFoundError):
            return [json.loads(line) for line in (self.directory / name).read_text().splitlines()]
        return []

    def _wait(self, what_is_wrong: str, look: Callable[[], T | None]) -> T:
        deadline = time.monotonic() + TIMEOUT
        while (found := look()) is None:
            if time.monotonic() > deadline:
                raise LabError(self._tell(what_is_wrong))
            time.sleep(PAUSE)
        return found
