"""The ``openstack`` program with its osc-placement plugin, in a process of its own."""

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
    """The program with a Placement that is served over HTTP; ``directory`` is its home."""

    url: str
    directory: Path

    def run(self, *commands: str) -> Done:
        """Run commands one after the other, as at its prompt."""
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
        """Return the JSON answer of each command; fail if any command prints an error."""
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
