"""Bind Unix sockets to paths of any length."""

import os
import socket
from pathlib import Path


def bind(listener: socket.socket, path: Path) -> None:
    """Bind a socket to a path, which may be longer than a socket address allows."""
    directory = os.open(path.parent, os.O_PATH)
    try:
        listener.bind(f"/proc/self/fd/{directory}/{path.name}")
    finally:
        os.close(directory)
