"""The demo, and the picture in README.md of its result."""

import os
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

from tools import demo

REPOSITORY = Path(__file__).parents[2]


def test_demo_succeeds_and_the_picture_shows_its_result(tmp_path: Path) -> None:
    path = os.pathsep.join(filter(None, (str(REPOSITORY), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "tools.demo", ".demo"]

    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, ""), done
    lines = done.stdout.splitlines()
    assert len(lines) <= 80
    assert max(map(len, lines)) <= 100
    assert [line[:3] for line in lines if "/5 " in line] == ["1/5", "2/5", "3/5", "4/5", "5/5"]
    _, *arguments = lines[-1].split()
    drawing = [demo.PROGRAM, *arguments, "--format", "svg"]
    picture = subprocess.check_output(drawing, cwd=tmp_path, text=True)
    assert _words(picture) == _words((REPOSITORY / "docs" / "tree.svg").read_text())


def test_demo_with_other_output_fails_and_names_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def one_step(self: demo.Demo) -> None:
        self._heading("1/1 Print the version")
        self._wharfinger("--version", "wharfinger 0", "no such text")

    monkeypatch.setattr(demo.Demo, "run", one_step)

    assert demo.main(tmp_path / "demo") == 1

    printed = " ".join(capsys.readouterr().out.split())
    log = tmp_path / "demo" / "log"
    assert "1/1 Print the version: failed: the output lacks 'no such text'." in printed
    assert str(log) in printed
    assert "DemoError" in log.read_text()


def _words(picture: str) -> list[str]:
    """Return the words of an SVG without the ages of reservations."""
    texts = " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", picture))
    return re.sub(r" \d+[smh] ", " AGE ", unescape(texts).replace("\xa0", " ")).split()
