"""Removals that wait, removals that are refused, and the options that allow them."""

import copy
from xml.etree import ElementTree

import pytest

from tests.functional.cli.outcomes import change
from tests.lab import inprocess
from tests.lab.placement import Requests
from tests.lab.program import Program

FREE = "pci_0000_c4_00_0"
GONE = "gpu-host-1_pci_0000_c5_00_0"


@pytest.fixture
def shrunk(program: Program) -> Program:
    """The program after a sync of a host with three GPUs, which now has two."""
    program.has_host("host-grown.xml")
    assert inprocess.run(program, "sync").code == 0
    program.has_host("host.xml")
    return program


def has_more_gpus(program: Program, count: int) -> None:
    """Add ``count`` GPUs to the sample host, each a copy of its free GPU."""
    program.has_host("host.xml")
    path = program.directory / "host.xml"
    tree = ElementTree.parse(path)
    host = tree.getroot()
    (free,) = (one for one in host.findall("device") if one.findtext("name") == FREE)
    for bus in range(0x90, 0x90 + count):
        gpu = copy.deepcopy(free)
        for tag, text in (("name", f"pci_0000_{bus:02x}_00_0"), ("capability/bus", str(bus))):
            element = gpu.find(tag)
            assert element is not None
            element.text = text
        host.append(gpu)
    tree.write(path)


def names(program: Program) -> set[str]:
    return {row["Name"] for row in inprocess.run(program, "provider", "list", "-f", "json").json()}


def test_pending_removal_is_reported_as_no_change(shrunk: Program, requests: Requests) -> None:
    requests.clear()

    planned = inprocess.run(shrunk, "sync", "--dry-run")
    synced = inprocess.run(shrunk, "sync")
    again = inprocess.run(shrunk, "sync", "-f", "json").json()[0]

    for done in (planned, synced):
        assert (done.code, done.err) == (0, "")
        assert GONE in done.out
        assert "gpus: no change\n" in done.out
    assert [item["name"] for item in again["pending"]] == [GONE]
    assert "absent for" in again["pending"][0]["reason"]
    assert (again["steps"], again["problems"]) == ([], [])
    assert not requests.writes
    assert GONE in names(shrunk)


def test_second_listing_without_delay_removes_an_absent_provider(shrunk: Program) -> None:
    first = inprocess.run(shrunk, "sync", "--removal-delay", "0")
    planned = inprocess.run(shrunk, "sync", "--removal-delay", "0", "--dry-run")
    later = inprocess.run(shrunk, "sync", "--dry-run")
    second = inprocess.run(shrunk, "sync", "--removal-delay", "0")

    assert [first.code, planned.code, later.code, second.code] == [0, 2, 0, 0]
    assert f"- {GONE} (" in planned.out
    assert f"- {GONE} (" in second.out
    assert "gpus: 1 change written" in second.out
    assert GONE not in names(shrunk)


def test_removal_delay_of_the_configuration_applies_without_the_option(shrunk: Program) -> None:
    change(shrunk, "[gpus]\n", "[gpus]\nremoval_delay = 0\n")

    inprocess.run(shrunk, "sync")
    kept = inprocess.run(shrunk, "sync", "--removal-delay", "3600")
    removed = inprocess.run(shrunk, "sync")

    assert "gpus: no change\n" in kept.out
    assert f"- {GONE} (" in removed.out


def test_mass_removal_is_refused_until_allowed(program: Program) -> None:
    has_more_gpus(program, 5)
    assert inprocess.run(program, "sync").code == 0
    everything = names(program)
    assert len(everything) == 8
    program.has_host("host.xml")

    for _ in range(2):  # --allow-mass-removal does not shorten the delay
        done = inprocess.run(program, "sync", "--allow-mass-removal")
        assert (done.code, done.err) == (0, "")
        assert "gpus: no change\n" in done.out
    refused = inprocess.run(program, "sync", "--removal-delay", "0")
    planned = inprocess.run(program, "sync", "--removal-delay", "0", "--dry-run")

    assert [refused.code, planned.code] == [1, 1]
    for done in (refused, planned):
        assert "5 of the 8 providers of driver instance gpus were not removed" in done.err
        assert "--allow-mass-removal" in done.err
    assert names(program) == everything

    allowed = ("--removal-delay", "0", "--allow-mass-removal")
    assert inprocess.run(program, "sync", *allowed, "--dry-run").code == 2
    done = inprocess.run(program, "sync", *allowed)
    assert (done.code, done.err) == (0, "")
    assert "gpus: 5 changes written" in done.out
    assert len(names(program)) == 3
    assert inprocess.run(program, "sync").out == "gpus: no change\n"
