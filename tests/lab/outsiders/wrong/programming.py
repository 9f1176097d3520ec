"""Drivers with wrong programmings or reshapes. Each docstring says what is wrong."""

import contextlib
import json
import threading
import time
from collections.abc import Collection
from datetime import datetime
from typing import Any

from oslo_config import cfg

from tests.lab.outsiders.host import UNITS, HostDriver
from tests.lab.outsiders.rack import Facts, RackDriver
from tests.lab.outsiders.wrong import wrong
from wharfinger.exceptions import BackendError, ProgrammingRefused
from wharfinger.providers import ProviderTree


class Notes(RackDriver):
    """Reports the function in ``noted`` for a provider, if there is one."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.noted: dict[str, str | None] = {}

    def current_function(self, provider_uuid: str) -> str | None:
        if provider_uuid in self.noted:
            return self.noted[provider_uuid]
        return super().current_function(provider_uuid)


@wrong("programming", "WHF-925")
class EchoesWhatWasAsked(Notes):
    """Reports the function of the last request to program a card, not the card's function."""

    def program(self, provider_uuid: str, image: str, function: str | None = None) -> None:
        super().program(provider_uuid, image, function)
        self.noted[provider_uuid] = function


@wrong("programming", "WHF-926")
class EchoesWhatFailed(Notes):
    """Reports the requested function of a card after a programming failed."""

    def program(self, provider_uuid: str, image: str, function: str | None = None) -> None:
        try:
            super().program(provider_uuid, image, function)
        except BackendError:
            self.noted[provider_uuid] = function
            raise


@wrong("programming", "WHF-925")
class EchoesForAName(RackDriver):
    """Reports the requested function for an image that has another function."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.asked: dict[str, str] = {}

    def program(self, provider_uuid: str, image: str, function: str | None = None) -> None:
        super().program(provider_uuid, image, function)
        held = super().current_function(provider_uuid)
        if function is not None and held is not None:
            self.asked[held] = function

    def current_function(self, provider_uuid: str) -> str | None:
        held = super().current_function(provider_uuid)
        return self.asked.get(held or "", held)


@wrong("programming", "WHF-925")
class AnswersFromTheSnapshot(RackDriver):
    """Reports the function of a card from its snapshot, which a programming updates."""

    def card(self, provider_uuid: str) -> Facts:
        name = self.names[provider_uuid]
        every = [card for cards in self.cards.values() for card in cards]
        return next(card for card in every if card["name"] == name)

    def program(self, provider_uuid: str, image: str, function: str | None = None) -> None:
        super().program(provider_uuid, image, function)
        self.card(provider_uuid)["image"] = function

    def current_function(self, provider_uuid: str) -> str | None:
        try:
            return self.image_of(self.card(provider_uuid))
        except LookupError as error:
            raise self.failed("looking for a card", error) from error


@wrong("programming", "WHF-922")
class DoesNotLookAtTheAnswer(RackDriver):
    """Ignores the service's answer to a programming."""

    def load_image(self, card: str, image: str) -> None:
        try:
            self.send("POST", f"/cards/{card}/image", {"image": image})
        except OSError as error:
            raise self.failed("programming", error) from error


@wrong("programming")
class ReturnsBeforeItIsDone(RackDriver):
    """Loads the image only in the next call of current_function."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.pending: list[tuple[str, str]] = []

    def load_image(self, card: str, image: str) -> None:
        if image not in {"00000000-0000-0000-0000-000000000000"}:
            self.pending.append((card, image))

    def current_function(self, provider_uuid: str) -> str | None:
        held = super().current_function(provider_uuid)
        for card, image in self.pending:
            super().load_image(card, image)
        self.pending.clear()
        return held


@wrong("programming", "WHF-921")
class ProgramsTheFirstCard(RackDriver):
    """Programs the first card of the node instead of the given card."""

    def load_image(self, card: str, image: str) -> None:
        super().load_image(card.rpartition("_card")[0] + "_card0", image)


@wrong("programming", "WHF-921")
class ProgramsTheNextCard(RackDriver):
    """Programs the given card and the next card of the node."""

    def load_image(self, card: str, image: str) -> None:
        super().load_image(card, image)
        node, _, slot = card.rpartition("_card")
        try:
            super().load_image(f"{node}_card{int(slot) + 1}", image)
        except LookupError:
            return


@wrong("programming", "WHF-924")
class RefusesWhatWasLost(RackDriver):
    """Raises ProgrammingRefused if the request to program a card fails."""

    def program(self, provider_uuid: str, image: str, function: str | None = None) -> None:
        try:
            super().program(provider_uuid, image, function)
        except BackendError as error:
            raise ProgrammingRefused(
                driver=self.name, provider=provider_uuid, reason=str(error)
            ) from error


@wrong("programming", "WHF-924")
class RefusesWhatCannotBeRead(RackDriver):
    """Raises ProgrammingRefused if it cannot read the answer to a programming."""

    def load_image(self, card: str, image: str) -> None:
        try:
            status, text = self.send("POST", f"/cards/{card}/image", {"image": image})
        except OSError as error:
            raise self.failed("programming", error) from error
        try:
            json.loads(text)
        except ValueError as error:
            raise LookupError("the service does not want it") from error
        self.read(status, text)


@wrong("programming", "WHF-924")
class RefusesAfterTheLoad(RackDriver):
    """Loads the image first, and then refuses if the card has not got the requested function."""

    def program(self, provider_uuid: str, image: str, function: str | None = None) -> None:
        super().program(provider_uuid, image, function)
        if function is not None and self.current_function(provider_uuid) != function:
            raise ProgrammingRefused(
                driver=self.name, provider=provider_uuid, reason="the image has another function"
            )


@wrong("programming", "WHF-922")
class SkipsRemovedCards(RackDriver):
    """Returns without an error if the service no longer has the card."""

    def load_image(self, card: str, image: str) -> None:
        try:
            self.request("GET", f"/cards/{card}")
        except LookupError:
            return
        super().load_image(card, image)


@wrong("programming", "WHF-923")
class ScopeOfTheFirst(RackDriver):
    """Returns the first card of the rack as the scope of every programming."""

    def programming_scope(self, provider_uuid: str) -> Collection[str]:
        return (next(iter(self.names), provider_uuid),)


@wrong("programming", "WHF-921")
class KeepsTheOldTrait(RackDriver):
    """Keeps all earlier traits of a card."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.earlier: dict[str, set[str]] = {}

    def card_traits(self, uuid: str, card: Facts) -> set[str]:
        earlier = self.earlier.setdefault(card["name"], set())
        earlier |= super().card_traits(uuid, card)
        return {*earlier}


@wrong("programming", "WHF-931")
class CleanOfAnybody(RackDriver):
    """Reports unknown providers as clean."""

    def is_clean(self, provider_uuid: str, since: datetime) -> bool:
        return provider_uuid not in self.names or super().is_clean(provider_uuid, since)


@wrong("programming")
class MovesToTheFirstDevice(HostDriver):
    """Moves all units of an instance to the first device in a reshape."""

    def move(self, tree: ProviderTree, node: str, consumer: str, held: dict[str, Any]) -> None:
        first = next(iter(self.facts["devices"]))
        units = sum(self.facts["instances"][consumer].values())
        self.facts["instances"][consumer] = {first: units}
        super().move(tree, node, consumer, held)


@wrong("programming")
class MovesToTheLastDevice(HostDriver):
    """Moves the units of each instance to the last devices, not to those that it uses."""

    def move(self, tree: ProviderTree, node: str, consumer: str, held: dict[str, Any]) -> None:
        root = tree.data(node).uuid
        units = held.get(root, {}).get("resources", {}).pop(UNITS, 0)
        for address in reversed(self.facts["devices"]):
            amount = min(units, self.facts["devices"][address]["units"])
            if amount:
                device = tree.data(self.device_name(node, address)).uuid
                held[device] = {"resources": {UNITS: amount}}
                units -= amount
        if root in held and not held[root]["resources"]:
            del held[root]


@wrong("programming")
class MovesTheOtherInstances(HostDriver):
    """Moves the units of an instance with one device to the next device in a reshape."""

    def move(self, tree: ProviderTree, node: str, consumer: str, held: dict[str, Any]) -> None:
        own = self.facts["instances"]
        others = [one for one in own if one != consumer and len(own[one]) == len(own[consumer])]
        devices = [*self.facts["devices"]]
        if len(own[consumer]) == 1 and not others:
            ((address, units),) = own[consumer].items()
            other = devices[(devices.index(address) + 1) % len(devices)]
            self.facts["instances"] = {**own, consumer: {other: units}}
        super().move(tree, node, consumer, held)
        self.facts["instances"] = own


@wrong("programming", "WHF-601")
class LosesTheSecondDevice(HostDriver):
    """Moves only the units of one device of each instance in a reshape."""

    def move(self, tree: ProviderTree, node: str, consumer: str, held: dict[str, Any]) -> None:
        before = {*held}
        super().move(tree, node, consumer, held)
        for uuid in [one for one in held if one not in before][1:]:
            del held[uuid]


@wrong("programming", "WHF-925")
class EchoesUntilTheListing(Notes):
    """Reports the function that was requested last, until the next listing."""

    def program(self, provider_uuid: str, image: str, function: str | None = None) -> None:
        super().program(provider_uuid, image, function)
        self.noted[provider_uuid] = function

    def refresh(self) -> None:
        super().refresh()
        self.noted.clear()


@wrong("programming", "WHF-927")
class ProgramsAnImageOnce(RackDriver):
    """Loads each image only once, and into no other card after that."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.loaded: set[str] = set()

    def load_image(self, card: str, image: str) -> None:
        if image not in self.loaded:
            super().load_image(card, image)
            self.loaded.add(image)


@wrong("programming", "WHF-921")
class ProgramsInAThread(RackDriver):
    """Loads the image in a thread, and returns from program before that."""

    def load_image(self, card: str, image: str) -> None:
        def load() -> None:
            time.sleep(0.5)
            with contextlib.suppress(Exception):
                super(ProgramsInAThread, self).load_image(card, image)

        self.request("GET", f"/cards/{card}")
        threading.Thread(target=load, daemon=True).start()


@wrong("programming", "WHF-601")
class MovesTheProcessorsToo(HostDriver):
    """Moves the processors of an instance, too, in a reshape."""

    def move(self, tree: ProviderTree, node: str, consumer: str, held: dict[str, Any]) -> None:
        root = tree.data(node).uuid
        processors = held.get(root, {}).get("resources", {}).pop("VCPU", 0)
        super().move(tree, node, consumer, held)
        for uuid in held:
            held[uuid]["resources"]["VCPU"] = processors
            break


@wrong("programming", "WHF-601")
class MovesAllUnitsToEach(HostDriver):
    """Moves all units of an instance to each of its devices in a reshape."""

    def move(self, tree: ProviderTree, node: str, consumer: str, held: dict[str, Any]) -> None:
        super().move(tree, node, consumer, held)
        own = self.facts["instances"].get(consumer, {})
        for address in own:
            device = tree.data(self.device_name(node, address)).uuid
            held[device] = {"resources": {UNITS: sum(own.values())}}
