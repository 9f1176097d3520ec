"""Drivers with wrong change feeds. Each docstring says what the driver does wrong."""

import select
import threading
import time
from typing import Any, ClassVar

from oslo_config import cfg

from tests.lab.outsiders.host import HostDriver
from tests.lab.outsiders.host_harness import HostHarness
from tests.lab.outsiders.rack import RackDriver
from tests.lab.outsiders.right import GoingNodesHarness
from tests.lab.outsiders.wrong import wrong
from wharfinger.driver import Capabilities
from wharfinger.exceptions import BackendError


@wrong("feed", "WHF-915")
class NamesAll(RackDriver):
    """Names all nodes in every poll."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        _, mark = super().changed_nodes(since)
        return {*self.nodes}, mark


@wrong("feed", "WHF-916")
class NamesAllWhenAny(RackDriver):
    """Names all nodes in a poll if one of them has changed."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        changed, mark = super().changed_nodes(since)
        return {*self.nodes} if changed else changed, mark


@wrong("feed", "WHF-916")
class NamesAllAfterAFewEvents(RackDriver):
    """Names all nodes in a poll if there were more than three events."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        changed, mark = super().changed_nodes(since)
        is_many = since is not None and int(mark) - int(since) > 3
        return {*self.nodes} if is_many else changed, mark


@wrong("feed", "WHF-916")
class NamesAllForTwo(RackDriver):
    """Names all nodes in a poll if two or more of them have changed."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        changed, mark = super().changed_nodes(since)
        return {*self.nodes} if len(changed) > 1 else changed, mark


@wrong("feed", "WHF-912")
class NamesAllInTheFirstPoll(RackDriver):
    """Names all nodes in the first poll after the first mark."""

    first = True

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        changed, mark = super().changed_nodes(since)
        if since is not None and self.first:
            self.first = False
            return {*self.nodes}, mark
        return changed, mark


@wrong("feed", "WHF-912")
class BeginsWithTheFirstPoll(RackDriver):
    """Returns a first mark without a position, and so loses events before the first poll."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        if since is None:
            self.request("GET", "/events")
            return set(), "begin"
        return super().changed_nodes(None if since == "begin" else since)


@wrong("feed", "WHF-918")
class BeginsWithTheListing(RackDriver):
    """Skips events between the last poll and a listing."""

    listed = 0

    def refresh(self) -> None:
        super().refresh()
        self.listed = self.request("GET", "/events")["last"]

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        return super().changed_nodes(since and str(max(int(since), self.listed)))

    def list_cards(self) -> list[dict[str, object]]:
        cards = super().list_cards()
        return cards


@wrong("feed", "WHF-912")
class IgnoresTheMark(RackDriver):
    """Remembers by itself which events it has seen, and ignores the mark it is given."""

    mine: str | None = None

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        changed, mark = super().changed_nodes(self.mine if since else None)
        self.mine = mark
        return changed, mark


@wrong("feed", "WHF-915")
class BackToTheBeginning(RackDriver):
    """Ignores the mark, and names all nodes that have changed since the start."""

    began: str | None = None

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        if self.began is None:
            _, self.began = super().changed_nodes(None)
        return (set(), self.began) if since is None else super().changed_nodes(self.began)


@wrong("feed")
class SleepsInPolls(RackDriver):
    """Sleeps for half a second in each poll."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        time.sleep(0.5)
        return super().changed_nodes(since)


@wrong("feed")
class WaitsForNews(RackDriver):
    """Waits in a poll for up to two seconds until something has changed."""

    PATIENCE: ClassVar[float] = 2.0

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        changed, mark = super().changed_nodes(since)
        end = time.monotonic() + self.PATIENCE
        while since is not None and not changed and time.monotonic() < end:
            threading.Event().wait(0.2)
            changed, mark = super().changed_nodes(since)
        return changed, mark


@wrong("feed", "WHF-920")
class ListsInEachPoll(RackDriver):
    """Takes a new snapshot of the whole rack in each poll, even if nothing has changed."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        changed, mark = super().changed_nodes(since)
        if since is not None:
            self.refresh()
        return changed & self.nodes.keys(), mark


@wrong("feed", "WHF-919")
class OneEventPerPoll(RackDriver):
    """Names only the node of the last event in a poll."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        if since is None:
            return super().changed_nodes(None)
        answer = self.request("GET", f"/events?since={since}")
        changed = {*answer["nodes"][-1:]} & self.nodes.keys()
        for node in changed:
            self.cards[node] = self.pages("cards", node=node)
        return changed, str(answer["last"])


@wrong("feed", "WHF-919")
class FirstTenEvents(RackDriver):
    """Names only the nodes of the first ten events in a poll, and skips the other events."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        if since is None:
            return super().changed_nodes(None)
        answer = self.request("GET", f"/events?since={since}")
        changed = {*answer["nodes"][:10]} & self.nodes.keys()
        for node in changed:
            self.cards[node] = self.pages("cards", node=node)
        return changed, str(answer["last"])


@wrong("feed", "WHF-919")
class FirstPageOfEvents(RackDriver):
    """Names only the nodes of the first 200 events in a poll, and skips the other events."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        if since is None:
            return super().changed_nodes(since)
        answer = self.request("GET", f"/events?since={since}")
        changed = {*answer["nodes"][:200]} & self.nodes.keys()
        for node in changed:
            self.cards[node] = self.pages("cards", node=node)
        return changed, str(answer["last"])


@wrong("feed", "WHF-914")
class ComparesMarksAsTexts(RackDriver):
    """Compares the numbers of events as texts. After 9 it names nothing until 90."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        changed, mark = super().changed_nodes(since)
        if since is not None and mark <= since:
            return set(), mark
        return changed, mark


@wrong("feed", "WHF-911")
class NamesAndReadsNothing(RackDriver):
    """Names a changed node, but describes the node as it was in the last listing."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        before = dict(self.cards)
        changed, mark = super().changed_nodes(since)
        self.cards = before
        return changed, mark


@wrong("feed", "WHF-913", harness=GoingNodesHarness)
class NamesTheGone(RackDriver):
    """Names nodes that no longer exist."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        if since is None:
            return super().changed_nodes(None)
        answer = self.request("GET", f"/events?since={since}")
        super().changed_nodes(since)
        return {*answer["nodes"]}, str(answer["last"])


@wrong("feed", "WHF-914")
class NoAnswerIsNoNews(RackDriver):
    """Names no node in a poll that fails, and raises no error."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        try:
            return super().changed_nodes(since)
        except BackendError:
            if since is None:
                raise
            return set(), since


@wrong("feed")
class MovesOnAfterAFailure(RackDriver):
    """Skips the events of a poll in which it could not read a node."""

    def __init__(self, conf: cfg.ConfigOpts, host: str, name: str) -> None:
        super().__init__(conf, host, name)
        self.done = 0

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        if since is None:
            return super().changed_nodes(None)
        answer = self.request("GET", f"/events?since={max(int(since), self.done)}")
        before, self.done = int(since), int(answer["last"])
        changed = {*answer["nodes"]} & self.nodes.keys()
        for node in changed:
            self.cards[node] = self.pages("cards", node=node)
        self.done = before
        return changed, str(answer["last"])


@wrong("feed", "WHF-917")
class MarkAfterTheCards(RackDriver):
    """Requests the next mark only after it has read the cards, and so loses events between."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        changed, mark = super().changed_nodes(since)
        if changed:
            mark = str(self.request("GET", "/events")["last"])
        return changed, mark


@wrong("feed", "WHF-917")
class MarkAfterTheEvents(RackDriver):
    """Requests the next mark only after the events, and so loses events between."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        if since is None:
            return super().changed_nodes(None)
        changed = {*self.request("GET", f"/events?since={since}")["nodes"]} & self.nodes.keys()
        mark = str(self.request("GET", "/events")["last"])
        for node in changed:
            self.cards[node] = self.pages("cards", node=node)
        return changed, mark


class FileFeed(HostDriver):
    """Base of drivers with a change feed that compares ``mark`` of the file with the last mark."""

    capabilities = Capabilities(
        nested_providers=HostDriver.capabilities.nested_providers,
        reshape=HostDriver.capabilities.reshape,
        change_feed=RackDriver.capabilities.change_feed,
        programming=HostDriver.capabilities.programming,
        cleans_after_release=HostDriver.capabilities.cleans_after_release,
    )

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        facts = self.load()
        mark = self.mark(facts)
        if since in (None, mark):
            return set(), mark
        self.facts = facts
        return {self.host}, mark

    def mark(self, facts: dict[str, Any]) -> str:
        raise NotImplementedError


@wrong("feed", "WHF-911", harness=HostHarness)
class MarkIsASecond(FileFeed):
    """Returns as mark the whole second of the file's change, and misses later changes in it."""

    def mark(self, facts: dict[str, Any]) -> str:
        return str(int(self.path.stat().st_mtime))


@wrong("feed", "WHF-911", harness=HostHarness)
class MarkIsTheNumberOfDevices(FileFeed):
    """Returns the number of devices as mark, and misses changes that keep this number."""

    def mark(self, facts: dict[str, Any]) -> str:
        return str(len(facts["devices"]))


@wrong("feed", "WHF-911")
class PollKnowsOldCards(RackDriver):
    """Reads only the cards that it knows again in a poll, and leaves new cards out."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        before = {node: {card["name"] for card in cards} for node, cards in self.cards.items()}
        changed, mark = super().changed_nodes(since)
        for node in changed:
            self.cards[node] = [one for one in self.cards[node] if one["name"] in before[node]]
        return changed, mark


@wrong("feed", "WHF-911")
class PollKeepsTheGone(RackDriver):
    """Keeps removed cards in a poll, until the next listing."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        before = dict(self.cards)
        changed, mark = super().changed_nodes(since)
        for node in changed:
            here = {one["name"] for one in self.cards[node]}
            self.cards[node] += [one for one in before[node] if one["name"] not in here]
        return changed, mark


@wrong("feed", "WHF-815")
class PollSleepsInSelect(RackDriver):
    """Sleeps for 0.3 s in each poll, with poll(2)."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        select.poll().poll(300)
        return super().changed_nodes(since)


@wrong("feed", "WHF-914")
class MissingEventsAreNone(RackDriver):
    """Names no node in a poll if the service answers 404."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        try:
            return super().changed_nodes(since)
        except LookupError:
            return set(), since or "0"


@wrong("feed", "WHF-919")
class QuadraticInEvents(RackDriver):
    """Searches a list of all earlier events for each event in a poll."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        if since is not None:
            events = self.request("GET", f"/events?since={since}")["nodes"]
            ordered: list[tuple[str, int]] = []
            for number, node in enumerate(events):
                if (node, number) not in ordered:
                    ordered.append((node, number))
        return super().changed_nodes(since)


@wrong("feed", "WHF-912")
class MarkOfAllInstances(RackDriver):
    """All instances of the process have one mark, and none looks at the one that it is given."""

    mark: ClassVar[str | None] = None

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        changed, mark = super().changed_nodes(since and (self.mark or since))
        type(self).mark = mark
        return changed, mark
