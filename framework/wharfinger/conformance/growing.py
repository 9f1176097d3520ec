"""Let a harness add nodes or devices in steps."""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from wharfinger.conformance.exceptions import NotShown
from wharfinger.conformance.subject import Subject

_FIRST: Final = 8
#: Seconds that one number of things may take if it is below ``least``.
_LONGEST: Final = 12.0


def sizes(subject: Subject, *, least: int = 0, most: int, cheap: float = 2.0) -> Iterator[int]:
    """Let the harness grow to 8, 16, ... and at last ``most`` things; yield each new number.

    May end early, or raise NotShown.
    """
    size = _FIRST
    while size < 2 * most:
        wanted = min(size, most)
        size *= 2
        if wanted <= len(subject.harness.things()):
            continue
        began = seconds_run()
        try:
            _have(subject, wanted)
        except NotShown:
            if len(subject.harness.things()) < least:
                raise
            return
        yield wanted
        if seconds_run() - began > (cheap if wanted >= least else _LONGEST):
            return


def _have(subject: Subject, count: int) -> None:
    subject.harness.grow(count - len(subject.harness.things()))
    if (there := len({*subject.harness.things()})) != count:
        raise NotShown(f"the harness should have {count} things, but has {there}")


def seconds_run() -> float:
    """Return ``time.monotonic()`` less the time that this process's threads waited to run."""
    waited = 0
    for path in Path("/proc/self/task").glob("*/schedstat"):
        with suppress(OSError):  # the thread has ended
            # The second figure, in nanoseconds (Linux, Documentation/scheduler/sched-stats.rst).
            waited += int(path.read_text().split()[1])
    return time.monotonic() - waited / 1e9
