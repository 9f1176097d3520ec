"""Drivers that publish an incomplete listing, or one that the backend did not return."""

import contextlib
import http.client
import json
import threading
import time
from typing import Any
from urllib.parse import urlencode

from oslo_config import cfg

from tests.lab.outsiders.host import HostDriver
from tests.lab.outsiders.rack import Facts, RackDriver, by_node
from tests.lab.outsiders.wrong import wrong
from wharfinger.exceptions import BackendError


class SomePages(RackDriver):
    """Reads only ``most`` pages of each list."""

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
    """Reads only the first page of each list."""

    most = 1


@wrong("listing", "WHF-305")
class FirstTwoPages(SomePages):
    """Reads only the first two pages of each list, which have up to 200 entries."""

    most = 2


@wrong("listing", "WHF-806")
class FirstThousand(SomePages):
    """Reads only the first ten pages of each list, which have up to 1,000 entries."""

    most = 10


@wrong("listing", "WHF-806")
class SkipsOneOfEachPage(RackDriver):
    """Drops the first entry of each page after the first page."""

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
    """Ends a list at a page that it cannot read, unless that is the first page."""

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
    """Ignores the status of an answer, and uses empty lists for missing content."""

    def read(self, status: int, text: bytes) -> Any:
        return {"nodes": [], "cards": [], "next": None, **json.loads(text)}


@wrong("listing", "WHF-708")
class DeniedIsEmpty(RackDriver):
    """Publishes no cards if the service denies access to them."""

    def list_cards(self) -> list[Facts]:
        try:
            return super().list_cards()
        except BackendError as error:
            if "401" in str(error):
                return []
            raise


@wrong("listing", "WHF-703")
class NoCardsIsNoError(RackDriver):
    """Publishes nodes without cards if it cannot list the cards."""

    def list_cards(self) -> list[Facts]:
        try:
            return super().list_cards()
        except BackendError:
            return []


@wrong("listing", "WHF-703")
class KeepsTheOldCards(RackDriver):
    """Publishes the cards of the last listing if it cannot list the cards."""

    def list_cards(self) -> list[Facts]:
        try:
            return super().list_cards()
        except BackendError:
            if not self.cards:
                raise
            return [card for cards in self.cards.values() for card in cards]


@wrong("listing", "WHF-703")
class SkipsFailedCards(RackDriver):
    """Requests each card, and leaves out a card whose request fails."""

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
    """Uses the last listing for a minute."""

    listed: float | None = None

    def refresh(self) -> None:
        if self.listed is None or time.monotonic() - self.listed > 60:
            super().refresh()
            self.listed = time.monotonic()


@wrong("listing", "WHF-701")
class RaisesTheThirdTime(HostDriver):
    """Raises an error only at the third failure in a row."""

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
    """Publishes no devices if it has no permission to read the file."""

    def load(self) -> dict[str, Any]:
        try:
            return super().load()
        except BackendError as error:
            if "PermissionError" not in str(error):
                raise
            return {**self.facts, "devices": {}}


@wrong("listing", "WHF-701")
class HalfAFileIsEnough(HostDriver):
    """Publishes the readable devices of a file that is cut off."""

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
    """Keeps nodes by the last two characters of their names, and so loses some."""

    def list_nodes(self) -> dict[str, Facts]:
        nodes = super().list_nodes()
        kept = {name[-2:]: one for name, one in nodes.items()}
        return {one["name"]: one for one in kept.values()}


@wrong("listing", "WHF-914")
class PollForgetsCards(RackDriver):
    """Forgets the cards of a changed node before it requests them, even if the request fails."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        if since is not None:
            answer = self.request("GET", f"/events?since={since}")
            for node in {*answer["nodes"]} & self.nodes.keys():
                self.cards[node] = []
        return super().changed_nodes(since)


@wrong("listing", "WHF-708")
class SnapshotByHalves(RackDriver):
    """Keeps the nodes of a listing, without cards, if it cannot list the cards."""

    def refresh(self) -> None:
        self.nodes = self.list_nodes()
        self.cards = by_node([], self.nodes)
        self.cards = by_node(self.list_cards(), self.nodes)


@wrong("listing", "WHF-704")
class ShortAnswerIsTheEnd(RackDriver):
    """Uses the complete part of a truncated answer as the whole answer."""

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
    """Uses an empty list if the connection is reset after a request for cards."""

    def send(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        try:
            return super().send(method, path, body)
        except http.client.HTTPException:
            raise
        except ConnectionError:
            if path.startswith("/cards?") and self.nodes:
                return 200, b'{"cards": [], "next": null}'
            raise


@wrong("listing", "WHF-708")
class MissingCardsAreNone(RackDriver):
    """Publishes no cards if the service answers 404 to the request for cards."""

    def list_cards(self) -> list[Facts]:
        try:
            return super().list_cards()
        except LookupError:
            return []


@wrong("listing", "WHF-708")
class ForbiddenCardsAreNone(RackDriver):
    """Publishes a node without cards if the service answers 403 to the request for cards."""

    def read(self, status: int, text: bytes) -> Any:
        if status == 403 and self.nodes:
            return {"cards": [], "next": None}
        return super().read(status, text)


@wrong("listing", "WHF-451")
class ForbiddenPageIsTheEnd(RackDriver):
    """Ends a list at a page for which the service answers 403, unless that is the first page."""

    def request(self, method: str, path: str, body: object = None) -> Any:
        try:
            return super().request(method, path, body)
        except BackendError as error:
            if "403" in str(error) and "marker=a-" in path:
                return {"nodes": [], "cards": [], "next": None}
            raise


@wrong("listing", "WHF-701")
class MissingRackIsEmpty(RackDriver):
    """Publishes no nodes and no cards if the service answers 404 to the request for a list."""

    def request(self, method: str, path: str, body: object = None) -> Any:
        try:
            return super().request(method, path, body)
        except LookupError:
            if method == "GET" and "rack=" in path:
                return {"nodes": [], "cards": [], "next": None}
            raise


@wrong("listing", "WHF-701")
class MissingFileIsEmpty(HostDriver):
    """Publishes a host without devices if the file is missing."""

    def read_text(self) -> str:
        try:
            return super().read_text()
        except FileNotFoundError:
            if not self.facts["host"]:
                raise
            return json.dumps({**self.facts, "devices": {}})


@wrong("listing", "WHF-708")
class MissingStateIsFree(RackDriver):
    """Publishes a card as free if the service answers 404 to the request for its state."""

    def list_cards(self) -> list[Facts]:
        cards = super().list_cards()
        for card in cards:
            try:
                card["state"] = self.request("GET", f"/cards/{card['name']}")["state"]
            except LookupError:
                card["state"] = "free"
        return cards


@wrong("listing", "WHF-806")
class TwoHundredDevices(HostDriver):
    """Publishes only the first 200 devices of the file."""

    def parse(self, text: str) -> dict[str, Any]:
        facts = super().parse(text)
        return {**facts, "devices": dict([*facts["devices"].items()][:200])}


@wrong("listing", "WHF-703")
class EmptyAtTheStart(HostDriver):
    """Publishes a host without devices if it cannot read the file at the start."""

    def load(self) -> dict[str, Any]:
        try:
            return super().load()
        except BackendError:
            if self.facts["host"]:
                raise
            host = {"cpus": 8, "memory": 32768, "traits": ["HW_CPU_X86_AVX2"]}
            return {"host": host, "devices": {}, "instances": {}}


@wrong("listing", "WHF-703")
class ThreadsThatFailInSilence(RackDriver):
    """Publishes a node without cards if it cannot read them in a thread."""

    def list_cards(self) -> list[Facts]:
        found: list[Facts] = []

        def ask(node: str) -> None:
            with contextlib.suppress(BackendError):
                found.extend(self.pages("cards", node=node))

        threads = [threading.Thread(target=ask, args=(node,)) for node in self.list_nodes()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found


@wrong("listing", "WHF-701")
class TimeoutIsNoNews(RackDriver):
    """Publishes the last listing again after a time-out."""

    def refresh(self) -> None:
        before = self.nodes, self.cards
        try:
            super().refresh()
        except BackendError as error:
            if not isinstance(error.__cause__, TimeoutError) or not self.nodes:
                raise
            self.nodes, self.cards = before


@wrong("listing", "WHF-701")
class CacheOnDisk(HostDriver):
    """Keeps a copy of the file, and publishes the copy if it cannot read the file at the start."""

    def load(self) -> dict[str, Any]:
        kept = self.path.with_suffix(".kept")
        try:
            facts = super().load()
        except BackendError:
            if self.facts["host"] or not kept.exists():
                raise
            facts = json.loads(kept.read_text())
        kept.write_text(json.dumps(facts))
        return facts


@wrong("listing", "WHF-701")
class RestsAfterAFailure(HostDriver):
    """After a failure it answers from what it knows for a while, and does not ask."""

    rests = 0

    def refresh(self) -> None:
        if self.rests:
            self.rests -= 1
            return
        try:
            super().refresh()
        except BackendError:
            self.rests = 3
            raise
