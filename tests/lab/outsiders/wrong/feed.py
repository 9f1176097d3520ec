"""Change feeds that name too much, too little, or at the wrong time."""

import threading
import time
from typing import ClassVar

from oslo_config import cfg

from tests.lab.outsiders.rack import RackDriver
from tests.lab.outsiders.right import GoingNodesHarness
from tests.lab.outsiders.wrong import wrong
from wharfinger.exceptions import BackendError


@wrong("feed", "WHF-915")
class NamesAll(RackDriver):
    """Every poll names all nodes."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        _, mark = super().changed_nodes(since)
        return {*self.nodes}, mark


@wrong("feed", "WHF-916")
class NamesAllWhenAny(RackDriver):
    """A poll names all nodes where one has changed."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        changed, mark = super().changed_nodes(since)
        return {*self.nodes} if changed else changed, mark


@wrong("feed", "WHF-916")
class NamesAllAfterAFewEvents(RackDriver):
    """A poll names all nodes where there were more than three events."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        changed, mark = super().changed_nodes(since)
        is_many = since is not None and int(mark) - int(since) > 3
        return {*self.nodes} if is_many else changed, mark


@wrong("feed", "WHF-912")
class NamesAllInTheFirstPoll(RackDriver):
    """The first poll after the mark names all nodes."""

    first = True

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        changed, mark = super().changed_nodes(since)
        if since is not None and self.first:
            self.first = False
            return {*self.nodes}, mark
        return changed, mark


@wrong("feed", "WHF-912")
class BeginsWithTheFirstPoll(RackDriver):
    """Its first mark is no position in the feed: events before the first poll are lost."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        if since is None:
            self.request("GET", "/events")
            return set(), "begin"
        return super().changed_nodes(None if since == "begin" else since)


@wrong("feed", "WHF-918")
class BeginsWithTheListing(RackDriver):
    """A listing moves the mark: events between the last poll and the listing are lost."""

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
    """It remembers itself what it has named, and does not look at the mark."""

    mine: str | None = None

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        changed, mark = super().changed_nodes(self.mine if since else None)
        self.mine = mark
        return changed, mark


@wrong("feed", "WHF-915")
class BackToTheBeginning(RackDriver):
    """It does not look at the mark, and names all that has changed since it was started."""

    began: str | None = None

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        if self.began is None:
            _, self.began = super().changed_nodes(None)
        return (set(), self.began) if since is None else super().changed_nodes(self.began)


@wrong("feed")
class SleepsInPolls(RackDriver):
    """A poll waits for half a second before it asks."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        time.sleep(0.5)
        return super().changed_nodes(since)


@wrong("feed")
class WaitsForNews(RackDriver):
    """A poll waits for up to two seconds until something has changed."""

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
    """A poll takes a new snapshot of everything, whether anything has changed or not."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        changed, mark = super().changed_nodes(since)
        if since is not None:
            self.refresh()
        return changed & self.nodes.keys(), mark


@wrong("feed", "WHF-919")
class OneEventPerPoll(RackDriver):
    """A poll names the node of the last event alone."""

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
    """A poll looks at ten events, and takes the last mark."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        if since is None:
            return super().changed_nodes(None)
        answer = self.request("GET", f"/events?since={since}")
        changed = {*answer["nodes"][:10]} & self.nodes.keys()
        for node in changed:
            self.cards[node] = self.pages("cards", node=node)
        return changed, str(answer["last"])


@wrong("feed", "WHF-914")
class ComparesMarksAsTexts(RackDriver):
    """It compares the numbers of events as texts: after 9 comes nothing until 90."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        changed, mark = super().changed_nodes(since)
        if since is not None and mark <= since:
            return set(), mark
        return changed, mark


@wrong("feed", "WHF-911")
class NamesAndReadsNothing(RackDriver):
    """It describes a node that a poll has named as it was in the last listing."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        before = dict(self.cards)
        changed, mark = super().changed_nodes(since)
        self.cards = before
        return changed, mark


@wrong("feed", "WHF-913", harness=GoingNodesHarness)
class NamesTheGone(RackDriver):
    """A poll names nodes that are gone."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        if since is None:
            return super().changed_nodes(None)
        answer = self.request("GET", f"/events?since={since}")
        super().changed_nodes(since)
        return {*answer["nodes"]}, str(answer["last"])


@wrong("feed", "WHF-914")
class NoAnswerIsNoNews(RackDriver):
    """A poll that fails names nothing."""

    def changed_nodes(self, since: str | None) -> tuple[set[str], str]:
        try:
            return super().changed_nodes(since)
        except BackendError:
            if since is None:
                raise
            return set(), since


@wrong("feed")
class MovesOnAfterAFailure(RackDriver):
    """A poll that could not read a node still moves the mark, and loses the event."""

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
