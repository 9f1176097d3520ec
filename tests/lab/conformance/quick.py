"""Examine many drivers quickly: keep databases open, and list installed distributions once."""

import signal
from functools import cache

import fixtures

from tests.lab.sqlite import StayingOpen
from wharfinger.conformance.rule_process_main import interrupt
from wharfinger.driver import loader


class InOneProcess(fixtures.Fixture):
    """Keeps databases open, and lists and loads installed drivers only once.

    SIGINT has the handler of the kit's process.
    """

    def _setUp(self) -> None:
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, interrupt))
        self.useFixture(StayingOpen())
        for name in ("entry_points", "load"):
            once = cache(vars(loader)[name])
            self.useFixture(fixtures.MonkeyPatch(f"{loader.__name__}.{name}", once))
