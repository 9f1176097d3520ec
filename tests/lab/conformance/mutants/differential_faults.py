"""Mutants on which a fault has a lasting effect (WHF-72x)."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oslo_config import cfg

from tests.lab.conformance.honest import DevicesDriver, Facts, MachinesDriver
from tests.lab.conformance.mutants import mutant
from wharfinger.exceptions import BackendError
from wharfinger.objects import Service
from wharfinger.providers import ProviderTree


@mutant("WHF-721")
class KnowsADeviceBeforeItIsRead(DevicesDriver):
    """Reads the traits of a device once, but notes the device as known before it has them."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.known_traits: dict[str, Sequence[str]] = {}

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        devices: dict[str, Facts] = {}
        for name in names:
            is_new = name not in self.noted
            self.noted.add(name)
            facts = self.ask(f"show {name}")
            if is_new:
                self.known_traits[name] = facts["traits"]
            devices[name] = {**facts, "traits": self.known_traits.get(name, ())}
        self.noted &= {*names}
        return devices


@mutant("WHF-721")
class ForgetsWhoIsBusyInAFailedPoll(DevicesDriver):
    """Stops reserving the busy devices when a poll fails in the middle."""

    def news(self, since: str) -> tuple[set[str], str]:
        events = self.ask(f"events {since}")
        if not events["changed"]:
            return set(), str(events["last"])
        try:
            self.read()
        except BackendError:
            self.noted = {name for name, facts in self.devices.items() if facts["busy"]}
            raise
        return self.changed(set(events["changed"])), str(events["last"])

    def reserve(self, tree: ProviderTree, name: str) -> None:
        if name not in self.noted:
            super().reserve(tree, name)


@mutant("WHF-721")
class TakesTheMarkOfAFailedPoll(DevicesDriver):
    """Goes on after the last event of a failed poll, though it could not read the devices."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.heard: dict[str, str] = {}

    def news(self, since: str) -> tuple[set[str], str]:
        events = self.ask(f"events {self.heard.get(since, since)}")
        if not events["changed"]:
            return set(), str(events["last"])
        self.heard = {since: str(events["last"])}
        self.read()
        self.heard = {}
        return self.changed(set(events["changed"])), str(events["last"])


@mutant("WHF-721")
class SwallowsAFailedPoll(MachinesDriver):
    """Names no node if it cannot read the changed devices in a poll."""

    def news(self, since: str) -> tuple[set[str], str]:
        events = self.ask(f"events {since}")
        changed = set(events["changed"])
        try:
            if changed:
                self.read()
        except BackendError:
            changed = set()
        return self.changed(changed), str(events["last"])


@mutant("WHF-721")
class ForgetsARemovalOfAFailedListing(DevicesDriver):
    """Compares each list with the last one, and loses a removal if the listing fails after that."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.leaving: set[str] = set()

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        leaving = self.noted - {*names}
        self.noted = {*names}
        devices = super().read_devices(names)
        self.leaving = (self.leaving | leaving) - {*names}
        return devices

    def gone(self, tree: ProviderTree, node: str) -> list[str]:
        if not self.noted:
            return super().gone(tree, node)
        return [name for name in self.leaving if tree.exists(name)]


@mutant("WHF-721")
class GivesUpAfterThreeErrors(MachinesDriver):
    """Never reads a machine again after one error of the backend, and keeps its old facts."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.last: dict[str, Facts] = {}

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        devices: dict[str, Facts] = {}
        for name in names:
            if name in self.noted and name in self.last:
                devices[name] = self.last[name]
                continue
            try:
                devices[name] = self.ask(f"show {name}")
            except BackendError as error:
                if not isinstance(error.__cause__, OSError):
                    self.noted.add(name)
                raise
        self.last = devices
        return devices


@mutant("WHF-722")
class ReadsAnswersInTheirOrder(DevicesDriver):
    """Takes a late answer for the answer to its next request."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.mail: list[str] = []

    def came_late(self, words: str, answer: str) -> None:
        self.mail.append(answer)

    def sent(self, words: str) -> str:
        self.mail.append(super().sent(words))
        return self.mail.pop(0)


@mutant("WHF-722")
class IsOneAnswerBehind(MachinesDriver):
    """Takes a late answer for the answer to the same request when it repeats that."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.mail: dict[str, list[str]] = {}

    def came_late(self, words: str, answer: str) -> None:
        self.mail.setdefault(words, []).append(answer)

    def sent(self, words: str) -> str:
        mail = self.mail.setdefault(words, [])
        mail.append(super().sent(words))
        return mail.pop(0)


@mutant("WHF-722")
class ReadsADeviceOnlyAfterAnEvent(MachinesDriver):
    """Keeps what it has read of a machine, even if stale, until an event names the machine."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.read_at: dict[str, tuple[int, Any]] = {}

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        changed: list[str] = self.ask("events")["changed"]
        devices: dict[str, Facts] = {}
        for name in names:
            version = changed.count(name)
            if self.read_at.get(name, (0, None))[0] != version:
                self.read_at[name] = (version, self.ask(f"show {name}"))
            devices[name] = self.read_at[name][1]
        return devices


class KeepsAFile(MachinesDriver):
    """Base of drivers that keep facts about machines in a file."""

    reachable = True

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.directory = Path(conf.state_path)
        self.file = self.directory / "machines.json"


@mutant("WHF-723")
class WritesAFileByHalves(KeepsAFile):
    """Writes its file in place, and does not start if it cannot read the file."""

    def init_host(self, service: Service) -> None:
        super().init_host(service)
        self.devices = json.loads(self.file.read_text()) if self.file.exists() else {}

    def read(self) -> None:
        super().read()
        self.file.write_text(json.dumps(self.devices))


@mutant("WHF-723")
class BelievesAFileThatIsEmpty(KeepsAFile):
    """Keeps the traits of machines in a file; publishes no traits if the file is empty."""

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        devices = super().read_devices(names)
        text = self.file.read_text() if self.file.exists() else "{}"
        known = json.loads(text or "null")
        found = {} if known is None else {**{k: v["traits"] for k, v in devices.items()}, **known}
        if known != found or not text:
            self.file.write_text(json.dumps(found))
        return {name: {**one, "traits": found.get(name, ())} for name, one in devices.items()}


@mutant("WHF-723")
class LeavesALockBehind(KeepsAFile):
    """Uses a file as a lock, which stays locked when the process is killed."""

    def read(self) -> None:
        try:
            lock = os.open(self.directory / "machines.lock", os.O_CREAT | os.O_EXCL)
        except FileExistsError as error:
            raise self.failed("lock", error) from error
        try:
            super().read()
        finally:
            os.close(lock)
            (self.directory / "machines.lock").unlink()


@mutant("WHF-722")
class KeepsALateAnswer(MachinesDriver):
    """Reads a machine after an event, and takes a late answer for a newer one."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.versions: dict[str, int] = {}
        self.read_at: dict[str, tuple[int, Any]] = {}

    def came_late(self, words: str, answer: str) -> None:
        kind, _, name = words.partition(" ")
        if kind == "show":
            self.read_at[name] = (self.versions[name], json.loads(answer))

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        changed: list[str] = self.ask("events")["changed"]
        self.versions = {name: changed.count(name) for name in names}
        devices: dict[str, Facts] = {}
        for name, version in self.versions.items():
            facts = self.ask(f"show {name}") if self.is_new(name, version) else None
            if facts is not None:
                self.read_at[name] = (version, facts)
            devices[name] = self.read_at[name][1]
        return devices

    def is_new(self, name: str, version: int) -> bool:
        return self.read_at.get(name, (0, None))[0] != version


@mutant("WHF-723")
class WritesDownWhatItIsAboutToRead(KeepsAFile):
    """Reads the traits of a machine once, and notes in its file that it has done so before that."""

    def init_host(self, service: Service) -> None:
        super().init_host(service)
        self.known = json.loads(self.file.read_text()) if self.file.exists() else {}

    def read_devices(self, names: Sequence[str]) -> dict[str, Facts]:
        devices: dict[str, Facts] = {}
        for name in names:
            if name not in self.known:
                self.write({**self.known, name: []})
                traits = self.ask(f"show {name}")["traits"]
                self.known[name] = traits
                self.write(self.known)
            devices[name] = {**self.ask(f"show {name}"), "traits": self.known[name]}
        return devices

    def write(self, known: dict[str, Any]) -> None:
        """Replace the file at once, so that it is always complete."""
        new = self.directory / "machines.json.new"
        new.write_text(json.dumps(known))
        new.replace(self.file)
