"""Notifications to systemd, for which a datagram socket stands in."""

import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from wharfinger.agent.systemd import SystemdNotifier

MINUTE = "60000000"


class StandInForSystemd:
    """A datagram socket that receives notifications as systemd does."""

    def __init__(self, notify_socket: str) -> None:
        self.notify_socket = notify_socket
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"\0{notify_socket[1:]}" if notify_socket[0] == "@" else notify_socket)
        self._socket.setblocking(False)

    def received(self) -> list[str]:
        """Return the messages since the last call, without waiting."""
        messages = []
        while True:
            try:
                messages.append(self._socket.recv(4096).decode())
            except BlockingIOError:
                return messages

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def systemd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StandInForSystemd]:
    path = str(tmp_path / "notify")
    stand_in = StandInForSystemd(path if request.param == "path" else f"@{path}")
    yield stand_in
    stand_in.close()


@pytest.fixture
def notifier(systemd: StandInForSystemd) -> SystemdNotifier:
    return SystemdNotifier({"NOTIFY_SOCKET": systemd.notify_socket, "WATCHDOG_USEC": MINUTE})


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]


def test_notifier_at_each_moment_sends_its_message(
    systemd: StandInForSystemd, notifier: SystemdNotifier
) -> None:
    notifier.ready()
    notifier.status("2 instances run")
    notifier.alive()
    notifier.stopping()

    assert systemd.received() == ["READY=1", "STATUS=2 instances run", "WATCHDOG=1", "STOPPING=1"]


def test_reloading_sends_the_moment_of_the_monotonic_clock(
    systemd: StandInForSystemd, notifier: SystemdNotifier
) -> None:
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
    notifier.reloading()
    after = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000

    (message,) = systemd.received()
    assert message.startswith("RELOADING=1\nMONOTONIC_USEC=")
    assert before <= int(message.rpartition("=")[2]) <= after


def test_status_whose_text_has_several_lines_sends_one_line(
    systemd: StandInForSystemd, notifier: SystemdNotifier
) -> None:
    notifier.status("metal: no answer\nSTOPPING=1")

    assert systemd.received() == ["STATUS=metal: no answer\\nSTOPPING=1"]


def test_status_of_any_length_fits_into_a_message_of_systemd(
    systemd: StandInForSystemd, notifier: SystemdNotifier
) -> None:
    notifier.status("x" + "é" * 5000)

    assert systemd.received() == ["STATUS=x" + "é" * 1023]


def test_lost_ready_is_repeated_with_the_next_status_even_if_that_is_unchanged(
    tmp_path: Path,
) -> None:
    path = tmp_path / "notify"
    systemd = StandInForSystemd(str(path))
    notifier = SystemdNotifier({"NOTIFY_SOCKET": str(path)})
    notifier.status("2 instances run")
    path.rename(tmp_path / "away")
    notifier.ready()
    (tmp_path / "away").rename(path)

    notifier.status("2 instances run")
    notifier.stopping()

    assert systemd.received() == [
        "STATUS=2 instances run",
        "READY=1\nSTATUS=2 instances run",
        "STOPPING=1",
    ]
    systemd.close()


def test_unchanged_status_is_sent_once(
    systemd: StandInForSystemd, notifier: SystemdNotifier
) -> None:
    for text in ("starting", "starting", "running", "starting"):
        notifier.status(text)

    assert systemd.received() == ["STATUS=starting", "STATUS=running", "STATUS=starting"]


def test_notifier_takes_its_variables_out_of_the_environment_of_children(
    systemd: StandInForSystemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", systemd.notify_socket)
    monkeypatch.setenv("WATCHDOG_USEC", MINUTE)
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))

    notifier = SystemdNotifier(os.environ)
    child = "import os; print(*(name for name in os.environ if 'NOTIFY' in name or 'DOG' in name))"
    inherited = subprocess.check_output([sys.executable, "-S", "-c", child], text=True)

    assert inherited.split() == []
    assert notifier.watchdog_interval == 30
    notifier.ready()
    assert systemd.received() == ["READY=1"]


def test_notifier_without_systemd_sends_nothing_and_logs_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.socket", None)
    notifier = SystemdNotifier({})

    notifier.ready()
    notifier.reloading()
    notifier.status("running")
    notifier.alive()
    notifier.stopping()

    assert caplog.records == []
    assert notifier.watchdog_interval is None


@pytest.mark.parametrize(
    ("usec", "pid", "interval"),
    [
        (MINUTE, None, 30),
        (MINUTE, "of this process", 30),
        (MINUTE, "of its parent", None),
        (MINUTE, "", None),
        ("1", None, 0.0000005),
        (None, "of this process", None),
    ],
)
def test_watchdog_of_another_process_is_ignored(
    systemd: StandInForSystemd,
    caplog: pytest.LogCaptureFixture,
    usec: str | None,
    pid: str | None,
    interval: float | None,
) -> None:
    pids = {"of this process": str(os.getpid()), "of its parent": str(os.getppid()), "": ""}
    environment = {"NOTIFY_SOCKET": systemd.notify_socket}
    if usec is not None:
        environment["WATCHDOG_USEC"] = usec
    if pid is not None:
        environment["WATCHDOG_PID"] = pids[pid]
    notifier = SystemdNotifier(environment)

    notifier.alive()

    assert notifier.watchdog_interval == interval
    assert systemd.received() == ([] if interval is None else ["WATCHDOG=1"])
    assert caplog.records == []


@pytest.mark.parametrize("usec", ["", "0", "-1", "30s", "1.5", "٣", "9" * 5000])
def test_watchdog_interval_of_zero_is_logged_and_ignored(
    caplog: pytest.LogCaptureFixture, usec: str
) -> None:
    notifier = SystemdNotifier({"WATCHDOG_USEC": usec})

    assert notifier.watchdog_interval is None
    (line,) = warnings(caplog)
    assert "WATCHDOG_USEC is " in line
    assert "WatchdogSec=" in line


@pytest.mark.parametrize("address", ["notify", "/nowhere/notify", "@nobody", "@", "/" + "x" * 200])
def test_socket_without_a_reader_is_logged_once_and_raises_nothing(
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    address: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    notifier = SystemdNotifier({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": MINUTE})

    notifier.ready()
    notifier.alive()
    notifier.status("running")
    notifier.stopping()

    (line,) = warnings(caplog)
    assert "NOTIFY_SOCKET" in line


def test_socket_that_vanishes_is_logged_once_and_used_again_after_its_return(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.INFO)
    path = tmp_path / "notify"
    systemd = StandInForSystemd(str(path))
    notifier = SystemdNotifier({"NOTIFY_SOCKET": str(path)})
    notifier.status("running")
    systemd.close()
    path.unlink()

    for _ in range(3):
        notifier.ready()
        notifier.status("1 instance fails")
    assert len(warnings(caplog)) == 1

    systemd = StandInForSystemd(str(path))
    notifier.status("1 instance fails")
    assert systemd.received() == ["READY=1\nSTATUS=1 instance fails"]
    assert ": solved: " in caplog.messages[-1]
    assert len(caplog.records) == 2
    systemd.close()


def test_message_to_a_full_queue_is_dropped_and_the_next_one_is_sent(
    caplog: pytest.LogCaptureFixture, systemd: StandInForSystemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wharfinger.agent.systemd._PATIENCE", 0.01)
    notifier = SystemdNotifier({"NOTIFY_SOCKET": systemd.notify_socket, "WATCHDOG_USEC": MINUTE})
    queued = int(Path("/proc/sys/net/unix/max_dgram_qlen").read_text()) + 1

    for _ in range(queued + 3):
        notifier.alive()

    assert systemd.received() == ["WATCHDOG=1"] * queued
    (line,) = warnings(caplog)
    assert "timed out" in line
    notifier.alive()
    assert systemd.received() == ["WATCHDOG=1"]
