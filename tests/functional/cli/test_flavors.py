"""``wharfinger flavor``: as ``openstack flavor`` has it, for those without nova."""

from pathlib import Path
from uuid import UUID

import pytest

from tests.lab import inprocess, samples
from tests.lab.objects import KeptInFile
from tests.lab.program import Done, Program
from wharfinger.objects import Flavor, FlavorList


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def flavor(program: Program, *arguments: str) -> Done:
    return inprocess.run(program, "flavor", *arguments)


def names(kept: KeptInFile) -> list[str]:
    return [one.name for one in FlavorList.get_by_filters(kept.context)]


# Created.


def test_a_flavor_without_further_words_is_as_nova_has_it(
    program: Program, kept: KeptInFile
) -> None:
    created = program.run("flavor", "create", "small", "-f", "json")

    assert (created.code, created.err) == (0, "")
    data = created.json()
    assert data.keys() == Flavor.fields.keys()
    assert str(UUID(data.pop("flavorid"))) == kept.row("flavors")["flavorid"]
    assert data == {
        "name": "small",
        "vcpus": 1,
        "memory_mb": 256,
        "root_gb": 0,
        "ephemeral_gb": 0,
        "swap": 0,
        "rxtx_factor": 1.0,
        "disabled": False,
        "is_public": True,
        "description": None,
        "extra_specs": {},
        "revision": 1,
    }


def test_a_flavor_is_created_with_all_that_is_said(program: Program, kept: KeptInFile) -> None:
    done = flavor(
        program,
        *("create", "large ⚓", "--id", "a 1._-Z", "--vcpus", "64", "--ram", "2147483647"),
        *("--disk", "80", "--ephemeral", "5", "--swap", "512", "--rxtx-factor", "2.5"),
        *("--private", "--description", "of two\nlines", "--property", "resources:VGPU=1"),
        *("--property", "hw:cpu_policy=a=b", "--property", "x. _-:=", "-f", "json"),
    )

    assert (done.code, done.err) == (0, "")
    made = Flavor.get_by_flavor_id(kept.context, "a 1._-Z")
    assert (made.name, made.vcpus, made.memory_mb) == ("large ⚓", 64, 2147483647)
    assert (made.root_gb, made.ephemeral_gb, made.swap) == (80, 5, 512)
    assert (made.rxtx_factor, made.is_public, made.disabled) == (2.5, False, False)
    assert made.description == "of two\nlines"
    specs = {"resources:VGPU": "1", "hw:cpu_policy": "a=b", "x. _-:": ""}
    assert made.extra_specs == specs
    assert (done.json()["extra_specs"], done.json()["revision"]) == (specs, made.revision)


def test_an_id_is_made_where_none_is_wanted(program: Program, kept: KeptInFile) -> None:
    for name in ("one", "two"):
        assert flavor(program, "create", name, "--id", "auto", "--public").code == 0

    ids = {str(UUID(one.flavorid)) for one in FlavorList.get_by_filters(kept.context)}
    assert len(ids) == 2


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "NAME"),
        (("",), "argument NAME: '' is not a name: 1 to 255 characters"),
        ((" small",), "' small' is not a name"),
        (("two\nlines",), r"'two\nlines' is not a name"),
        (("s" * 256,), "is not a name"),
        (("small", "--id", ""), "argument --id: '' is not an id: 1 to 255 letters"),
        (("small", "--id", "a/b"), "'a/b' is not an id"),
        (("small", "--id", "a "), "'a ' is not an id"),
        (("small", "--vcpus", "0"), "argument --vcpus: '0' is not a whole number from 1 to 2147"),
        (("small", "--vcpus", "2.5"), "'2.5' is not a whole number"),
        (("small", "--vcpus", "1_0"), "'1_0' is not a whole number"),
        (("small", "--vcpus", "2147483648"), "'2147483648' is not a whole number"),
        (("small", "--ram", "0"), "argument --ram: '0' is not a whole number from 1 to"),
        (("small", "--ram", "9" * 5000), "argument --ram: '999"),
        (
            (
                "small",
                "--disk=-1",
            ),
            "argument --disk: '-1' is not a whole number from 0 to",
        ),
        (("small", "--ephemeral", "x"), "argument --ephemeral: 'x'"),
        (("small", "--swap", "1G"), "argument --swap: '1G'"),
        (("small", "--rxtx-factor", "0"), "argument --rxtx-factor: '0' is not a number above 0"),
        (("small", "--rxtx-factor", "nan"), "'nan' is not a number above 0"),
        (("small", "--rxtx-factor", "1e999"), "'1e999' is not a number above 0"),
        (("small", "--rxtx-factor", "much"), "'much' is not a number above 0"),
        (("small", "--public", "--private"), "not allowed with argument --public"),
        (("small", "--description", ""), "argument --description: '' is not text of 1 to 65535"),
        (("small", "--property", "VGPU"), "argument --property: 'VGPU' is not KEY=VALUE"),
        (("small", "--property", "=1"), "'' is not a key: 1 to 255 letters"),
        (("small", "--property", "a/b=1"), "'a/b' is not a key"),
        (("small", "--property", f"{'k' * 256}=1"), "is not a key"),
        (("small", "--property", f"a={'v' * 256}"), "the value of a: 'vvv"),
        (("small", "--property", "a=\udcff"), r"the value of a: '\udcff' is not text"),
        (("small", "--property", "a=1", "--property", "a=1"), "--property: a is given twice"),
    ],
)
def test_what_cannot_be_is_wrong_usage_by_option_value_and_what_would_be_right(
    program: Program, kept: KeptInFile, arguments: tuple[str, ...], told: str
) -> None:
    done = flavor(program, "create", *arguments)

    assert (done.code, done.out) == (64, "")
    assert told in done.err
    assert len(done.err) < 3000
    assert names(kept) == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("large", "--id", "id-1"), "there is a flavor of the id id-1 already"),
        (("flavor-1",), "there is a flavor of the name flavor-1 already"),
        (("flavor-2", "--id", "id-1"), "there is a flavor of the id id-1 already"),
    ],
)
def test_what_is_taken_is_told(
    program: Program, kept: KeptInFile, arguments: tuple[str, ...], told: str
) -> None:
    for number in (1, 2):
        samples.flavor(kept.context, number).create()

    done = flavor(program, "create", *arguments)

    assert (done.code, done.out) == (1, "")
    assert done.err == f"{told}: give this one another\n"
    assert names(kept) == ["flavor-1", "flavor-2"]


# Listed and shown.


def test_flavors_are_listed_as_they_were_created(program: Program, kept: KeptInFile) -> None:
    for number in (2, 1):
        samples.flavor(kept.context, number, swap=number).create()

    done = program.run("flavor", "list", "-f", "json")

    assert (done.code, done.err) == (0, "")
    assert done.json() == [
        {
            "ID": f"id-{number}",
            "Name": f"flavor-{number}",
            "RAM": 512,
            "Disk": 0,
            "Ephemeral": 0,
            "Swap": number,
            "VCPUs": 2,
            "Is Public": True,
        }
        for number in (2, 1)
    ]


def test_a_flavor_of_which_part_is_damaged_is_listed_and_shown(
    program: Program, kept: KeptInFile
) -> None:
    for number in (1, 2):
        samples.flavor(kept.context, number).create()
    kept.write("flavors", {"vcpus": -1, "extra_specs": "{"}, flavorid="id-1")

    listed = flavor(program, "list", "-f", "value", "-c", "Name", "-c", "VCPUs")
    shown = flavor(program, "show", "flavor-1", "-f", "json")

    assert (listed.code, listed.out) == (0, "flavor-1 ?\nflavor-2 2\n")
    assert shown.code == 0
    assert (shown.json()["vcpus"], shown.json()["extra_specs"]) == ("?", "?")
    assert shown.json()["memory_mb"] == 512
    for field in ("vcpus", "extra_specs"):
        assert f"Flavor id-1: nothing is known of {field}: what is stored in" in shown.err


def test_what_a_terminal_would_not_take_is_escaped(program: Program, kept: KeptInFile) -> None:
    samples.flavor(kept.context, flavorid="\x1b[2J", description="two\nlines").create()
    kept.write("flavors", {"swap": -1})

    for arguments in (("list",), ("show", "\x1b[2J"), ("delete", "\x1b[2J", "\x1b[2K")):
        done = flavor(program, *arguments)
        assert "\x1b" not in done.out + done.err
        assert r"\x1b[2J" in done.out


def test_an_id_goes_before_a_name(program: Program, kept: KeptInFile) -> None:
    samples.flavor(kept.context, 1, flavorid="id", name="other").create()
    samples.flavor(kept.context, 2, flavorid="another", name="id").create()

    for wanted, found in (("id", "id"), ("another", "another"), ("other", "id")):
        shown = flavor(program, "show", wanted, "-f", "value", "-c", "flavorid")
        assert (shown.code, shown.out) == (0, f"{found}\n")


def test_a_flavor_that_is_not_there_is_told(program: Program, kept: KeptInFile) -> None:
    done = flavor(program, "show", "none")

    assert (done.code, done.out, done.err) == (1, "", "there is no Flavor none\n")


# Deleted.


def test_flavors_are_deleted_by_id_or_name(program: Program, kept: KeptInFile) -> None:
    for number in (1, 2, 3):
        samples.flavor(kept.context, number).create()

    done = program.run("flavor", "delete", "id-1", "flavor-3")

    assert (done.code, done.err) == (0, "")
    assert done.out == "flavor-1 (id-1): deleted\nflavor-3 (id-3): deleted\n"
    assert names(kept) == ["flavor-2"]


def test_one_that_cannot_be_deleted_does_not_stop_the_others(
    program: Program, kept: KeptInFile
) -> None:
    for number in (1, 2):
        samples.flavor(kept.context, number).create()

    done = flavor(program, "delete", "id-1", "none", "id-2")

    assert done.code == 1
    assert done.out == "flavor-1 (id-1): deleted\nflavor-2 (id-2): deleted\n"
    assert done.err == "none: there is no Flavor none\n"
    assert names(kept) == []


def test_a_flavor_of_which_no_revision_is_known_is_told_and_left(
    program: Program, kept: KeptInFile
) -> None:
    samples.flavor(kept.context, 1).create()
    kept.write("flavors", {"revision": -1})

    done = flavor(program, "delete", "id-1")

    assert (done.code, done.out) == (1, "")
    assert "id-1: Flavor id-1: nothing is known of revision" in done.err
    assert kept.row("flavors")["name"] == "flavor-1"


def test_a_flavor_that_is_named_twice_is_deleted_once(program: Program, kept: KeptInFile) -> None:
    samples.flavor(kept.context, 1).create()

    assert flavor(program, "delete", "id-1", "id-1").code == 0


def test_a_name_may_be_taken_again(program: Program, kept: KeptInFile) -> None:
    for _ in range(2):
        assert flavor(program, "create", "small", "--id", "1").code == 0
        assert flavor(program, "delete", "small").code == 0


@pytest.mark.parametrize("arguments", [("show",), ("delete",), ("delete", ""), ("list", "all")])
def test_wrong_usage_exits_with_64(program: Program, arguments: tuple[str, ...]) -> None:
    assert flavor(program, *arguments).code == 64
