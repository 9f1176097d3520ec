"""Hosts that cannot be: told with the place and the value, and nothing is written to Placement.

Through libvirt's own test driver, which reads a host from a file.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.lab.cycles import HOST, contents
from tests.lab.libvirt_driver import INSTANCE, make_driver
from tests.lab.placement import PlacementFixture, Requests
from tests.lab.program import SAMPLE, Program
from wharfinger.exceptions import WharfingerError
from wharfinger.objects.context import local
from wharfinger.placement.embedded import EmbeddedPlacement
from wharfinger.providers.ownership import Publisher
from wharfinger.providers.removal import RemovalPolicy
from wharfinger.tracker.cycle import DriverCycle, Outcome
from wharfinger_libvirt.connection import Connection
from wharfinger_libvirt.host import read_devices

NODE = "gpu-host-1"
GOOD = (SAMPLE / "host.xml").read_text()
GPU = "<name>pci_0000_84_00_0</name>"
SECRET = "pci_0000_99_00_0"
#: What a host with every slot of hundreds of buses filled would have; see `many`.
MANY = 20_000

Spoil = Callable[[Path], bytes]


def replaced(old: str, new: str, count: int = 1) -> Spoil:
    """The good host with something else in it."""
    assert old in GOOD
    return lambda directory: GOOD.replace(old, new, count).encode()


def named(name: str) -> Spoil:
    """The good host, its first GPU under another name."""
    return replaced(GPU, f"<name>{name}</name>")


def with_entity(declarations: str) -> Spoil:
    """The good host, with the entity ``e`` for a GPU's name."""

    def spoil(directory: Path) -> bytes:
        (directory / "secret").write_text(SECRET)
        uri = (directory / "secret").as_uri()
        head = f"<!DOCTYPE node [{declarations.replace('@secret@', uri)}]>\n<node>"
        return GOOD.replace("<node>", head, 1).replace(GPU, "<name>&e;</name>").encode()

    return spoil


LAUGHS = "<!ENTITY a0 'pci_0'>{}<!ENTITY e '&a9;'>".format(
    "".join(f"<!ENTITY a{n} '{f'&a{n - 1};' * 10}'>" for n in range(1, 10))
)

#: By name: how the file is spoilt, and what the error says of it.
CASES: dict[str, tuple[Spoil, tuple[str, ...]]] = {
    "empty": (lambda directory: b"", ("host.xml", "Document is empty")),
    "text": (lambda directory: b"nonsense", ("host.xml:1", "nonsense")),
    "binary": (lambda directory: b"\0\1\2\xff", ("host.xml:1",)),
    "another-document": (lambda directory: b"<html/>", ("host.xml", "'node'", "'html'")),
    "truncated": (lambda directory: GOOD[: len(GOOD) // 2].encode(), ("host.xml", "expected '>'")),
    "not-utf-8": (
        lambda directory: GOOD.replace("NVIDIA", "\udcff").encode("utf-8", "surrogateescape"),
        ("host.xml", "UTF-8"),
    ),
    "laughs": (with_entity(LAUGHS), ("host.xml", "entity")),
    "outside": (with_entity("<!ENTITY e SYSTEM '@secret@'>"), ("host.xml", "name")),
    "network": (
        with_entity("<!ENTITY e SYSTEM 'http://127.0.0.1:1/'>"),
        ("host.xml",),
    ),
    "no-memory": (replaced(">268435456<", ">0<"), ("0 MiB",)),
    "memory-negative": (replaced(">268435456<", ">-1<"), ("host.xml", "memory")),
    "memory-text": (replaced(">268435456<", ">much<"), ("host.xml", "memory")),
    "memory-without-end": (
        replaced(">268435456<", f">{2**63 - 1}<"),
        (NODE, "memory_mb", str((2**63 - 1) // 1024), "from 0 to 2147483647"),
    ),
    "no-cpus": (replaced("<active>64", "<active>0"), ("0 CPUs",)),
    "cpus-negative": (replaced("<active>64", "<active>-5"), ("host.xml", "cpu")),
    "no-name": (replaced(GPU, ""), ("host.xml", "name")),
    "name-blank": (named("  "), ("no <name>",)),
    "name-201": (
        named(f"pci_{'x' * 200}"),
        (f"{NODE}_pci_{'x' * 200}", "1 to 200 characters"),
    ),
    "name-newline": (named("pci_&#10;x"), ("pci_\\nx", "control characters")),
    "name-control": (named("pci_&#133;x"), ("pci_\\x85x", "control characters")),
    "name-right-to-left": (named("pci_&#8238;x"), ("pci_\\u202ex", "characters")),
    "name-markup": (named("[red]x[/red]"), ("[red]x[/red]", "letters, digits")),
    "name-path": (named("../../etc/passwd"), ("../../etc/passwd", "letters, digits")),
    "name-unicode": (named("pci_\N{SNOWMAN}"), ("pci_\N{SNOWMAN}", "letters, digits")),
    "one-address-twice": (
        replaced("<bus>196<", "<bus>132<"),
        ("pci_0000_84_00_0", "pci_0000_c4_00_0", "0000:84:00.0"),
    ),
    "bus-256": (replaced("<bus>132<", "<bus>256<"), ("84_00_0", "<bus> is 256", "0 to 255")),
    "bus-negative": (replaced("<bus>132<", "<bus>-1<"), ("84_00_0", "bus")),
    "slot-32": (replaced("<slot>0<", "<slot>32<", -1), ("<slot> is 32", "0 to 31")),
    "function-8": (replaced("<function>0<", "<function>8<", -1), ("<function> is 8", "0 to 7")),
    "vendor": (replaced("id='0x10de'", "id='zz'"), ("84_00_0", "vendor")),
    "numa": (replaced("<numa node='0'/>", "<numa node='x'/>"), ("18_00_0", "NUMA")),
    "available-negative": (replaced("Instances>6<", "Instances>-6<"), ("nvidia-231",)),
    "available-text": (replaced("Instances>6<", "Instances>six<"), ("nvidia-231",)),
    "available-2**31": (
        replaced("Instances>6<", f"Instances>{2**31}<"),
        ("84_00_0", "<availableInstances>", str(2**31), "0 to 2147483647"),
    ),
    "available-and-active-2**31": (
        replaced("Instances>6<", f"Instances>{2**31 - 1}<"),
        (f"{NODE}_pci_0000_84_00_0", "VGPU", str(2**31 + 1), "1 to 2147483647"),
    ),
    "type-without-id": (replaced("<type id='nvidia-231'>", "<type>"), ("id", "type")),
    "mdev-of-no-type": (replaced("<type id='nvidia-231'/>", "<type/>"), ("type",)),
    "mdev-of-no-parent": (
        replaced("<parent>pci_0000_84_00_0</parent>", ""),
        ("mdev_3c2f1f0e", "without a <parent>"),
    ),
    "the-type-is-gone": (
        replaced("nvidia-231", "nvidia-299", -1),
        ("enabled_mdev_types", "nvidia-231"),
    ),
    "gone": (lambda directory: pytest.fail("the file is not written"), ("host.xml",)),
}


class Host:
    """A host in a file, with a driver instance that publishes it."""

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
        self.cycle = DriverCycle(
            driver,
            Publisher(INSTANCE, driver.default_owner),
            placement.new_client(),
            self.context,
            RemovalPolicy(delay=0),
        )

    def is_as(self, content: str | bytes) -> None:
        self.path.write_bytes(content if isinstance(content, bytes) else content.encode())

    def is_spoilt(self, case: str) -> None:
        if case == "gone":
            self.path.unlink(missing_ok=True)
        else:
            self.is_as(CASES[case][0](self.directory))

    def error(self) -> str:
        """What the sync says went wrong, in its outcome or instead of one."""
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


@dataclass(frozen=True)
class Told:
    """What came of a bad host, and the sync after it, when the host is well again."""

    error: str
    writes: list[str]
    afterwards: Outcome | None


@pytest.fixture(scope="module")
def told(
    placement_service: EmbeddedPlacement, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, str], Told]:
    """All cases, before the host is published for the first time and after it."""
    answers = {}
    with PlacementFixture(placement_service) as placement:
        host = Host(tmp_path_factory.mktemp("host"), placement)
        for case in CASES:
            answers["a first sync", case] = one_case(host, placement, case)
        host.is_as(GOOD)
        assert not host.cycle.sync().problems
        for case in CASES:
            one = one_case(host, placement, case)
            host.is_as(GOOD)
            answers["a later sync", case] = replace(one, afterwards=host.cycle.sync())
        host.context.close()
    return answers


def one_case(host: Host, placement: PlacementFixture, case: str) -> Told:
    host.is_spoilt(case)
    placement.requests.clear()
    return Told(host.error(), placement.requests.writes, None)


@pytest.mark.parametrize("sync", ["a first sync", "a later sync"])
@pytest.mark.parametrize("case", CASES)
def test_a_host_that_cannot_be_is_told_and_nothing_is_written(
    told: dict[tuple[str, str], Told], case: str, sync: str
) -> None:
    one = told[sync, case]

    assert [word for word in CASES[case][1] if word not in one.error] == [], one.error
    assert one.error.isprintable()
    assert SECRET not in one.error
    assert not one.writes
    if one.afterwards is not None:
        assert one.afterwards == Outcome()


@pytest.mark.parametrize("case", ["not-utf-8", "name-markup"])
def test_the_program_tells_of_a_host_that_cannot_be_in_one_line(
    tmp_path: Path, placement_url: tuple[str, Requests], case: str
) -> None:
    program = Program(tmp_path, placement_url[0])
    spoil, told = CASES[case]
    (tmp_path / "host.xml").write_bytes(spoil(tmp_path))

    failed = program.run("sync")

    assert failed.code == 1
    assert failed.err.startswith("gpus: ")
    assert failed.err.count("\n") == 1, failed.err
    assert [word for word in told if word not in failed.err] == [], failed.err
    assert not placement_url[1].writes
    program.has_host("host.xml")
    assert program.run("sync").code == 0


# Size.


def functions(start: int) -> Iterator[str]:
    """PCI functions without end, as libvirt describes them; none of them offers mdevs."""
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


def many(count: int, last: str = "") -> str:
    """The good host with that many more devices, in PCI domains of their own."""
    more = "".join(islice(functions(1 << 16), count))
    return GOOD.replace("</node>", f"{more}{last}</node>")


def test_a_host_of_very_many_devices_is_published(host: Host, placement: PlacementFixture) -> None:
    host.is_as(many(MANY))

    assert not host.cycle.sync().problems

    found = contents(placement)
    assert found.keys() == {NODE, *(f"{NODE}_pci_0000_{bus}_00_0" for bus in ("84", "c4"))}


def test_one_wrong_device_among_very_many_is_found_and_nothing_is_written(
    host: Host, placement: PlacementFixture
) -> None:
    wrong = re.sub("<slot>.*</slot>", "<slot>32</slot>", next(functions(0)))
    host.is_as(many(MANY, wrong))

    told = host.error()

    assert "pci_0000_00_00_0" in told
    assert "<slot> is 32, not from 0 to 31" in told
    assert not placement.requests.writes


class Handle:
    """virNodeDevice; counts how often it is asked."""

    def __init__(self, xml: str, asked: list[int]) -> None:
        self._xml = xml
        self._asked = asked

    def name(self) -> str:
        return "device"

    def XMLDesc(self, flags: int) -> str:  # noqa: N802
        self._asked[0] += 1
        return self._xml

    def isActive(self) -> int:  # noqa: N802
        return 1


class Hardware:
    """virConnect, with very many devices."""

    def __init__(self, count: int) -> None:
        self.asked = [0]
        self._devices = [Handle(xml, self.asked) for xml in islice(functions(0), count)]

    def listAllDevices(self, flags: int) -> list[Any]:  # noqa: N802
        return list(self._devices)


def test_each_of_very_many_devices_is_asked_for_twice_and_no_more() -> None:
    hardware = Hardware(MANY)

    found = read_devices(Connection(hardware, INSTANCE), INSTANCE)

    assert len(found) == MANY
    assert hardware.asked == [2 * MANY]
