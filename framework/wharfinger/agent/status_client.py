"""Read the status of an agent on the same host."""

from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Final

import msgspec

from wharfinger.agent import listening_sockets
from wharfinger.agent.status import AgentStatus
from wharfinger.exceptions import AgentError, WharfingerError, shown

#: Seconds without a byte of the answer after which the client gives up.
TIMEOUT: Final = 5.0
#: The largest number of bytes of an answer.
_LONGEST: Final = 64 * 1024 * 1024
_OK: Final = 200


def read_status(path: Path) -> AgentStatus:
    """Return the status of the agent behind a Unix socket. Raises WharfingerError."""
    connection = _UnixConnection(path)
    try:
        connection.request("GET", "/status")
        response = connection.getresponse()
        body = response.read(_LONGEST)
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError) as error:
        raise _failed(
            path,
            f"no agent answers: {error.strerror}.",
            "Start the agent, or name its configuration with --config-file.",
        ) from error
    except PermissionError as error:
        raise _failed(
            path,
            f"this user may not connect: {error.strerror}.",
            "Run the command as the agent's user, or as a member of its group if it may enter the "
            "directory.",
        ) from error
    except TimeoutError as error:
        raise _failed(
            path,
            f"the agent did not answer for {TIMEOUT:g} s.",
            "The agent may hang or be overloaded. Read the log of the agent, and restart the "
            "agent.",
        ) from error
    except (OSError, HTTPException) as error:
        raise _failed(
            path, f"the answer did not arrive: {shown(error)}.", "Read the log of the agent."
        ) from error
    finally:
        connection.close()
    if response.status != _OK:
        raise _failed(path, f"the answer is {response.status}.", "Read the log of the agent.")
    try:
        return msgspec.json.decode(body, type=AgentStatus)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _failed(
            path,
            f"the answer is not understood: {shown(error)}.",
            "The agent may run another release than this command: restart the agent.",
        ) from error


class _UnixConnection(HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost")
        self._path: Final = path

    def connect(self) -> None:
        self.sock = listening_sockets.connect(self._path, TIMEOUT)


def _failed(path: Path, problem: str, remedy: str) -> WharfingerError:
    return AgentError(
        reason=f"the status of the agent cannot be read from {path}: {problem} {remedy}"
    )
