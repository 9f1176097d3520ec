"""Import a driver in a new process, and find the side effects of the import.

Side effects of the driver's libraries do not count.
"""

import json
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.metadata import entry_points
from tempfile import TemporaryFile
from typing import Final

from wharfinger.conformance.backend_frames import BackendFrames
from wharfinger.conformance.exceptions import Violation
from wharfinger.conformance.process_observer import Misuse, ProcessObserver
from wharfinger.conformance.sleep_observer import SleepObserver
from wharfinger.driver import loader

#: The name of the call that imports, for observers.
_CALL: Final = "__init__"


def done_by_import(driver: str) -> Sequence[str]:
    """Return a text for each side effect of the import of a driver. Raises Violation."""
    done = subprocess.run(
        [sys.executable, "-P", "-W", "ignore", "-m", __name__, driver],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode or not done.stdout.strip():
        reason = (done.stderr.strip() or f"it ended with {done.returncode}").splitlines()[-1]
        raise Violation(
            f"the import of the driver in a new process failed: {reason}",
            "an import without an error",
        )
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


def _main(driver: str) -> None:
    answers = os.dup(1)
    for name in _library_modules(driver):
        with suppress(Exception):
            import_module(name)
    os.write(answers, f"\n{json.dumps([*_watched(driver)])}\n".encode())
    os._exit(0)  # without waiting for threads of the driver


def _library_modules(driver: str) -> Sequence[str]:
    # A child process imports the driver to find them: this process must not import it yet.
    reader, writer = os.pipe()
    if not os.fork():
        try:
            os.write(writer, json.dumps(_imported(driver)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.wait()
    return json.loads(text) if text else ()


def _imported(driver: str) -> Sequence[str]:
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    before = {*sys.modules}
    loader.load(driver)
    own = _own_packages(driver)
    new = [name for name in sys.modules if name not in before]
    return [name for name in new if name.partition(".")[0] not in own]


def _own_packages(driver: str) -> set[str]:
    own = set()
    for entry_point in entry_points(group=loader.NAMESPACE, name=driver):
        own.add(entry_point.module.partition(".")[0])
        for file in (entry_point.dist and entry_point.dist.files) or ():
            if file.suffix == ".py":
                own.add(file.parts[0].removesuffix(".py"))
    return own - {"wharfinger"}


def _watched(driver: str) -> Iterator[str]:
    logging.lastResort = logging.NullHandler()
    process = ProcessObserver()
    sleeps = SleepObserver(process, BackendFrames(None, object), frozenset())
    threads = {*threading.enumerate()}
    with TemporaryFile() as printed:
        os.dup2(printed.fileno(), 1)
        os.dup2(printed.fileno(), 2)
        process.before(_CALL)
        sleeps.before(_CALL)
        try:
            loader.load(driver)
        finally:
            sleeps.after(_CALL)
            process.after(_CALL)
            sys.stdout.flush()
            sys.stderr.flush()
        text = os.pread(printed.fileno(), 60, 0)
    for kind in Misuse:
        yield from process.found[kind]
    if text:
        yield f"it prints {text.decode(errors='replace')!r}"
    for one in {*threading.enumerate()} - threads:
        yield f"thread {one.name} started"


if __name__ == "__main__":
    _main(sys.argv[1])
