"""The machine's uptime from the kernel."""

from pathlib import Path

import pytest

from wharfinger.reconcile import kernel_uptime


def test_read_within_one_boot_increases() -> None:
    first, second = kernel_uptime.read(), kernel_uptime.read()
    assert first is not None
    assert second is not None
    assert first.boot_id == second.boot_id
    assert first.seconds <= second.seconds


@pytest.mark.parametrize("content", [None, b"", b"unknown\n", b"\xff"])
def test_read_without_a_boot_id_returns_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    path = tmp_path / "boot_id"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setattr(kernel_uptime, "BOOT_ID", path)
    assert kernel_uptime.read() is None
