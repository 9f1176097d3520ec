"""Run the program ``openstack`` with its osc-placement plugin."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lab.program import Done


@dataclass(frozen=True)
class OpenStack:
    """The program ``openstack`` with the Placement at ``url``; ``directory`` is its HOME."""

    url: str
    directory: Path

    def run(self, *commands: str) -> Done:
        """Run commands one after the other in one process; return its exit code and output."""
        done = subprocess.run(
            [str(Path(sys.executable).with_name("openstack"))],
            input="".join(f"{command}\n" for command in commands),
            capture_output=True,
            text=True,
            check=False,
            cwd=self.directory,
            env=dict(self._environment()),
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def answers(self, commands: Iterable[str]) -> list[Any]:
        """Return the JSON output of each command; fail if a command prints an error."""
        done = self.run(*(f"{command} -f json" for command in commands))
        assert not done.err, done.err
        return list(documents(done.out))

    def _environment(self) -> Iterator[tuple[str, str]]:
        yield from ((key, value) for key, value in os.environ.items() if key[:3] != "OS_")
        yield "HOME", str(self.directory)
        yield "OS_AUTH_TYPE", "admin_token"
        yield "OS_ENDPOINT", self.url
        yield "OS_TOKEN", "admin"
        yield "OS_PLACEMENT_API_VERSION", "1.39"


def documents(text: str) -> Iterator[Any]:
    """Yield the consecutive JSON documents of a text."""
    decoder = json.JSONDecoder()
    while text := text.lstrip():
        document, end = decoder.raw_decode(text)
        yield document
        text = text[end:]
