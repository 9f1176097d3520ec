"""Snapshots of the process, and their repair."""

import decimal
import gc
import logging
import os
import signal
import socket
import sys
import warnings
from collections.abc import Callable

import pytest

from wharfinger.conformance import process_state
from wharfinger.conformance.patches import Patches
from wharfinger.providers import ProviderTree


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("the working directory", lambda: os.chdir("/")),
        ("the umask", lambda: os.umask(0o012)),
        ("signal handlers (10)", lambda: signal.signal(signal.SIGUSR1, signal.SIG_IGN)),
        ("the environment (LAB)", lambda: os.environ.setdefault("LAB", "1")),
        ("the default time-out of sockets", lambda: socket.setdefaulttimeout(7)),
        ("the recursion limit", lambda: sys.setrecursionlimit(5000)),
        ("sys.path", lambda: sys.path.append("/lab")),
        ("the decimal context", lambda: setattr(decimal.getcontext(), "prec", 5)),
        ("the garbage collector", gc.disable),
        ("the loggers (root)", lambda: logging.root.addHandler(logging.NullHandler())),
        (
            "the loggers (wharfinger.lab)",
            lambda: logging.getLogger("wharfinger.lab").setLevel(logging.ERROR),
        ),
        ("the switches of logging", lambda: logging.disable(logging.ERROR)),
        ("the filters of warnings", lambda: warnings.simplefilter("ignore")),
    ],
)
def test_snapshot_after_a_change_names_it_and_is_restored(
    name: str, change: Callable[[], object]
) -> None:
    before = process_state.snapshot()

    change()
    found = process_state.changes(before, process_state.snapshot())
    process_state.restore(found)

    assert [str(one) for one in found] == [name]
    assert process_state.changes(before, process_state.snapshot()) == []


def test_snapshot_with_a_new_logger_and_a_filter_of_a_library_is_the_same() -> None:
    class LibraryWarning(Warning):
        """A warning of one library."""

    before = process_state.snapshot()

    with warnings.catch_warnings():
        logging.getLogger("wharfinger.another_lab")
        warnings.simplefilter("ignore", LibraryWarning)
        found = process_state.changes(before, process_state.snapshot())

    assert found == []


def test_patches_of_a_method_its_code_and_a_new_method_are_named_and_repaired() -> None:
    patches = Patches()
    exists, code = ProviderTree.exists, ProviderTree.data.__code__
    where = "wharfinger.providers.tree.ProviderTree"

    ProviderTree.exists = ProviderTree.new_child  # type: ignore[method-assign, assignment]
    ProviderTree.data.__code__ = code.replace(co_name="lab")
    ProviderTree.lab = lambda self: None  # type: ignore[attr-defined]

    assert {*patches.look()} == {f"{where}.exists", f"{where}.data", f"{where}.lab"}
    assert ProviderTree.exists is exists
    assert ProviderTree.data.__code__ is code
    assert not hasattr(ProviderTree, "lab")
    assert patches.look() == []
