"""The program of the process in which the rules run."""

import ctypes
import faulthandler
import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any, Final, NoReturn

from wharfinger.conformance.driver_clock import RunningCalls
from wharfinger.conformance.exceptions import NotShown
from wharfinger.conformance.rule_runner import Result, Status
from wharfinger.conformance.rules import all_rules
from wharfinger.conformance.run_options import Asked
from wharfinger.conformance.run_setup import declared_capabilities, set_up
from wharfinger.exceptions import printable

#: prctl(2): the signal that this process gets when its parent ends.
_PR_SET_PDEATHSIG: Final = 1


def main(start: Any) -> None:
    """Check the rules that the parent process names, then end the process."""
    directory = Path(start["directory"])
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    stacks = (directory / "stacks").open("w")
    signal.signal(signal.SIGINT, interrupt)  # the parent may ignore SIGINT
    faulthandler.register(signal.SIGUSR1, file=stacks)
    # Without a handler, logging would print warnings.
    logging.getLogger().addHandler(logging.FileHandler(directory / "log", delay=True))
    for fd in (start["questions"], start["answers"]):
        os.set_inheritable(fd, False)  # so that no process of a harness keeps a pipe open
    reason = ""
    try:
        _answer_all(start, directory)
    except NotShown as error:
        reason = printable(str(error))
    _tell(start, {"reason": reason})
    os._exit(0)  # without waiting for threads of the driver, or for its exit handlers


def interrupt(*_: object) -> NoReturn:
    """Handle SIGINT with a KeyboardInterrupt."""
    # In the main thread, asyncio.run replaces the handler of Python itself, but not this one.
    # The agent calls drivers in other threads.
    raise KeyboardInterrupt


def _answer_all(start: Any, directory: Path) -> None:
    rules = {rule.id: rule for rule in all_rules()}
    calls = RunningCalls(directory / "calls")
    asked = Asked.from_data(start["asked"])
    with set_up(asked, directory, calls) as examination, os.fdopen(start["questions"]) as questions:
        examination.broken.update(start["broken"])
        _tell(start, {"reason": "", "capabilities": declared_capabilities(asked.driver or "")})
        for line in questions:
            question = json.loads(line)
            if not question:
                return
            rule = rules[question["check"]]
            try:
                result = examination.check(rule)
            except KeyboardInterrupt:  # the driver raised it: Ctrl+C does not reach this process
                result = Result(rule, Status.FAILED, "KeyboardInterrupt", "no error")
            _tell(
                start,
                {
                    "status": result.status,
                    "found": result.found,
                    "expected": result.expected,
                    "details": result.details,
                },
            )


def _tell(start: Any, answer: dict[str, Any]) -> None:
    # A fork of this process may answer, too.
    os.write(start["answers"], json.dumps({**answer, "pid": os.getpid()}).encode() + b"\n")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
