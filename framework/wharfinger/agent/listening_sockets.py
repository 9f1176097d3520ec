"""Unix and TCP sockets of the agent's health server."""

import contextlib
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from wharfinger.conf import agent
from wharfinger.exceptions import ConfigurationError
from wharfinger.private_files import make_directory

_MODE: Final = 0o660
#: Connections that wait to be accepted.
_BACKLOG: Final = 128
#: Seconds that a starting agent waits for another starting agent.
_PATIENCE: Final = 5.0


@contextmanager
def unix_socket(path: Path) -> Iterator[socket.socket]:
    """Listen on a Unix socket until the context ends. Raises ConfigurationError."""
    with ExitStack() as stack:
        try:
            make_directory(path.parent)
            directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, directory)
            with _directory_lock(directory, path):
                _delete_stale_socket(directory, path)
                listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                listener.bind(_short_address(directory, path.name))
                stack.callback(
                    _delete_unless_replaced, directory, path.name, _identity(directory, path.name)
                )
                # chmod ignores the umask. No client can connect before the socket listens.
                os.chmod(path.name, _MODE, dir_fd=directory)
                listener.listen(_BACKLOG)
        except OSError as error:
            raise _unusable_socket(
                path,
                f"{error.strerror or error}.",
                "Configure a path where the agent's user may create a socket.",
            ) from error
        yield listener


def connect(path: Path, timeout: float) -> socket.socket:
    """Connect to the Unix socket of an agent. Raises OSError."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return _connect(directory, path.name, timeout)
    finally:
        os.close(directory)


@contextmanager
def tcp_sockets(host: str, port: int) -> Iterator[list[socket.socket]]:
    """Listen on a port of a host name until the context ends. Raises ConfigurationError."""
    with ExitStack() as stack:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            listeners = []
            for family, kind, protocol, _name, address in dict.fromkeys(found):
                listener = stack.enter_context(socket.socket(family, kind, protocol))
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                listener.bind(address)
                listener.listen(_BACKLOG)
                listeners.append(listener)
        except (OSError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise ConfigurationError(
                section=agent.GROUP,
                key="health_address",
                value=f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
                problem=f"the agent cannot listen on this address: {reason}.",
                remedy="Configure an address of this machine, and a free port that the agent's "
                "user may open.",
            ) from error
        yield listeners


def _short_address(directory: int, name: str) -> str:
    # The address of a socket has at most 107 bytes.
    return f"/proc/self/fd/{directory}/{name}"


def _connect(directory: int, name: str, timeout: float) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout)
        connection.connect(_short_address(directory, name))
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def _directory_lock(directory: int, path: Path) -> Iterator[None]:
    try:
        _lock(directory)
    except BlockingIOError as error:
        raise _unusable_socket(
            path,
            f"another process has kept the directory locked for {_PATIENCE:g} s.",
            "Stop the other agent, or configure another path.",
        ) from error
    try:
        yield
    finally:
        fcntl.flock(directory, fcntl.LOCK_UN)


@retry(
    retry=retry_if_exception_type(BlockingIOError),
    stop=stop_after_delay(_PATIENCE),
    wait=wait_fixed(0.05),
    reraise=True,
)
def _lock(directory: int) -> None:
    fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _delete_stale_socket(directory: int, path: Path) -> None:
    try:
        found = os.stat(path.name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return
    if stat.S_ISLNK(found.st_mode):
        raise _unusable_socket(path, "the path is a symbolic link.")
    if not stat.S_ISSOCK(found.st_mode):
        raise _unusable_socket(path, "the path is a file that is not a socket.")
    if found.st_uid != os.geteuid():
        raise _unusable_socket(path, f"the socket belongs to user {found.st_uid}.")
    try:
        _connect(directory, path.name, timeout=1.0).close()
    except ConnectionRefusedError:
        os.unlink(path.name, dir_fd=directory)
    except OSError:
        # Its process listens, but its queue of connections is full.
        raise _running(path) from None
    else:
        raise _running(path)


def _identity(directory: int, name: str) -> tuple[int, int]:
    found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    return found.st_dev, found.st_ino


def _delete_unless_replaced(directory: int, name: str, identity: tuple[int, int]) -> None:
    with contextlib.suppress(FileNotFoundError):
        if _identity(directory, name) == identity:
            os.unlink(name, dir_fd=directory)


def _running(path: Path) -> ConfigurationError:
    return _unusable_socket(
        path,
        "another process already listens on the socket.",
        "Stop the other agent, or configure another path.",
    )


def _unusable_socket(
    path: Path, problem: str, remedy: str = "Move this file away, or configure another path."
) -> ConfigurationError:
    return ConfigurationError(
        section=agent.GROUP,
        key="health_socket",
        value=str(path),
        problem=f"the agent cannot listen on this Unix socket: {problem}",
        remedy=remedy,
    )
