"""Run a real systemd as process 1 of its own namespaces, with only the units of a test.

It sees the machine's files read-only, a copy of /etc, and empty directories in place of /opt, /run,
/tmp, /usr/local/bin and parts of /var. It needs root, and a kernel with cgroup2.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import fixtures

from wharfinger_harnesses.daemons import TIMEOUT, LabError

SYSTEMD = Path("/lib/systemd/systemd")
#: A directory that systemd and its services see, even if a unit hides /tmp or /home.
INSIDE = Path("/run/lab")
UNITS = INSIDE / "units"
#: The file for StandardOutput= and StandardError= of services.
OUTPUT = UNITS / "output"
#: The targets on which units depend by default.
_TARGETS = ("basic", "lab", "multi-user", "network-online", "shutdown", "sysinit")

_BECOME_SYSTEMD = r"""
set -e
lab=$1 inside=$2 python=$3; shift 3
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p $inside/units $inside/etc $inside/python
mount --bind "$lab/units" $inside/units
mount --bind "$python" $inside/python
for path; do
  mkdir $inside/path$((++number))
  mount --bind "$path" $inside/path$number
done
cp -a /etc/. $inside/etc
rm -rf $inside/etc/systemd/system
ln -s $inside/units $inside/etc/systemd/system
mount -t cgroup2 cgroup2 /sys/fs/cgroup
for directory in /opt /tmp /usr/local/bin /var/lib /var/log /var/tmp; do
  mount -t tmpfs tmpfs $directory
done
chmod 1777 /tmp /var/tmp
mount --bind $inside/etc /etc
mount --bind /dev/null /dev/console
mount -o remount,bind,ro /
exec env -i container=lab PATH="$PATH" SYSTEMD_UNIT_PATH=/etc/systemd/system \
  SYSTEMD_GENERATOR_PATH=$inside/none SYSTEMD_ENVIRONMENT_GENERATOR_PATH=$inside/none \
  /lib/systemd/systemd --unit=lab.target --log-target=null --show-status=no
"""


def missing() -> str | None:
    """Return why this machine cannot run a systemd of its own; None if it can."""
    if not SYSTEMD.exists():
        return "no systemd is installed (see bindep.txt)"
    if os.geteuid() != 0:
        return "systemd needs root here"
    if _cgroup2() is None:
        return "no cgroup2 is mounted"
    return None


class Systemd(fixtures.Fixture):
    """systemd whose units are in ``directory``, which services see as ``UNITS``."""

    directory: Path
    _process: "subprocess.Popen[bytes]"

    def __init__(self) -> None:
        super().__init__()
        self._paths = [path for path in sys.path if Path(path).is_dir() and path]

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment in which a service can run the tests' Python with the same packages."""
        paths = [str(INSIDE / f"path{number}") for number, _ in enumerate(self._paths, start=1)]
        return {
            "LD_LIBRARY_PATH": str(INSIDE / "python" / "lib"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONHOME": str(INSIDE / "python"),
            "PYTHONPATH": os.pathsep.join(paths),
        }

    @property
    def python(self) -> Path:
        """The path of the tests' Python, as a service sees it."""
        return INSIDE / "python" / Path(sys.executable).resolve().relative_to(sys.base_prefix)

    def _setUp(self) -> None:
        lab = Path(self.useFixture(fixtures.TempDir()).path)
        lab.chmod(0o755)
        self.directory = lab / "units"
        self.directory.mkdir()
        for name in _TARGETS:
            (self.directory / f"{name}.target").write_text("[Unit]\nDefaultDependencies=no\n")
        self._group = Path(tempfile.mkdtemp(prefix="wharfinger-lab-", dir=_cgroup2()))
        self.addCleanup(self._remove_group)
        self._errors = lab / "stderr"
        arguments = (lab, INSIDE, sys.base_prefix, *self._paths)
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                [
                    *("sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', str(self._group)),
                    # The kernel kills systemd when the process of the tests ends.
                    *("setpriv", "--pdeathsig", "KILL"),
                    *("unshare", "--mount", "--pid", "--fork", "--uts", "--ipc", "--cgroup"),
                    *("--net", "--kill-child", "bash", "-c", _BECOME_SYSTEMD, "bash"),
                    *map(str, arguments),
                ],
                stderr=errors,
            )
        self.addCleanup(self._kill)
        self._wait_until_it_answers()

    def run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """Run a command in the namespaces of systemd; return its exit code and output."""
        return subprocess.run(
            ["nsenter", "--target", str(self._pid()), "--all", "--", *command],
            capture_output=True,
            text=True,
            check=False,
        )

    def systemctl(self, *arguments: str) -> str:
        """Run systemctl, and return its output; raise LabError if it fails."""
        done = self.run("systemctl", *arguments)
        if done.returncode:
            raise LabError(f"systemctl {' '.join(arguments)}: {done.stderr}{self.output()}")
        return done.stdout

    def output(self) -> str:
        """Return what the services have written to the file OUTPUT. There is no journal."""
        path = self.directory / OUTPUT.name
        return path.read_text() if path.exists() else ""

    def show(self, unit: str, name: str) -> str:
        """Return the value of a unit's property."""
        return self.systemctl("show", "--value", "--property", name, unit).strip()

    def wait_for(self, unit: str, name: str, value: str) -> None:
        """Wait until a property of a unit has a value."""
        end = time.monotonic() + TIMEOUT
        while (found := self.show(unit, name)) != value:
            if time.monotonic() > end:
                raise LabError(f"{name} of {unit} is {found!r}, and does not become {value!r}")
            time.sleep(0.02)

    def wait_for_output(self, part: str) -> None:
        """Wait until OUTPUT contains a text."""
        end = time.monotonic() + TIMEOUT
        while part not in (found := self.output()):
            if time.monotonic() > end:
                raise LabError(f"no service writes {part!r}:\n{found}")
            time.sleep(0.02)

    def _wait_until_it_answers(self) -> None:
        end = time.monotonic() + TIMEOUT
        while self._pid() is None or self.run("systemctl", "is-active", "lab.target").returncode:
            if self._process.poll() is not None or time.monotonic() > end:
                raise LabError(f"systemd does not start:\n{self._errors.read_text()}")
            time.sleep(0.02)

    def _pid(self) -> int | None:
        """Return the process id of systemd, None before it has started."""
        pid = self._process.pid
        with suppress(FileNotFoundError, ValueError):
            return int(Path(f"/proc/{pid}/task/{pid}/children").read_text())
        return None

    def _kill(self) -> None:
        self._process.kill()  # the kernel then kills systemd and all processes of its namespace
        self._process.wait()

    def _remove_group(self) -> None:
        """Wait until the control group has no process, and remove it."""
        end = time.monotonic() + TIMEOUT
        while "populated 1" in (self._group / "cgroup.events").read_text():
            if time.monotonic() > end:
                raise LabError(f"processes of systemd are left in {self._group}")
            time.sleep(0.02)
        for path, _, _ in os.walk(self._group, topdown=False):
            Path(path).rmdir()


def _cgroup2() -> Path | None:
    """Return the directory on which cgroup2 is mounted, None if it is not."""
    mounts = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    return next((Path(mount[1]) for mount in mounts if mount[2] == "cgroup2"), None)
