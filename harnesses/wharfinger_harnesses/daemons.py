"""Start programs of this machine as servers for the tests."""

import os
import pwd
import selectors
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import fixtures

#: Seconds to wait for anything, also on a busy machine.
TIMEOUT = 300.0
#: The most bytes of a path in the kernel's sockaddr_un.
MAX_SOCKET_PATH = 107
#: Directories of Debian with programs that are not on a user's PATH.
MORE_DIRECTORIES = ("usr/sbin", "sbin", "usr/lib/postgresql/*/bin")
#: User that runs the servers if root starts them: PostgreSQL refuses to run as root.
SERVER_USER = "nobody"


class LabError(Exception):
    """A server for tests cannot be set up, or does not work."""


def path_with(programs: Mapping[str, str]) -> str:
    """Return a PATH with these programs. Raises LabError if one is missing."""
    more = [
        str(directory)
        for pattern in MORE_DIRECTORIES
        for directory in sorted(Path("/").glob(pattern), reverse=True)  # the latest PostgreSQL
    ]
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), *more))
    for program, package in programs.items():
        if shutil.which(program, path=path) is None:
            raise LabError(f"there is no {program}: install {package} (see bindep.txt)")
    return path


def socket_in(directory: Path, name: str) -> Path:
    """Return the path for a Unix socket. Raises LabError if it is too long."""
    path = directory / name
    if len(os.fsencode(path)) > MAX_SOCKET_PATH:
        raise LabError(f"{path} is too long for a socket: set TMPDIR to a shorter path")
    return path


class ReservedPort(fixtures.Fixture):
    """Reserves a port of 127.0.0.1 for a server that sets SO_REUSEADDR."""

    number: int

    def _setUp(self) -> None:
        holder = socket.socket()
        self.addCleanup(holder.close)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        self.number = holder.getsockname()[1]


class Daemon(fixtures.Fixture):
    """A server with its own directory, which reports by systemd's protocol when it is ready.

    The clean-up raises LabError if the server has already ended without ``stop``.
    """

    #: Programs that the server needs, with their Debian packages.
    programs: Mapping[str, str] = {}
    #: Signal that ends the server at once and leaves no process behind.
    ended_by = signal.SIGKILL

    directory: Path
    process: "subprocess.Popen[bytes]"

    def setUp(self) -> None:
        """Set up the fixture. Raises LabError directly, not within MultipleExceptions."""
        try:
            super().setUp()
        except fixtures.MultipleExceptions as errors:
            cause = errors.args[0][1]
            if not isinstance(cause, LabError):
                raise
            raise cause from None

    def stop(self, by: signal.Signals | None = None) -> None:
        """Stop the server with a signal, and wait for its end."""
        self._stopped = True
        self.process.send_signal(by or self.ended_by)
        self.process.wait(TIMEOUT)

    def start_again(self) -> None:
        """Start the server again after ``stop``."""
        self.start(*self._command)

    def _setUp(self) -> None:
        self._path = path_with({**self.programs, "setpriv": "util-linux"})
        self.directory = Path(self.useFixture(fixtures.TempDir()).path)
        self._log = self.directory / "log"
        self._becoming: tuple[str, ...] = ()
        if os.geteuid() == 0:
            self._give_up_root()

    def _give_up_root(self) -> None:
        for parent in self.directory.parents:
            if not parent.stat().st_mode & stat.S_IXOTH:
                raise LabError(
                    f"{SERVER_USER} may not enter {parent}: set TMPDIR to a directory that all "
                    "users may enter"
                )
        user = pwd.getpwnam(SERVER_USER)
        try:
            os.chown(self.directory, user.pw_uid, user.pw_gid)
        except OSError as error:
            raise LabError(
                f"root cannot run servers as {SERVER_USER} here: run as another user ({error})"
            ) from error
        self._becoming = (
            *("--reuid", str(user.pw_uid), "--regid", str(user.pw_gid)),
            "--clear-groups",
        )

    def prepare(self, *command: str) -> None:
        """Run a command in the directory. Raises LabError if it fails."""
        process = self._run(command, {})
        try:
            process.wait(TIMEOUT)
        finally:
            process.kill()
        if process.returncode:
            raise LabError(self._tell(f"{command[0]} failed with {process.returncode}"))

    def start(self, *command: str) -> None:
        """Start the server, and wait until it is ready. Raises LabError."""
        self._command, self._stopped = command, False
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
            listener.bind("")  # the kernel chooses a name outside of the file system
            name = listener.getsockname().decode().replace("\0", "@")
            self.process = self._run(command, {"NOTIFY_SOCKET": name})
            self.addCleanup(self._end)
            if not self._gets_ready(listener):
                raise LabError(self._tell(f"{command[0]} did not start"))
        self.addCleanup(self._check, command[0])

    def _run(
        self, command: tuple[str, ...], environment: Mapping[str, str]
    ) -> "subprocess.Popen[bytes]":
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [
                    *("setpriv", *self._becoming),
                    *("--pdeathsig", self.ended_by.name.removeprefix("SIG")),
                    *("--", *command),
                ],
                env={
                    **os.environ,
                    "PATH": self._path,
                    "TMPDIR": str(self.directory),
                    **environment,
                },
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl+C reaches only the process of the tests
            )

    def _gets_ready(self, listener: socket.socket) -> bool:
        end = os.pidfd_open(self.process.pid)
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(listener, selectors.EVENT_READ)
                selector.register(end, selectors.EVENT_READ)
                while events := selector.select(TIMEOUT):
                    if end in [key.fd for key, _ in events]:
                        break
                    if b"READY=1" in listener.recv(4096):
                        return True
            return False
        finally:
            os.close(end)

    def _check(self, name: str) -> None:
        if not self._stopped and self.process.poll() is not None:
            code = self.process.returncode
            raise LabError(self._tell(f"{name} ended with {code} during the test"))

    def _end(self) -> None:
        try:
            self.stop()
        finally:
            self.process.kill()
            self.process.wait()

    def _tell(self, what: str) -> str:
        return f"{what}:\n{self._log.read_text(errors='replace')}"


class PythonDaemon(Daemon):
    """A server that is a Python file of this project."""

    def start_program(self, program: Path, *arguments: str) -> None:
        """Start a Python file, with the directory as its first argument."""
        python = (sys.executable, "-I", "-W", "ignore")
        self.start(*python, str(program), str(self.directory), *arguments)

    def _give_up_root(self) -> None:
        pass
