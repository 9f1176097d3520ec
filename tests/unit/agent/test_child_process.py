"""Memory of a child process of the agent with its descendants, and the end of all of them."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from wharfinger.agent import child_process

MEBIBYTE = 1024 * 1024
#: A child with three forks that share its memory; the last fork has its own process group.
PROGRAM = f"""
import os, time
shared = b"x" * {40 * MEBIBYTE}
pids = []
for number in range(3):
    pids.append(os.fork())
    if not pids[-1]:
        if number == 2:
            os.setpgid(0, 0)
        print(flush=True)
        time.sleep(60)
        os._exit(0)
print(flush=True)
time.sleep(60)
"""


@pytest.fixture
def child() -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, start_new_session=True
    ) as child:
        assert child.stdout is not None
        for _ in range(4):
            assert child.stdout.readline() == b"\n"
        yield child
        child_process.kill_session(child.pid)


def test_memory_counts_forks_and_their_shared_pages_once_at_the_limit(
    child: "subprocess.Popen[bytes]",
) -> None:
    limit = 100 * MEBIBYTE

    assert child_process.memory(child.pid, 1000 * MEBIBYTE) > 4 * 40 * MEBIBYTE
    assert 40 * MEBIBYTE < child_process.memory(child.pid, limit) < limit


def test_killed_session_leaves_no_process(child: "subprocess.Popen[bytes]") -> None:
    assert child_process.kill_session(child.pid)

    assert child.stdout is not None
    assert child.stdout.read() == b""  # the pipe ends when the last process is gone
