"""Common code of the real Ironic and Cyborg: files, an API, a database and a log."""

from collections.abc import Mapping
from configparser import RawConfigParser
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import requests
from sqlalchemy import NullPool, create_engine, text

from wharfinger_harnesses.daemons import TIMEOUT, LabError, PythonDaemon, ReservedPort

#: Seconds between two looks at what is to happen.
PAUSE = 0.02

#: Sections of a configuration file, of options.
Options = Mapping[str, Mapping[str, Any]]


class OpenStackService(PythonDaemon):
    """A service on 127.0.0.1, with an empty database.

    ``url`` is what a catalog has for the service. Each request that is sent here has
    ``headers``, such as a token. Later ``options`` override earlier ones.
    """

    #: As its files are called.
    name: ClassVar[str]
    service_program: ClassVar[Path]
    #: Where its API is.
    mounted_at: ClassVar[str] = ""

    root: str
    url: str

    def __init__(self, *options: Options) -> None:
        super().__init__()
        self._options = options
        self.headers: dict[str, str] = {}

    def _setUp(self) -> None:
        """Write the configuration, and choose the database and the port."""
        super()._setUp()
        configuration = RawConfigParser()
        for options in self._options:
            configuration.read_dict(options)
        with (self.directory / f"{self.name}.conf").open("w") as file:
            configuration.write(file)
        own = f"sqlite:///{self.directory}/{self.name}.sqlite"
        database = configuration.get("database", "connection", fallback=own)
        self._engine = create_engine(database, poolclass=NullPool)
        # Chosen here, as the server is to have it again after a stop.
        self.port = self.useFixture(ReservedPort()).number
        self.root = f"http://127.0.0.1:{self.port}"
        self.url = f"{self.root}{self.mounted_at}"

    def serve(self, *arguments: str) -> None:
        """Start it, which takes seconds."""
        self.start_program(self.service_program, str(self.port), *arguments)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> requests.Response:
        """Send a request; returns the answer, also if it is an error."""
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
        """Execute a statement in the service's database, without the service."""
        with self._engine.begin() as connection:
            connection.execute(text(statement), parameters)

    def log(self) -> str:
        """The content of its log so far."""
        with suppress(FileNotFoundError):
            return (self.directory / f"{self.name}.log").read_text(errors="replace")
        return ""

    def _tell(self, what: str) -> str:
        return f"{super()._tell(what)}\n{self.log()}"
