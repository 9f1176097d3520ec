"""Checks of a new configuration, which run in another process."""

import os
import signal
from pathlib import Path

import pytest

from wharfinger.agent import child_process
from wharfinger.agent.configuration_check import ProcessCheck
from wharfinger.agent.configuration_snapshot import Snapshot


def test_end_of_a_check_that_survives_sigkill_is_logged_and_does_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "wharfinger.conf"
    path.write_text(f"[DEFAULT]\nstate_path = {tmp_path}\n")
    command = ("/bin/sh", "-c", "exec sleep 60", "check")
    check = ProcessCheck(Snapshot([str(path)]), command, lambda _new: None)
    with monkeypatch.context() as patch:
        patch.setattr(child_process, "KILL_TIMEOUT", 0.0)
        # Simulate a process that the kernel does not end.
        patch.setattr("os.killpg", lambda *_: None)
        patch.setattr(child_process, "_session", lambda _: iter(()))
        check.end()
    assert "the check of the configuration does not end after SIGKILL" in caplog.text

    os.killpg(check._process.pid, signal.SIGKILL)
    check._process.wait()
