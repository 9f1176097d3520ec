"""Impossible hosts: the error names the place and the value, and Placement is unchanged.

libvirt's test driver reads these hosts from a file. The module has hosts that libvirt refuses, and
faults that only a whole host or its providers show. tests/unit/libvirt has faults of one device.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest

from tests.lab import inprocess
from tests.lab.cycles import HOST, contents
from tests.lab.libvirt_driver import INSTANCE, make_driver
from tests.lab.placement import PlacementFixture, Requests
from tests.lab.program import SAMPLE, Program
from wharfinger.exceptions import WharfingerError
from wharfinger.objects.database_context import local
from wharfinger.providers.ownership import Publisher
from wharfinger.providers.removal import RemovalPolicy
from wharfinger.reconcile.cycle import Reconciler
from wharfinger.reconcile.cycle_result import CycleResult

NODE = "gpu-host-1"
GOOD = (SAMPLE / "host.xml").read_text()
GPU = "<name>pci_0000_84_00_0</name>"
SECRET = "pci_0000_99_00_0"
#: More devices than a request or a message lists.
MANY = 3_000

Spoil = Callable[[Path], str]


def replaced(old: str, new: str, count: int = 1) -> Spoil:
    """Return a function that makes the good host with this text replaced."""
    assert old in GOOD
    return lambda directory: GOOD.replace(old, new, count)


def named(name: str) -> Spoil:
    """Return a function that makes the good host with another name for its first GPU."""
    return replaced(GPU, f"<name>{name}</name>")


def with_an_outside_entity(directory: Path) -> str:
    (directory / "secret").write_text(SECRET)
    entity = f"<!ENTITY e SYSTEM '{(directory / 'secret').as_uri()}'>"
    head = f"<!DOCTYPE node [{entity}]>\n<node>"
    return GOOD.replace("<node>", head, 1).replace(GPU, "<name>&e;</name>")


#: By name: a function that makes the damaged file, and texts of the error.
CASES: dict[str, tuple[Spoil, tuple[str, ...]]] = {
    "truncated": (lambda directory: GOOD[: len(GOOD) // 2], ("host.xml", "expected '>'")),
    "not-utf-8": (lambda directory: GOOD.replace("NVIDIA", "\udcff"), ("host.xml", "UTF-8")),
    "outside": (with_an_outside_entity, ("host.xml", "name")),
    "no-memory": (replaced(">268435456<", ">0<"), ("0 MiB",)),
    "memory-without-end": (
        replaced(">268435456<", f">{2**63 - 1}<"),
        (NODE, "memory_mb", str((2**63 - 1) // 1024), "from 0 to 2147483647"),
    ),
    "name-blank": (named("  "), ("no <name>",)),
    "name-201": (
        named(f"pci_{'x' * 200}"),
        (f"{NODE}_pci_{'x' * 200}", "1 to 200 characters"),
    ),
    "name-right-to-left": (named("pci_&#8238;x"), ("pci_\\u202ex", "not printable")),
    "name-markup": (named("[red]x[/red]"), ("[red]x[/red]", "letters, digits")),
    "one-address-twice": (
        replaced("<bus>196<", "<bus>132<"),
        ("pci_0000_84_00_0", "pci_0000_c4_00_0", "0000:84:00.0"),
    ),
    "slot-32": (replaced("<slot>0<", "<slot>32<", -1), ("<slot> is 32", "0 to 31")),
    "function-8": (replaced("<function>0<", "<function>8<", -1), ("<function> is 8", "0 to 7")),
    "available-2**31": (
        replaced("Instances>6<", f"Instances>{2**31}<"),
        ("84_00_0", "<availableInstances>", str(2**31), "0 to 2147483647"),
    ),
    "available-and-active-2**31": (
        replaced("Instances>6<", f"Instances>{2**31 - 1}<"),
        (f"{NODE}_pci_0000_84_00_0", "VGPU", str(2**31 + 1), "1 to 2147483647"),
    ),
    "the-type-is-gone": (
        replaced("nvidia-231", "nvidia-299", -1),
        ("enabled_mdev_types", "nvidia-231"),
    ),
}


class Host:
    """A host in a file, and a driver instance that publishes it."""

    def __init__(self, directory: Path, placement: PlacementFixture) -> None:
        self.directory = directory
        self.path = directory / "host.xml"
        self.context = local(directory / "state", HOST)
        driver = make_driver(
            directory,
            f"[DEFAULT]\nstate_path = {directory}\n[{INSTANCE}]\n"
            f"driver = libvirt\nconnection_uri = test://{self.path}\nhypervisor_hostname = {NODE}\n"
            "enabled_mdev_types = nvidia-231\n",
        )
        self.cycle = Reconciler(
            driver,
            Publisher(INSTANCE, driver.default_owner),
            placement.new_client(),
            self.context,
            RemovalPolicy(delay=0),
        )

    def is_as(self, content: str) -> None:
        self.path.write_bytes(content.encode("utf-8", "surrogateescape"))

    def error(self) -> str:
        """Return the error that the sync reports or raises."""
        try:
            [problem] = self.cycle.sync().problems
        except WharfingerError as error:
            return str(error)
        return str(problem)


@pytest.fixture
def host(tmp_path: Path, placement: PlacementFixture) -> Iterator[Host]:
    one = Host(tmp_path, placement)
    yield one
    one.context.close()


@pytest.mark.parametrize("published", [False, True], ids=["a first sync", "a later sync"])
def test_sync_of_an_impossible_host_names_the_fault_and_writes_nothing(
    host: Host, placement: PlacementFixture, published: bool
) -> None:
    if published:
        host.is_as(GOOD)
        assert not host.cycle.sync().problems
    for case, (spoil, words) in CASES.items():
        host.is_as(spoil(host.directory))
        placement.requests.clear()

        told = host.error()

        assert [word for word in words if word not in told] == [], (case, told)
        assert told.isprintable(), case
        assert SECRET not in told
        assert not placement.requests.writes, case
        if published:
            host.is_as(GOOD)
            assert host.cycle.sync() == CycleResult(), case

    host.path.unlink()
    assert "host.xml" in host.error()


def test_program_reports_an_impossible_host_in_one_line(
    tmp_path: Path, placement_url: tuple[str, Requests]
) -> None:
    program = Program(tmp_path, placement_url[0])
    spoil, words = CASES["name-markup"]
    (tmp_path / "host.xml").write_text(spoil(tmp_path))

    failed = inprocess.run(program, "sync")

    assert failed.code == 1
    assert failed.err.startswith("gpus: ")
    assert failed.err.count("\n") == 1, failed.err
    assert [word for word in words if word not in failed.err] == [], failed.err
    assert not placement_url[1].writes
    program.has_host("host.xml")
    assert inprocess.run(program, "sync").code == 0


def functions(start: int) -> Iterator[str]:
    """Yield the XML of PCI functions without mdevs, endlessly."""
    number = start
    while True:
        rest, function = divmod(number, 8)
        rest, slot = divmod(rest, 32)
        domain, bus = divmod(rest, 256)
        yield (
            f"<device><name>pci_{domain:04x}_{bus:02x}_{slot:02x}_{function}</name>"
            f"<parent>computer</parent><capability type='pci'><class>0x020000</class>"
            f"<domain>{domain}</domain><bus>{bus}</bus><slot>{slot}</slot>"
            f"<function>{function}</function><product id='0x1572'/><vendor id='0x8086'/>"
            "</capability></device>"
        )
        number += 1


def test_sync_of_many_devices_names_the_wrong_device(
    host: Host, placement: PlacementFixture
) -> None:
    more = "".join(islice(functions(1 << 16), MANY))
    wrong = next(functions(0)).replace("<slot>0</slot>", "<slot>32</slot>")
    host.is_as(GOOD.replace("</node>", f"{more}{wrong}</node>"))

    told = host.error()

    assert "pci_0000_00_00_0" in told
    assert "<slot> is 32, not from 0 to 31" in told
    assert not placement.requests.writes

    host.is_as(GOOD.replace("</node>", f"{more}</node>"))
    assert not host.cycle.sync().problems
    assert contents(placement).keys() == {
        NODE,
        *(f"{NODE}_pci_0000_{bus}_00_0" for bus in ("84", "c4")),
    }
