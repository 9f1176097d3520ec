"""Standard error whose reader does not hold up the agent."""

import os
import select
from typing import Final

#: Seconds that a line may wait for its reader.
PATIENCE: Final = 1.0


class StandardError:
    """Stream of a log handler. It drops a line if the pipe, socket or terminal stays full.

    A write would otherwise wait until the log is read, and the agent could not look after its
    instances. Further lines are dropped at once until there is room again; then a line says how
    many there were.
    """

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
            # A pipe or socket that has room takes so many bytes at once.
            data = data[os.write(self._descriptor, data[: select.PIPE_BUF]) :]
        self._dropped = 0
