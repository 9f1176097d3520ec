"""Snapshots of the state of the process, and its repair."""

import decimal
import gc
import json
import logging
import os
import resource
import signal
import socket
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from http.client import HTTPConnection
from types import ModuleType

import pytest
import urllib3
from oslo_concurrency import lockutils
from oslo_config import cfg

from wharfinger.conformance import process_state
from wharfinger.conformance.patches import Patches
from wharfinger.providers import ProviderTree


def limit(kind: int, less: int) -> None:
    soft, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (less if soft != less else 2, hard))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("the working directory", lambda: os.chdir("/")),
        ("the umask", lambda: os.umask(0o012)),
        ("signal handlers (10)", lambda: signal.signal(signal.SIGUSR1, signal.SIG_IGN)),
        ("the environment (LAB)", lambda: os.environ.setdefault("LAB", "1")),
        ("the default time-out of sockets", lambda: socket.setdefaulttimeout(7)),
        ("the recursion limit", lambda: sys.setrecursionlimit(5000)),
        ("the timers", lambda: signal.setitimer(signal.ITIMER_PROF, 60)),
        ("the interval of threads", lambda: sys.setswitchinterval(0.1)),
        ("the stack size of threads", lambda: threading.stack_size(1 << 20)),
        ("the resource limits (CORE)", lambda: limit(resource.RLIMIT_CORE, 1)),
        ("the directory of temporary files", lambda: setattr(tempfile, "tempdir", "/lab")),
        ("sys.path", lambda: sys.path.append("/lab")),
        ("sys.argv", lambda: setattr(sys, "argv", ["lab"])),
        ("the decimal context", lambda: setattr(decimal.getcontext(), "prec", 5)),
        ("the garbage collector", gc.disable),
        (
            "oslo.config's cfg.CONF ([oslo_concurrency] lock_path)",
            lambda: lockutils.CONF.set_override("lock_path", "/lab", "oslo_concurrency"),
        ),
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
        """A warning of a library."""

    before = process_state.snapshot()

    with warnings.catch_warnings():
        logging.getLogger("wharfinger.another_lab")
        warnings.simplefilter("ignore", LibraryWarning)
        found = process_state.changes(before, process_state.snapshot())

    assert found == []


def test_snapshot_with_new_options_is_the_same_only_without_values() -> None:
    option = cfg.StrOpt("lab")
    before = process_state.snapshot()

    cfg.CONF.register_opt(option)
    same = process_state.changes(before, process_state.snapshot())
    cfg.CONF.set_default("lab", "1")
    found = process_state.changes(before, process_state.snapshot())
    process_state.restore(found)
    now = cfg.CONF.lab
    cfg.CONF.unregister_opt(option)

    assert same == []
    assert [str(one) for one in found] == ["oslo.config's cfg.CONF ([DEFAULT] lab)"]
    assert now is None


def test_snapshot_with_an_imported_library_that_sets_its_option_is_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    option = cfg.StrOpt("lab")
    before = process_state.snapshot()

    monkeypatch.setitem(sys.modules, "lab_library", ModuleType("lab_library"))
    cfg.CONF.register_opt(option)
    cfg.CONF.set_override("lab", "1")
    found = process_state.changes(before, process_state.snapshot())
    cfg.CONF.unregister_opt(option)

    assert found == []


def test_patches_of_constants_and_defaults_are_named_and_repaired() -> None:
    patches = Patches()
    level = HTTPConnection.debuglevel
    defaults = json.dumps.__kwdefaults__

    HTTPConnection.debuglevel = 1
    ProviderTree.lab = 1  # type: ignore[attr-defined]
    json.dumps.__kwdefaults__ = {**(defaults or {}), "sort_keys": True}

    assert {*patches.restore()} == {
        "http.client.HTTPConnection.debuglevel",
        "json.dumps",
        "wharfinger.providers.tree.ProviderTree.lab",
    }
    assert HTTPConnection.debuglevel == level
    assert not hasattr(ProviderTree, "lab")
    assert json.dumps.__kwdefaults__ == defaults
    assert patches.restore() == []


def test_patches_of_an_object_of_a_class_and_of_a_module_are_named_and_repaired() -> None:
    patches = Patches()
    attempts, module = urllib3.Retry.DEFAULT, sys.modules["json"]

    urllib3.Retry.DEFAULT = urllib3.Retry(10)
    sys.modules["json"] = ModuleType("json")

    assert patches.restore() == ["urllib3.util.retry.Retry.DEFAULT", "json"]
    assert urllib3.Retry.DEFAULT is attempts
    assert sys.modules["json"] is module
    assert patches.restore() == []


def test_patches_of_a_method_its_code_and_a_new_method_are_named_and_repaired() -> None:
    patches = Patches()
    exists, code = ProviderTree.exists, ProviderTree.data.__code__
    where = "wharfinger.providers.tree.ProviderTree"

    ProviderTree.exists = ProviderTree.new_child  # type: ignore[method-assign, assignment]
    ProviderTree.data.__code__ = code.replace(co_name="lab")
    ProviderTree.lab = lambda self: None  # type: ignore[attr-defined]

    assert {*patches.restore()} == {f"{where}.exists", f"{where}.data", f"{where}.lab"}
    assert ProviderTree.exists is exists
    assert ProviderTree.data.__code__ is code
    assert not hasattr(ProviderTree, "lab")
    assert patches.restore() == []
