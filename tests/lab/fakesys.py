"""Run a real libvirtd and mdevctl on a simulated /sys, for tests/lab/libvirtd.py.

Run it inside mount and network namespaces of its own, as root there::

    unshare --mount --net --propagation unchanged python -I fakesys.py DIRECTORY

The program reads one command per line from stdin ("start" or "kill" libvirtd), and answers each
with a line of JSON. It ends, together with libvirtd, at the end of stdin. It imports only the
standard library.

It acts as the kernel. The ``create`` and ``remove`` files of devices are FIFOs. When mdevctl writes
to one, the program creates or removes an mdev, and sends udev's announcement to all listeners in
the network namespace. There are GPUs, which have mdevs of only one type at a time, as NVIDIA's
have, and a device outside PCI, as the kernel's sample driver mtty has.
"""

import ctypes
import json
import os
import selectors
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
NETLINK_KOBJECT_UEVENT = 15
#: The multicast group of udev's announcements (1 is the kernel's own).
UDEV_GROUP = 2
READY_TIMEOUT = 60.0

GPUS = ("0000:41:00.0", "0000:42:00.0")
#: The mdev types of a GPU: the name, and how many of the GPU's 16 slots one mdev uses.
GPU_TYPES = {"nvidia-35": ("GRID M60-0B", 1), "nvidia-36": ("GRID M60-1Q", 2)}
GPU_SLOTS = 16
SERIAL_TYPES = {"mtty-2": ("Dual port serial", 1)}
SERIAL_SLOTS = 4

SYS = Path("/sys")
libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: Path | str, kind: str | None = None, flags: int = 0) -> None:
    """Call mount(2)."""
    arguments = (os.fsencode(source), os.fsencode(target), kind and kind.encode())
    if libc.mount(*arguments, ctypes.c_ulong(flags), None):
        number = ctypes.get_errno()
        raise OSError(number, f"mounting {kind or source}: {os.strerror(number)}", str(target))


def make_mounts_private() -> None:
    """Make all later mounts private to this namespace.

    Only a mount point can have that flag. In a chroot, / may be a plain directory. So go up to the
    real root, which a process can whose working directory is outside its root; set the flag there,
    and come back.
    """
    root = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    os.chdir("/")
    os.chroot("/usr")
    while not Path("..").samefile("."):
        os.chdir("..")
    mount("none", ".", None, MS_REC | MS_PRIVATE)
    os.fchdir(root)
    os.chroot(".")
    os.close(root)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def link(path: Path, target: Path) -> None:
    """Create a symbolic link with a relative target, as the kernel does in /sys."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(os.path.relpath(target, path.parent))


def prepare_file_system() -> None:
    """Mount empty file systems over the paths that libvirtd uses, and fill in what it needs."""
    make_mounts_private()
    # In a plain chroot, nothing is mounted on /sys.
    has_sys = (SYS / "devices/system/cpu").exists()
    mount("tmpfs", "/run", "tmpfs")
    etc, real_sys = Path("/run/etc"), Path("/run/sys")
    etc.mkdir()
    real_sys.mkdir()
    mount("/etc", etc, None, MS_BIND | MS_REC)
    if has_sys:
        mount("/sys", real_sys, None, MS_BIND | MS_REC)
    else:
        mount("sysfs", real_sys, "sysfs")
    for path in ("/etc", "/var/lib", "/var/cache", "/var/log", "/sys"):
        mount("tmpfs", path, "tmpfs")
    for entry in etc.iterdir():
        if entry.name not in ("group", "libvirt", "mdevctl.d", "passwd"):
            Path("/etc", entry.name).symlink_to(entry)
    # The user and group of the package libvirt-daemon-system, which libvirtd always looks up.
    write(Path("/etc/passwd"), "root:x:0:0:::\nlibvirt-qemu:x:0:0:::\n")
    write(Path("/etc/group"), "root:x:0:\nlibvirt-qemu:x:0:\n")
    system = SYS / "devices/system"
    system.mkdir(parents=True)
    mount(str(real_sys / "devices/system"), system, None, MS_BIND | MS_REC)
    for directory in (
        "/etc/mdevctl.d/scripts.d/callouts",
        "/etc/mdevctl.d/scripts.d/notifiers",
        "/run/libvirt",
        "/run/udev",
        "/sys/bus/pci/devices",
        "/sys/bus/pci/drivers/nvidia",
        "/sys/bus/mdev/devices",
        "/sys/bus/mdev/drivers/nvidia_mdev",
        "/sys/class/mdev_bus",
        "/sys/class/mtty",
        "/sys/fs/cgroup",
        "/sys/kernel/iommu_groups",
    ):
        Path(directory).mkdir(parents=True)
    # libudev listens only if it finds this file of udev.
    write(Path("/run/udev/control"), "")
    write(
        Path("/etc/libvirt/qemu.conf"),
        'user = "root"\ngroup = "root"\nsecurity_driver = "none"\ncgroup_controllers = []\n',
    )
    # libvirt looks for a new mdev when mdevctl has ended, and again only 5 s later. The sleep lets
    # its event thread see the mdev before; only the duration of tests depends on that.
    notifier = Path("/etc/mdevctl.d/scripts.d/notifiers/settle")
    write(notifier, "#!/bin/sh\nsleep 0.05\n")
    notifier.chmod(0o755)


class Uevents:
    """Sends messages about devices to libudev's listeners, in the format of udev."""

    def __init__(self) -> None:
        self._number = 0

    def send(self, action: str, device: Path, subsystem: str, **properties: str) -> None:
        self._number += 1
        record = {
            "ACTION": action,
            "DEVPATH": f"/{device.relative_to(SYS)}",
            "SUBSYSTEM": subsystem,
            "SEQNUM": str(self._number),
            **properties,
        }
        body = b"".join(f"{key}={value}\0".encode() for key, value in record.items())
        magic, header_size = 0xFEEDCAFE, 40
        header = b"libudev\0" + struct.pack("!I", magic)
        header += struct.pack("=III", header_size, header_size, len(body)) + bytes(16)
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_KOBJECT_UEVENT) as sender:
            sender.bind((0, 0))
            with suppress(ConnectionRefusedError):  # libvirtd is not running
                sender.sendto(header + body, (0, UDEV_GROUP))


class Fifos:
    """FIFOs that call a function with each text that is written to them."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self._descriptors: dict[Path, int] = {}

    def make(self, path: Path, callback: Callable[[str], None]) -> None:
        os.mkfifo(path)
        # Also open for writing, so that the FIFO does not end when a writer closes it.
        descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)

        def read() -> None:
            callback(os.read(descriptor, 4096).decode().strip())

        self._descriptors[path] = descriptor
        self.selector.register(descriptor, selectors.EVENT_READ, read)

    def remove(self, path: Path) -> None:
        descriptor = self._descriptors.pop(path)
        self.selector.unregister(descriptor)
        os.close(descriptor)


class Parent:
    """A device on which mdevctl can create mdevs, of one type at a time."""

    def __init__(
        self,
        directory: Path,
        types: Mapping[str, tuple[str, int]],
        slots: int,
        fifos: Fifos,
        uevents: Uevents,
    ) -> None:
        self._directory = directory
        self._types = types
        self._slots = slots
        self._fifos = fifos
        self._uevents = uevents
        self._mdevs: dict[str, str] = {}
        link(SYS / "class/mdev_bus" / directory.name, directory)
        for type_id, (name, cost) in types.items():
            write(self._type(type_id) / "name", f"{name}\n")
            write(self._type(type_id) / "device_api", "vfio-pci\n")
            write(self._type(type_id) / "description", f"takes {cost} of {slots}\n")
            (self._type(type_id) / "devices").mkdir()
            fifos.make(
                self._type(type_id) / "create",
                partial(self._create, type_id),
            )
        self._tell_what_is_available()

    def _type(self, type_id: str) -> Path:
        return self._directory / "mdev_supported_types" / type_id

    def _tell_what_is_available(self) -> None:
        used = sum(self._types[type_id][1] for type_id in self._mdevs.values())
        for type_id, (_, cost) in self._types.items():
            occupied = set(self._mdevs.values()) - {type_id}
            available = 0 if occupied else (self._slots - used) // cost
            path = self._type(type_id) / "available_instances"
            fresh = path.with_suffix(".new")
            write(fresh, f"{available}\n")
            fresh.replace(path)

    def _create(self, type_id: str, uuid: str) -> None:
        device = self._directory / uuid
        groups = SYS / "kernel/iommu_groups"
        group = groups / str(len(list(groups.iterdir())))
        group.mkdir()
        write(device / "uevent", "DRIVER=nvidia_mdev\n")
        link(device / "subsystem", SYS / "bus/mdev")
        link(device / "driver", SYS / "bus/mdev/drivers/nvidia_mdev")
        link(device / "mdev_type", self._type(type_id))
        link(device / "iommu_group", group)
        link(SYS / "bus/mdev/devices" / uuid, device)
        link(self._type(type_id) / "devices" / uuid, device)
        self._fifos.make(device / "remove", lambda _: self._remove(uuid))
        self._mdevs[uuid] = type_id
        self._tell_what_is_available()
        self._uevents.send("add", device, "mdev", DRIVER="nvidia_mdev")

    def _remove(self, uuid: str) -> None:
        device = self._directory / uuid
        self._fifos.remove(device / "remove")
        (self._type(self._mdevs.pop(uuid)) / "devices" / uuid).unlink()
        (SYS / "bus/mdev/devices" / uuid).unlink()
        shutil.rmtree(device)
        self._tell_what_is_available()
        self._uevents.send("remove", device, "mdev")


def make_gpu(address: str) -> Path:
    """Create the files of a GPU in the simulated sysfs, without mdev types; return its path."""
    directory = SYS / "devices/pci0000:00" / address
    vendor, product, pci_class = 0x10DE, 0x13F2, 0x030200
    write(
        directory / "uevent",
        f"DRIVER=nvidia\nPCI_CLASS={pci_class:X}\nPCI_ID={vendor:X}:{product:X}\n"
        f"PCI_SUBSYS_ID={vendor:X}:115E\nPCI_SLOT_NAME={address}\n",
    )
    for name, value in {
        "vendor": f"{vendor:#06x}",
        "device": f"{product:#06x}",
        "subsystem_vendor": f"{vendor:#06x}",
        "subsystem_device": "0x115e",
        "class": f"{pci_class:#08x}",
        "revision": "0xa1",
        "irq": "0",
        "numa_node": "-1",
        "resource": "\n".join(["0x0000000000000000 " * 3] * 13),
    }.items():
        write(directory / name, f"{value}\n")
    config = bytearray(256)
    struct.pack_into("<HHHHBBBB", config, 0, vendor, product, 0, 0x10, 0xA1, 0, 2, 3)
    (directory / "config").write_bytes(config)
    link(directory / "subsystem", SYS / "bus/pci")
    link(directory / "driver", SYS / "bus/pci/drivers/nvidia")
    link(SYS / "bus/pci/devices" / address, directory)
    return directory


def make_serial_card() -> Path:
    """Create the files of a device outside PCI, as the kernel's sample driver mtty does."""
    directory = SYS / "devices/virtual/mtty/mtty"
    write(directory / "uevent", "")
    link(directory / "subsystem", SYS / "class/mtty")
    link(SYS / "class/mtty/mtty", directory)
    return directory


class LabFailure(Exception):
    """libvirtd has ended although it should run."""


class Libvirtd:
    """The daemon libvirtd, with its sockets and log in a directory outside the namespace."""

    def __init__(self, directory: Path) -> None:
        self._log = directory / "libvirtd.log"
        # libvirtd loads the domains in this directory at its start, even without an emulator.
        domains = directory / "qemu"
        domains.mkdir()
        link(Path("/etc/libvirt/qemu"), domains)
        self._configuration = directory / "libvirtd.conf"
        write(
            self._configuration,
            'listen_tls = 0\nauth_unix_rw = "none"\nauth_unix_ro = "none"\n'
            f'unix_sock_dir = "{directory}"\nunix_sock_group = "root"\n'
            f'log_outputs = "3:file:{self._log}"\n',
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start libvirtd, and wait until it is ready."""
        ready = Path("/run/ready")
        ready.unlink(missing_ok=True)
        environment = os.environ | {
            "NOTIFY_SOCKET": str(ready),
            # Otherwise libudev accepts only a real sysfs for /sys.
            "SYSTEMD_DEVICE_VERIFY_SYSFS": "0",
        }
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
            listener.bind(str(ready))
            listener.settimeout(READY_TIMEOUT)
            self._process = subprocess.Popen(
                [
                    "setpriv",
                    "--pdeathsig",
                    "KILL",
                    "libvirtd",
                    "--config",
                    str(self._configuration),
                ],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr,
            )
            while b"READY=1" not in listener.recv(4096):
                pass
        if self._process.poll() is not None:
            raise LabFailure(f"libvirtd ended with {self._process.returncode}")

    def kill(self) -> None:
        """Kill libvirtd as a crash would, and wait until it has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def serve(fifos: Fifos, commands: Mapping[str, Callable[[], None]]) -> None:
    """Serve the FIFOs, and run the commands on stdin, until stdin ends."""
    ended = False

    def obey() -> None:
        nonlocal ended
        command = sys.stdin.readline().strip()
        if not command:
            ended = True
            return
        try:
            commands[command]()
            answer: dict[str, bool | str] = {"done": True}
        except (OSError, LabFailure) as error:
            answer = {"done": False, "error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)

    fifos.selector.register(sys.stdin, selectors.EVENT_READ, obey)
    while not ended:
        # Only the first ready file: its function may remove another one of them.
        key, _ = fifos.selector.select()[0]
        key.data()


def main(directory: Path) -> None:
    prepare_file_system()
    fifos, uevents = Fifos(), Uevents()
    for address in GPUS:
        Parent(make_gpu(address), GPU_TYPES, GPU_SLOTS, fifos, uevents)
    Parent(make_serial_card(), SERIAL_TYPES, SERIAL_SLOTS, fifos, uevents)
    libvirtd = Libvirtd(directory)
    try:
        serve(fifos, {"start": libvirtd.start, "kill": libvirtd.kill})
    finally:
        libvirtd.kill()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
