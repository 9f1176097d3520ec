"""Notify systemd about the agent, as sd_notify(3) describes."""

import os
import re
import socket
import time
from collections.abc import MutableMapping
from typing import Final

from wharfinger.agent.problem_log import Problems
from wharfinger.exceptions import AgentError, WharfingerError, printable, shown

#: A count of microseconds has 64 bits.
_DIGITS: Final = re.compile(r"[0-9]{1,20}")
#: Seconds that a notification may wait if systemd's queue is full.
_PATIENCE: Final = 1.0
#: The largest number of bytes of a status. systemd ignores messages above 4096 bytes.
_STATUS_SIZE: Final = 2048


class SystemdNotifier:
    """Notifies systemd about the agent, or does nothing without systemd.

    The constructor removes systemd's variables from ``environment``.
    """

    def __init__(self, environment: MutableMapping[str, str]) -> None:
        self._problems: Final = Problems("systemd")
        self._address: Final = environment.pop("NOTIFY_SOCKET", None)
        #: Seconds between two calls of ``alive``; None without a watchdog.
        self.watchdog_interval: Final = self._read_watchdog(
            environment.pop("WATCHDOG_USEC", None), environment.pop("WATCHDOG_PID", None)
        )
        self._status: str | None = None
        #: Whether systemd has not got the last READY=1, so the next notification repeats it.
        self._repeats_ready = False

    def ready(self) -> None:
        """Notify that the agent is ready."""
        self._repeats_ready = not self._send("READY=1")

    def reloading(self) -> None:
        """Notify that the agent begins to reload its configuration."""
        self._repeats_ready = False
        # systemd uses this time to ignore messages from before its request to reload.
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Notify that the agent stops."""
        self._send("STOPPING=1")

    def status(self, text: str) -> None:
        """Set the line that ``systemctl status`` prints."""
        if text != self._status or self._repeats_ready:
            line = printable(text).encode()[:_STATUS_SIZE].decode(errors="ignore")
            self._status = text if self._send(f"STATUS={line}") else None

    def alive(self) -> None:
        """Reset the timer of the watchdog, if there is one."""
        if self.watchdog_interval is not None:
            self._send("WATCHDOG=1")

    def _send(self, message: str) -> bool:
        if not self._address:
            return True
        if self._repeats_ready:
            message = f"READY=1\n{message}"
        try:
            # A leading @ stands for the zero byte of an abstract socket.
            address = os.fsencode(self._address)
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.settimeout(_PATIENCE)
                sender.connect(b"\0" + address[1:] if address.startswith(b"@") else address)
                sender.sendall(message.encode())
        except OSError as error:
            self._problems.found("socket", [_unsent(self._address, error)])
            return False
        self._problems.found("socket")
        self._repeats_ready = False
        return True

    def _read_watchdog(self, usec: str | None, pid: str | None) -> float | None:
        # systemd sets the variables for one pid, which may be that of a wrapper of this process.
        if usec is None or pid not in (None, str(os.getpid())):
            return None
        if not _DIGITS.fullmatch(usec) or not int(usec):
            self._problems.found("watchdog", [_wrong_watchdog(usec)])
            return None
        return int(usec) / 2 / 1_000_000


def _unsent(address: str, error: OSError) -> WharfingerError:
    return AgentError(
        reason=f"the agent cannot notify systemd at socket {shown(address)} (NOTIFY_SOCKET): "
        f"{error}. The agent goes on, and tries again with the next notification. Until then, "
        "systemd may consider the agent dead, and restart the agent. Check the socket; outside of "
        "systemd, unset NOTIFY_SOCKET."
    )


def _wrong_watchdog(usec: str) -> WharfingerError:
    return AgentError(
        reason=f"the environment variable WATCHDOG_USEC is {shown(usec)}, not a number of "
        "microseconds above 0. The agent runs without the watchdog of systemd. Set WatchdogSec= in "
        "the unit file, and do not set WATCHDOG_USEC."
    )
