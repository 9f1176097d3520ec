"""Observers of what a driver prints and how it sleeps."""

import logging
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress

import pytest

from wharfinger.conformance.backend_frames import BackendFrames
from wharfinger.conformance.idle_observer import IdleObserver
from wharfinger.conformance.print_observer import PrintObserver
from wharfinger.conformance.process_observer import Misuse, ProcessObserver
from wharfinger.conformance.sleep_observer import SleepObserver


class Backend:
    """A harness whose backend answers in the thread of the caller."""

    def answer(self) -> None:
        """Sleep for a short time."""
        time.sleep(0.12)


@pytest.fixture
def process() -> ProcessObserver:
    return ProcessObserver()


def test_print_observer_notes_text_of_python_and_of_the_process(process: ProcessObserver) -> None:
    prints = PrintObserver(process, "lab")
    with prints.watching():
        prints.before("init_host")
        print("by Python")
        os.write(2, b"by the process")
        prints.after("init_host")

    assert {*process.found[Misuse.PRINT]} == {"stdout: 'by Python\\n'", "stderr: 'by the process'"}


def test_print_observer_ignores_other_threads_and_logs(process: ProcessObserver) -> None:
    began, over = threading.Event(), threading.Event()

    def serve() -> None:
        began.wait()
        sys.stderr.write("GET /\n")
        over.set()

    thread = threading.Thread(target=serve)
    thread.start()
    prints = PrintObserver(process, "lab")
    with prints.watching():
        prints.before("init_host")
        began.set()
        over.wait()
        logging.Logger("lab_driver").warning("a log without a handler")
        prints.after("init_host")
    thread.join()

    assert process.found[Misuse.PRINT] == {}


def test_sleep_observer_notes_a_sleep_of_the_driver_and_not_of_its_backend(
    process: ProcessObserver,
) -> None:
    backend = Backend()
    frames = BackendFrames(backend, Backend)  # type: ignore[arg-type]
    sleeps = SleepObserver(process, frames, frozenset({"program"}))

    for method in ("init_host", "program"):
        sleeps.before(method)
        backend.answer()
        sleeps.after(method)
    assert process.found[Misuse.SLEEP] == {}

    sleeps.before("program")
    time.sleep(0.12)
    sleeps.after("program")
    assert process.found[Misuse.SLEEP] == {}

    sleeps.before("init_host")
    time.sleep(0.12)
    sleeps.after("init_host")
    assert len(process.found[Misuse.SLEEP]) == 1


def test_idle_observer_finds_a_wait_for_a_socket_and_none_for_the_backend() -> None:
    def wait() -> None:
        one, other = socket.socketpair()
        with one, other:
            one.settimeout(0.3)
            with suppress(TimeoutError):
                one.recv(1)

    backend = Backend()
    observer = IdleObserver(BackendFrames(backend, Backend), {"program"})  # type: ignore[arg-type]
    found = {}
    other_child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    with other_child, observer.watching():
        for method, work in (
            ("program", wait),
            ("cleanup_host", wait),
            ("refresh", backend.answer),
            ("get_available_nodes", wait),
        ):
            for _ in range(3):
                observer.before(method)
                work()
                observer.after(method)
            found[method] = observer.take()

    (line,) = found.pop("get_available_nodes")
    assert line.startswith("test_print_observer.py:")
    assert found == {"program": set(), "cleanup_host": set(), "refresh": set()}
