"""Common code of the fixtures for Ironic and Cyborg."""

from collections.abc import Mapping
from configparser import RawConfigParser
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import requests
from sqlalchemy import NullPool, create_engine, text

from wharfinger_harnesses.daemons import TIMEOUT, LabError, PythonDaemon, ReservedPort

#: Seconds between two checks of a condition that is waited for.
PAUSE = 0.02

#: The options of a configuration file, by section and by name.
Options = Mapping[str, Mapping[str, Any]]


class OpenStackService(PythonDaemon):
    """An OpenStack service on 127.0.0.1. Later options override earlier ones."""

    #: The name of the service, which its files have, too.
    name: ClassVar[str]
    service_program: ClassVar[Path]
    #: The path of the API below ``root``.
    mounted_at: ClassVar[str] = ""

    root: str
    url: str

    def __init__(self, *options: Options) -> None:
        super().__init__()
        self._options = options
        self.headers: dict[str, str] = {}

    def _setUp(self) -> None:
        super()._setUp()
        configuration = RawConfigParser()
        for options in self._options:
            configuration.read_dict(options)
        with (self.directory / f"{self.name}.conf").open("w") as file:
            configuration.write(file)
        own = f"sqlite:///{self.directory}/{self.name}.sqlite"
        database = configuration.get("database", "connection", fallback=own)
        self._engine = create_engine(database, poolclass=NullPool)
        # Not chosen by the server, which needs the same port again after a stop.
        self.port = self.useFixture(ReservedPort()).number
        self.root = f"http://127.0.0.1:{self.port}"
        self.url = f"{self.root}{self.mounted_at}"

    def serve(self, *arguments: str) -> None:
        """Start the service."""
        self.start_program(self.service_program, str(self.port), *arguments)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> requests.Response:
        """Send a request; return the answer, even an error."""
        return requests.request(
            method,
            f"{self.url}{path}",
            json=body,
            headers={**self.headers, **headers},
            timeout=TIMEOUT,
        )

    def _succeed(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        answer = self.ask(method, path, body, **headers)
        if not answer.ok:
            raise LabError(f"{method} {path}: {answer.status_code}: {answer.text}")
        return answer.json() if answer.content else None

    def execute(self, statement: str, **parameters: Any) -> None:
        """Execute an SQL statement in the service's database."""
        with self._engine.begin() as connection:
            connection.execute(text(statement), parameters)

    def log(self) -> str:
        """Return the content of the service's log."""
        with suppress(FileNotFoundError):
            return (self.directory / f"{self.name}.log").read_text(errors="replace")
        return ""

    def _tell(self, what: str) -> str:
        return f"{super()._tell(what)}\n{self.log()}"
