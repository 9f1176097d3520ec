"""Listings that are not complete, or that no backend has answered."""

import http.client
import json
import time
from typing import Any
from urllib.parse import urlencode

from oslo_config import cfg

from tests.lab.outsiders.host import HostDriver
from tests.lab.outsiders.rack import Facts, RackDriver, by_node
from tests.lab.outsiders.wrong import wrong
from wharfinger.exceptions import BackendError


class SomePages(RackDriver):
    """Reads some pages of each list."""

    most: int

    def pages(self, what: str, **query: str) -> list[Facts]:
        entries: list[Facts] = []
        marker = ""
        for _ in range(self.most):
            asked = urlencode({"rack": self.rack, "marker": marker, **query})
            page = self.request("GET", f"/{what}?{asked}")
            entries += page[what]
            marker = page["next"]
            if marker is None:
                break
        return entries


@wrong("listing", "WHF-806")
class FirstPage(SomePages):
    """It reads the first page of each list."""

    most = 1


@wrong("listing", "WHF-305")
class FirstTwoPages(SomePages):
    """It reads the first two pages of each list: 200 cards."""

    most = 2


@wrong("listing", "WHF-806")
class FirstThousand(SomePages):
    """It reads the first ten pages of each list: 1,000 cards."""

    most = 10


@wrong("listing", "WHF-806")
class SkipsOneOfEachPage(RackDriver):
    """It drops the first entry of each page but the first, which it takes for the marker."""

    def pages(self, what: str, **query: str) -> list[Facts]:
        entries: list[Facts] = []
        marker: str | None = ""
        while marker is not None:
            asked = urlencode({"rack": self.rack, "marker": marker, **query})
            page = self.request("GET", f"/{what}?{asked}")
            entries += page[what][1:] if marker else page[what]
            marker = page["next"]
        return entries


@wrong("listing")
class FailedPageIsTheEnd(RackDriver):
    """A page that cannot be read, but for the first, ends the list."""

    def pages(self, what: str, **query: str) -> list[Facts]:
        entries: list[Facts] = []
        marker: str | None = ""
        while marker is not None:
            asked = urlencode({"rack": self.rack, "marker": marker, **query})
            try:
                page = self.request("GET", f"/{what}?{asked}")
            except BackendError:
                if marker:
                    break
                raise
            entries += page[what]
            marker = page["next"]
        return entries


@wrong("listing", "WHF-701")
class AnyStatusIsAnswer(RackDriver):
    """It does not look at the status of an answer, and takes what is not there for nothing."""

    def read(self, status: int, text: bytes) -> Any:
        return {"nodes": [], "cards": [], "next": None, **json.loads(text)}


@wrong("listing", "WHF-708")
class DeniedIsEmpty(RackDriver):
    """Cards that it may not see are no cards."""

    def list_cards(self) -> list[Facts]:
        try:
            return super().list_cards()
        except BackendError as error:
            if "401" in str(error):
                return []
            raise


@wrong("listing", "WHF-703")
class NoCardsIsNoError(RackDriver):
    """It publishes nodes without cards if the cards cannot be listed."""

    def list_cards(self) -> list[Facts]:
        try:
            return super().list_cards()
        except BackendError:
            return []


@wrong("listing", "WHF-703")
class KeepsTheOldCards(RackDriver):
    """Where the cards cannot be listed they are those of the last listing."""

    def list_cards(self) -> list[Facts]:
        try:
            return super().list_cards()
        except BackendError:
            if not self.cards:
                raise
            return [card for cards in self.cards.values() for card in cards]


@wrong("listing", "WHF-703")
class SkipsFailedCards(RackDriver):
    """It asks for each card, and leaves out those that do not answer."""

    def list_cards(self) -> list[Facts]:
        found = []
        for one in super().list_cards():
            try:
                found.append(self.request("GET", f"/cards/{one['name']}"))
            except BackendError:
                continue
        return found


@wrong("listing", "WHF-401")
class ListsOncePerMinute(RackDriver):
    """A listing of the last minute is given again."""

    listed: float | None = None

    def refresh(self) -> None:
        if self.listed is None or time.monotonic() - self.listed > 60:
            super().refresh()
            self.listed = time.monotonic()


@wrong("listing", "WHF-701")
class RaisesTheThirdTime(HostDriver):
    """Two failures in a row are no failure."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.failures = 0

    def refresh(self) -> None:
        try:
            super().refresh()
            self.failures = 0
        except BackendError:
            self.failures += 1
            if self.failures > 2 or not self.facts["host"]:
                raise


@wrong("listing", "WHF-701")
class DeniedFileIsEmpty(HostDriver):
    """A file that may not be read has no devices."""

    def load(self) -> dict[str, Any]:
        try:
            return super().load()
        except BackendError as error:
            if "PermissionError" not in str(error):
                raise
            return {**self.facts, "devices": {}}


@wrong("listing", "WHF-701")
class HalfAFileIsEnough(HostDriver):
    """Of a file that breaks off it takes the devices that it can read."""

    def parse(self, text: str) -> dict[str, Any]:
        try:
            return super().parse(text)
        except ValueError:
            for end in range(len(text), 0, -1):
                for closing in ('}, "instances": {}}', '}}, "instances": {}}'):
                    try:
                        return super().parse(text[:end] + closing)
                    except (ValueError, KeyError):
                        continue
            raise


@wrong("listing")
class KeyOfTwoDigits(RackDriver):
    """Nodes are kept by the last two digits of their numbers: a hundred at most."""

    def list_nodes(self) -> dict[str, Facts]:
        nodes = super().list_nodes()
        kept = {name[-2:]: one for name, one in nodes.items()}
        return {one["name"]: one for one in kept.values()}


@wrong("listing")
class PollForgetsCards(RackDriver):
    """A poll forgets the cards of a node before it asks for them."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        if since is not None:
            answer = self.request("GET", f"/events?since={since}")
            for node in {*answer["nodes"]} & self.nodes.keys():
                self.cards[node] = []
        return super().changed_nodes(since)


@wrong("listing", "WHF-708")
class SnapshotByHalves(RackDriver):
    """The nodes of a listing are kept where its cards could not be listed."""

    def refresh(self) -> None:
        self.nodes = self.list_nodes()
        self.cards = by_node([], self.nodes)
        self.cards = by_node(self.list_cards(), self.nodes)


@wrong("listing", "WHF-704")
class ShortAnswerIsTheEnd(RackDriver):
    """It takes the complete part of a truncated answer for the whole answer."""

    def read(self, status: int, text: bytes) -> Any:
        try:
            return super().read(status, text)
        except json.JSONDecodeError:
            whole = text.rpartition(b"}, ")[0]
            if not whole:
                raise
            return json.loads(whole + b'}], "next": null}')


@wrong("listing", "WHF-703")
class ResetIsAnEmptyAnswer(RackDriver):
    """A connection that was reset after the request is an empty list."""

    def send(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        try:
            return super().send(method, path, body)
        except http.client.HTTPException:
            raise
        except ConnectionError:
            if path.startswith("/cards?") and self.nodes:
                return 200, b'{"cards": [], "next": null}'
            raise
