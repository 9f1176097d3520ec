"""Examine many drivers quickly: keep databases open, and list installed distributions once."""

from functools import cache

import fixtures

from tests.lab.sqlite import StayingOpen
from wharfinger.driver import loader


class InOneProcess(fixtures.Fixture):
    """Keeps databases open, and lists and loads installed drivers only once."""

    def _setUp(self) -> None:
        self.useFixture(StayingOpen())
        for name in ("entry_points", "load"):
            once = cache(vars(loader)[name])
            self.useFixture(fixtures.MonkeyPatch(f"{loader.__name__}.{name}", once))
