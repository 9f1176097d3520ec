"""A backend in memory, called a world: devices, the instances that use them, and events.

A driver finds a world by the name in its configuration, and sends requests such as "show device-1".
The world answers with JSON, like a service over HTTP. It records each request, and a request can
meet a fault.
"""

import json
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, cast
from urllib.request import urlopen

from wharfinger.conformance.harness import Fault

#: The worlds of this process, by name.
WORLDS: Final[dict[str, "World"]] = {}


#: The texts of error answers.
DENIED: Final = "it is not known who asks"
FORBIDDEN: Final = "it is not allowed"
_SAID: Final[dict[Fault | None, str]] = {
    Fault.ERROR: "try again later",
    Fault.DENIED: DENIED,
    Fault.FORBIDDEN: FORBIDDEN,
}


#: The traits of new devices; each device takes the next entry.
_APIS: Final = (
    ("HW_GPU_API_VULKAN",),
    ("HW_GPU_API_VULKAN", "HW_GPU_API_DXVA"),
    ("HW_GPU_API_DXVA",),
)


class Refused(Exception):
    """The request is wrong: there is no such device, image or path."""


class SessionOver(Exception):
    """The session of the request is no longer valid, since the backend was restarted."""


@dataclass(frozen=True)
class Device:
    """The state of a device: ``reserved`` units are for itself, instances use ``used`` units."""

    units: int = 4
    used: int = 0
    reserved: int = 1
    traits: tuple[str, ...] = ("HW_GPU_API_VULKAN",)
    function: str | None = "before"
    busy: bool = False
    cleaned: str | None = None


@dataclass
class World:
    """A backend with devices, whose names begin with ``prefix``. A harness changes them."""

    prefix: str
    devices: dict[str, Device] = field(default_factory=dict)
    pulled: dict[str, Device] = field(default_factory=dict)
    #: The uuid of the hardware.
    uuid: str = "8f7c2ad4-5b2e-4e3c-9d53-6a1d3e0c7b91"
    #: The units that each consumer uses, by consumer and by device.
    uses: dict[str, dict[str, int]] = field(default_factory=dict)
    #: The functions of images, by uuid.
    images: dict[str, str] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    #: Returns the allocations of a provider in Placement, for drivers that read them directly.
    allocations: Callable[[str], Mapping[str, Any]] = lambda _uuid: {}

    def __post_init__(self) -> None:
        self._lock = threading.RLock()
        self._events: list[str] = []
        self._sessions = 0
        self._known_from = 1
        self._made = 0
        self._at: int | None = None
        self._fault: Fault | None = None
        self._over = threading.Event()
        #: The last answer to each request.
        self._answers: dict[str, str] = {}
        #: Late answers, each with the function that gets it.
        self._late: list[tuple[Callable[[str], None], str]] = []

    @staticmethod
    def found(name: str) -> "World":
        """Return the world with this name, in this process or in the one that serves it."""
        if name in WORLDS:
            return WORLDS[name]
        return cast(World, RemoteWorld(**json.loads((Path(name) / "served.json").read_text())))

    # Changes by the harness.

    def reset(self, count: int) -> None:
        """Replace all devices by ``count`` new ones, and forget events and answers."""
        with self._lock:
            self.devices, self.pulled, self.uses, self.images = {}, {}, {}, {}
            self._made, self._events = 0, []
            self._answers, self._late = {}, []
            self.expect(None, None)
        for _ in range(count):
            self.add()

    def add(self) -> str:
        """Add a device with a new name; its units and traits differ from those of the last one."""
        with self._lock:
            name = f"{self.prefix}{self._made}"
            size = self._made % len(_APIS)
            self._made += 1
            self._put(name, Device(units=4 + 2 * size, traits=_APIS[size]))
            return name

    def pull(self, name: str) -> None:
        """Remove a device."""
        with self._lock:
            self.pulled[name] = self.devices.pop(name)
            self._events.append(name)

    def put_back(self, name: str) -> None:
        """Add a removed device again, as it was."""
        with self._lock:
            self._put(name, self.pulled.pop(name))

    def change(self, name: str, **changes: Any) -> None:
        """Change fields of a device."""
        with self._lock:
            self._put(name, replace(self.devices[name], **changes))

    def restart(self) -> None:
        """End all sessions, as a restart of the backend does."""
        with self._lock:
            self._known_from = self._sessions + 1

    def _put(self, name: str, device: Device) -> None:
        self.devices[name] = device
        self._events.append(name)

    # Requests of drivers.

    def expect(self, at: int | None, fault: Fault | None) -> None:
        """Break the requests from now on, as ``Harness.expect`` describes."""
        with self._lock:
            self._over.set()
            self._over = threading.Event()
            self._at, self._fault = at, fault
            self.calls = []
            late, self._late = self._late, []
        for take, answer in late:
            take(answer)

    def request(
        self,
        session: int | None,
        words: str,
        timeout: float | None,
        take_late: Callable[[str], None] | None = None,
    ) -> str:
        """Return the answer to a request as JSON. ``take_late`` gets an answer after the time-out.

        Raise ConnectionError if the connection fails, TimeoutError after the time-out, SessionOver
        for an old session, and Refused for a wrong request.
        """
        with self._lock:
            meets = self._fault if self._at in (None, len(self.calls)) else None
            over = self._over
            self.calls.append(words)
        if meets is Fault.RAISE:
            raise ConnectionRefusedError("no server listens")
        if meets is Fault.HANG:
            over.wait(timeout)
            raise TimeoutError("no answer")
        if meets is Fault.MISSING:
            raise Refused(f"there is nothing for {words}")
        if meets in _SAID:
            return json.dumps({"error": _SAID[meets]})
        if meets is Fault.STALE and words in self._answers:
            return self._answers[words]
        with self._lock:
            answer = json.dumps(self._answer(session, words.split(" ")))
            if words.split(" ", maxsplit=1)[0] not in ("connect", "program"):
                self._answers[words] = answer
        if meets is Fault.LATE and not over.wait(timeout):
            if take_late is not None:
                self._late.append((take_late, answer))
            raise TimeoutError("no answer")
        return answer[: len(answer) // 2] if meets is Fault.HALF else answer

    def _answer(self, session: int | None, words: list[str]) -> object:
        if words == ["connect"]:
            self._sessions += 1
            return {"session": self._sessions}
        if session is None or session < self._known_from:
            raise SessionOver
        answers: dict[str, Callable[..., object]] = {
            "list": lambda: [*self.devices],
            "show": lambda name: vars(self.devices[name]),
            "events": lambda since="0": {
                "changed": self._events[int(since) :],
                "last": len(self._events),
            },
            "uses": lambda: self.uses,
            "program": self._program,
        }
        try:
            return answers[words[0]](*words[1:])
        except KeyError as error:
            raise Refused(f"there is no {error}") from error

    def _program(self, name: str, image: str) -> object:
        self.change(name, function=self.images[image])
        return {"programmed": name}

    def clean(self, name: str) -> None:
        """Clean a device of the data of its last user, and set it to free."""
        self.change(name, busy=False, cleaned=datetime.now(UTC).isoformat())


@dataclass(frozen=True)
class RemoteWorld:
    """A world in another process, which serves that world at ``url``."""

    url: str
    prefix: str

    def request(
        self,
        session: int | None,
        words: str,
        timeout: float | None,
        take_late: Callable[[str], None] | None = None,
    ) -> str:
        """Send a request to the other process, and return its answer. No answer comes late."""
        question = json.dumps({"session": session, "words": words, "timeout": timeout})
        with urlopen(self.url, question.encode()) as answer:
            told: dict[str, str] = json.load(answer)
        if "error" in told:
            raise _RAISED[told["error"]](told["reason"])
        return told["answer"]


_RAISED: Final[dict[str, type[Exception]]] = {
    one.__name__: one for one in (ConnectionRefusedError, TimeoutError, SessionOver, Refused)
}


class WorldServer(ThreadingHTTPServer):
    """Serves a world over HTTP to other processes."""

    daemon_threads = True

    def __init__(self, world: World) -> None:
        super().__init__(("127.0.0.1", 0), _Question)
        self.world: Final = world
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def write(self, directory: Path) -> None:
        """Write the URL to a file in a directory, by which ``World.found`` finds the world."""
        told = {"url": f"http://127.0.0.1:{self.server_port}", "prefix": self.world.prefix}
        (directory / "served.json").write_text(json.dumps(told))


class _Question(BaseHTTPRequestHandler):
    server: WorldServer

    def do_POST(self) -> None:
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            told = {"answer": self.server.world.request(**question)}
        except tuple(_RAISED.values()) as error:
            told = {"error": type(error).__name__, "reason": str(error)}
        with suppress(ConnectionError):  # the client may have been killed
            self.send_response_only(200)
            self.end_headers()
            self.wfile.write(json.dumps(told).encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Do not log requests."""
