"""Run the checks of rules in another process."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from wharfinger.conformance.driver_clock import DriverClock
from wharfinger.conformance.exceptions import NotShown
from wharfinger.conformance.rule_runner import Result, Status
from wharfinger.conformance.rules import Rule
from wharfinger.conformance.run_options import Asked

#: Seconds between two checks of a process that has not answered.
_INTERVAL: Final = 0.1
#: Seconds for a process to end after it has closed its pipe, or to write its stacks.
_GRACE: Final = 1.0
#: The least limit, in seconds, for the kit's own work between two calls, which takes up to 1 s.
_OWN_TIME: Final = 5.0
#: Lines of the process's output that a failure shows.
_LINES: Final = 30
#: The environment variable that marks the process and every process that it starts.
_MARK: Final = "WHARFINGER_CONFORMANCE_PROCESS"


class Lost(Exception):
    """The process was lost before the result arrived."""

    def __init__(self, reason: str, details: str, *, is_harness: bool = False) -> None:
        super().__init__(reason)
        self.details: Final = details
        #: Whether a call to the harness was running.
        self.is_harness: Final = is_harness


class RuleProcess:
    """A process that checks one rule at a time."""

    def __init__(self, asked: Asked, empty_directory: Path, broken_rule_ids: Iterable[str]) -> None:
        self._timeout: Final = asked.timeout
        self._mark: Final = str(uuid4())
        self._output: Final = empty_directory / "output"
        self._stacks: Final = empty_directory / "stacks"
        page = empty_directory / "calls"
        self._clock: Final = DriverClock(page, 0)
        question, self._questions = os.pipe()
        self._answers, answer = os.pipe()
        start = {
            "asked": asked.to_data(),
            "broken": sorted(broken_rule_ids),
            "directory": str(empty_directory),
            "questions": question,
            "answers": answer,
        }
        environment = {
            **os.environ,
            _MARK: self._mark,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        with self._output.open("wb") as output:
            self._process: Final = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-W", "ignore", "-m", f"{__name__}_main"),
                    json.dumps(start),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                pass_fds=(question, answer),
                start_new_session=True,  # Ctrl+C reaches only the waiting process
            )
        os.close(question)
        os.close(answer)
        self._clock.pid = self._process.pid
        self._open: Final = [self._questions, self._answers]
        self._buffer = b""

    def begin(self) -> dict[str, Any]:
        """Wait until the process is ready; return the driver's capabilities.

        Raises NotShown and Lost.
        """
        answer = self._next_answer()
        if reason := answer["reason"]:
            raise NotShown(reason)
        capabilities: dict[str, Any] = answer["capabilities"]
        return capabilities

    def check(self, rule: Rule) -> Result:
        """Let the process check a rule; return the result. Raises Lost."""
        self._ask({"check": rule.id})
        return Result(rule, **self._read(self._next_answer()))

    def end(self) -> None:
        """Stop the harness, and end the process. Raises NotShown and Lost."""
        self._ask({})
        reason = self._next_answer()["reason"]
        self.kill()
        if reason:
            raise NotShown(reason)

    def kill(self) -> None:
        """Kill the process and all processes that it has started."""
        self._process.kill()
        self._process.wait()
        for fd in self._open:
            os.close(fd)
        self._open.clear()
        for pid in _pids_with_mark(f"{_MARK}={self._mark}".encode()):
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue

    def _ask(self, question: Any) -> None:
        try:
            os.write(self._questions, json.dumps(question).encode() + b"\n")
        except BrokenPipeError:
            return  # there will be no answer, and that is the failure

    def _next_answer(self) -> Any:
        self._clock.restart()
        while b"\n" not in self._buffer:
            self._read_part()
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer = json.loads(line)
        if answer.pop("pid") != self._process.pid:
            raise self._lost("a process that the driver forked answers in place of the kit's")
        return answer

    def _read_part(self) -> None:
        readable, _, _ = select.select([self._answers], [], [], _INTERVAL)
        part = os.read(self._answers, 1 << 16) if readable else None
        if part:
            self._buffer += part
            return
        self._clock.read()
        if part is not None or self._process.poll() is not None:
            raise self._lost(self._end())
        if self._clock.used > self._timeout:
            reason = f"no result after {self._timeout:g} s of the driver's time"
            raise self._lost(f"{reason}, in {self._clock.running}")
        if self._clock.is_in_kit:
            limit = max(self._timeout, _OWN_TIME)
            reason = f"the kit has made no call for {limit:g} s: see what its threads wait for"
        else:
            limit = self._timeout
            reason = f"{self._clock.running} has not returned for {limit:g} s"
        if self._clock.still > limit:
            raise self._lost(reason)

    def _end(self) -> str:
        try:
            code = self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            return f"{self._clock.running} closed the pipe to the kit"
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return f"the process ended with {how} in {self._clock.running}"

    def _lost(self, reason: str) -> Lost:
        stacks = self._dump() if self._process.poll() is None else ""
        self.kill()
        written = self._output.read_text(errors="replace").splitlines()[-_LINES:]
        is_harness = self._clock.is_in_harness
        return Lost(reason, "\n".join([*written, stacks]).strip(), is_harness=is_harness)

    def _dump(self) -> str:
        self._process.send_signal(signal.SIGUSR1)
        text, deadline = "", time.monotonic() + _GRACE
        while time.monotonic() < deadline and self._process.poll() is None:
            time.sleep(_INTERVAL)
            before, text = text, self._stacks.read_text() if self._stacks.exists() else ""
            if text and text == before:  # all of it is written
                break
        return text

    @staticmethod
    def _read(answer: dict[str, str]) -> dict[str, Any]:
        return {**answer, "status": Status(answer["status"])}


def _pids_with_mark(mark: bytes) -> Iterable[int]:
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            variables = path.read_bytes().split(b"\0")
        except OSError:
            continue  # the process is another user's, or has ended
        if mark in variables:
            yield int(path.parent.name)
