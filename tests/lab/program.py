"""Run the program wharfinger in a process of its own, with the GPU host of the sample files."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAM = str(Path(sys.executable).with_name("wharfinger"))
SAMPLE = Path(__file__).resolve().parents[2] / "etc" / "wharfinger" / "sample"


@dataclass(frozen=True)
class Done:
    """The exit code and the output of a program."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


def run_command(command: list[str], cwd: Path) -> Done:
    """Run a command; return its exit code and output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd)
    return Done(done.returncode, done.stdout, done.stderr)


class Program:
    """The program with its own configuration file and state directory.

    It uses the Placement at ``placement_url``, or without a URL the embedded one.
    """

    def __init__(self, directory: Path, placement_url: str | None = None) -> None:
        self.directory = directory
        self.config = directory / "wharfinger.conf"
        sample = (SAMPLE / "wharfinger.conf").read_text().replace("@demo@", str(directory))
        if placement_url is not None:
            sample += (
                "\n[placement]\nembedded = false\nauth_type = admin_token\n"
                f"endpoint = {placement_url}\ntoken = admin\n"
                f"endpoint_override = {placement_url}\n"
            )
        self.config.write_text(sample)
        self.has_host("host.xml")

    def has_host(self, name: str) -> None:
        """Replace the host of libvirt's test driver by that of a sample file."""
        shutil.copy(SAMPLE / name, self.directory / "host.xml")

    def run(self, *arguments: str, config: Path | None = None) -> Done:
        """Run the program; return its exit code and output."""
        return run_command(self._command(*arguments, config=config), self.directory)

    def run_without_reader(self, *arguments: str) -> None:
        """Run the program with a pipe as its standard output that no process reads."""
        reader, writer = os.pipe()
        os.close(reader)
        try:
            subprocess.run(
                self._command(*arguments),
                stdout=writer,
                stderr=subprocess.DEVNULL,
                check=False,
                cwd=self.directory,
            )
        finally:
            os.close(writer)

    def _command(self, *arguments: str, config: Path | None = None) -> list[str]:
        return [PROGRAM, "--config-file", str(config or self.config), *arguments]
