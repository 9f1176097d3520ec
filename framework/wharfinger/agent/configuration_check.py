"""Check a new configuration before a running agent uses it."""

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec
from oslo_log import log as logging

from wharfinger.agent import child_process
from wharfinger.agent.configuration_snapshot import Snapshot
from wharfinger.exceptions import ConfigurationRefused, printable

LOG: Final = logging.getLogger(__name__)
#: Seconds that a check may take.
TIMEOUT: Final = 60.0
#: The largest number of characters of all problems.
_LONGEST: Final = 2000
_decode: Final = msgspec.json.Decoder(list[str]).decode


class Check(Protocol):
    """A check of a new configuration."""

    def result(self) -> Snapshot | None:
        """Return the new configuration, or None while the check is in progress.

        Raises WharfingerError if the configuration cannot be used.
        """

    def end(self) -> None:
        """End the check."""


class ProcessCheck:
    """Checks a configuration in a new process: a driver may hang.

    Raises WharfingerError if no process starts.
    """

    def __init__(
        self, new: Snapshot, command: Sequence[str], use: Callable[[Snapshot], None]
    ) -> None:
        self._new: Final = new
        self._use: Final = use
        self._end_at: Final = time.monotonic() + TIMEOUT
        try:
            self._answer: Final = open(os.memfd_create("wharfinger-check"), "rb")  # noqa: PTH123, SIM115
            self._process: Final = self._start(command)
        except OSError as error:
            raise ConfigurationRefused(
                reason="the process that checks the new configuration could not be started: "
                f"{error}. Remove the cause, and reload the agent again"
            ) from error

    def _start(self, command: Sequence[str]) -> "subprocess.Popen[bytes]":
        descriptor = self._answer.fileno()
        return subprocess.Popen(
            [
                *command,
                *("--parent", str(os.getpid()), "--answer", str(descriptor)),
                *("--config-file", self._new.path, "--config-name", self._new.name),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(descriptor, self._new.descriptor),
            start_new_session=True,
        )

    def result(self) -> Snapshot | None:
        """Return the new configuration, or None while the check is in progress.

        Raises WharfingerError if the configuration cannot be used.
        """
        if not child_process.has_exited(self._process.pid):
            if time.monotonic() < self._end_at:
                return None
            self.end()
            raise ConfigurationRefused(
                reason=f"the check of the configuration has not ended after {TIMEOUT:g} s. "
                "Probably, a driver hangs when it is imported or created. To find the driver, run "
                "`wharfinger driver check INSTANCE` for each driver instance"
            )
        self._answer.seek(0)
        text = self._answer.read()
        self.end()
        try:
            problems = _decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise ConfigurationRefused(
                reason="the process that checked the configuration has ended before the check was "
                f"complete (exit code {self._process.returncode}). To find the driver that ends "
                "the process, run `wharfinger driver check INSTANCE` for each driver instance"
            ) from None
        if problems:
            raise ConfigurationRefused(reason=printable(" ".join(problems))[:_LONGEST])
        self._use(self._new)
        return self._new

    def end(self) -> None:
        """Kill the process of the check."""
        self._answer.close()
        if child_process.kill_session(self._process.pid):
            self._process.wait()
        else:
            LOG.error(
                "the check of the configuration does not end after SIGKILL, since process %d waits "
                "in the kernel. To see where the process waits, run `cat /proc/%d/stack` as root",
                self._process.pid,
                self._process.pid,
            )


def answer(descriptor: int, problems: Sequence[str]) -> None:
    """Send the problems of a configuration to the agent."""
    with open(descriptor, "wb") as file:
        file.write(msgspec.json.encode([str(one) for one in problems]))
