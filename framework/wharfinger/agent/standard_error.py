"""Standard error that drops lines instead of blocking the agent."""

import os
import select
from typing import Final

#: Seconds that a line may wait until it can be written.
PATIENCE: Final = 1.0


class StandardError:
    """Stream for log handlers that drops lines while standard error is blocked."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: Final = descriptor
        self._poll: Final = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._dropped = 0

    def write(self, text: str) -> None:
        """Write a line, or drop it."""
        patience = PATIENCE
        if self._dropped:
            patience = 0.0
            text = f"{self._dropped} lines of the log were dropped: nothing read them\n{text}"
        data = text.encode(errors="backslashreplace")
        while data:
            if not self._poll.poll(patience * 1000):
                self._dropped += 1
                return
            # A pipe or socket that has room accepts this many bytes without blocking.
            data = data[os.write(self._descriptor, data[: select.PIPE_BUF]) :]
        self._dropped = 0
