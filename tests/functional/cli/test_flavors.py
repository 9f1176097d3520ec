"""``wharfinger flavor``, which follows ``openstack flavor``, for sites without nova."""

import shlex
from pathlib import Path
from uuid import UUID

import pytest

from tests.functional.cli.outcomes import failed, shown
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


# Create.


def test_create_without_options_has_novas_defaults(program: Program, kept: KeptInFile) -> None:
    created = flavor(program, "create", "small", "--id", "auto", "-f", "json")

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


def test_create_with_all_options_stores_them(program: Program, kept: KeptInFile) -> None:
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


def test_create_with_existing_id_or_name_is_refused(program: Program, kept: KeptInFile) -> None:
    for number in (1, 2):
        samples.flavor(kept.context, number).create()

    for arguments, told in (
        (("large", "--id", "id-1"), "a flavor with the id id-1 already exists"),
        (("flavor-1",), "a flavor with the name flavor-1 already exists"),
        (("flavor-2", "--id", "id-1"), "a flavor with the id id-1 already exists"),
    ):
        failed(flavor(program, "create", *arguments), told)
    assert names(kept) == ["flavor-1", "flavor-2"]


# List and show.


def test_list_has_flavors_in_order_of_creation(program: Program, kept: KeptInFile) -> None:
    for number in (2, 1):
        samples.flavor(kept.context, number, swap=number).create()

    assert shown(program, "flavor", "list") == [
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


def test_damaged_flavor_is_listed_and_shown_with_question_marks(
    program: Program, kept: KeptInFile
) -> None:
    for number in (1, 2):
        samples.flavor(kept.context, number).create()
    kept.write("flavors", {"vcpus": -1, "extra_specs": "{"}, flavorid="id-1")

    listed = flavor(program, "list", "-f", "value", "-c", "Name", "-c", "VCPUs")
    one = flavor(program, "show", "flavor-1", "-f", "json")

    assert (listed.code, listed.out) == (0, "flavor-1 ?\nflavor-2 2\n")
    assert one.code == 0
    assert (one.json()["vcpus"], one.json()["extra_specs"]) == ("?", "?")
    assert one.json()["memory_mb"] == 512
    for field in ("vcpus", "extra_specs"):
        assert f"Flavor id-1: {field} has no value: the value of" in one.err


def test_control_characters_in_flavors_are_escaped(program: Program, kept: KeptInFile) -> None:
    samples.flavor(kept.context, flavorid="\x1b[2J", description="two\nlines").create()
    kept.write("flavors", {"swap": -1})

    for arguments in (("list",), ("show", "\x1b[2J"), ("delete", "\x1b[2J", "\x1b[2K")):
        done = flavor(program, *arguments)
        assert "\x1b" not in done.out + done.err
        assert r"\x1b[2J" in done.out


def test_show_prefers_an_id_to_a_name(program: Program, kept: KeptInFile) -> None:
    samples.flavor(kept.context, 1, flavorid="id", name="other").create()
    samples.flavor(kept.context, 2, flavorid="another", name="id").create()

    for wanted, found in (("id", "id"), ("another", "another"), ("other", "id")):
        one = flavor(program, "show", wanted, "-f", "value", "-c", "flavorid")
        assert (one.code, one.out) == (0, f"{found}\n")


def test_show_for_nova_prints_command_that_sets_safe_extra_specs(
    program: Program, kept: KeptInFile
) -> None:
    specs = {"resources:VGPU": "1", "aggregate_instance_extra_specs:a": "<or> b's"}
    samples.flavor(kept.context, name="vgpu small", extra_specs=specs).create()

    text = flavor(program, "show", "vgpu small", "--for", "nova")

    safe = specs | {
        "resources:VGPU": "0",
        "resources1:VGPU": "1",
        "trait1:OWNER_NOVA": "required",
    }
    assert (text.code, text.err) == (0, "")
    properties = [part for item in safe.items() for part in ("--property", "=".join(item))]
    words = shlex.split(text.out.replace("\\\n", ""))
    assert words == ["openstack", "flavor", "set", *properties, "vgpu small"]
    assert shown(program, "flavor", "show", "vgpu small", "--for", "nova") == safe
    assert shown(program, "flavor", "show", "vgpu small")["extra_specs"] == specs


def test_show_for_nova_of_unsafe_flavor_fails_and_names_extra_spec(
    program: Program, kept: KeptInFile
) -> None:
    samples.flavor(kept.context, extra_specs={"accel:device_profile": "fpga"}).create()

    done = flavor(program, "show", "flavor-0", "--for", "nova")

    failed(done, "flavor flavor-0: accel:device_profile = 'fpga': nova requests")


# Delete.


def test_delete_of_several_continues_after_a_missing_one(
    program: Program, kept: KeptInFile
) -> None:
    for number in (1, 2, 3):
        samples.flavor(kept.context, number).create()

    done = flavor(program, "delete", "id-1", "none", "flavor-3")

    assert done.code == 1
    assert done.out == "flavor-1 (id-1): deleted\nflavor-3 (id-3): deleted\n"
    assert done.err == (
        "none: there is no Flavor none. List all with `wharfinger flavor list`. [ObjectNotFound]\n"
    )
    assert names(kept) == ["flavor-2"]
    failed(flavor(program, "show", "none"), "there is no Flavor none")
    assert flavor(program, "delete", "id-2", "id-2").code == 0
    assert flavor(program, "create", "flavor-2", "--id", "id-2").code == 0


def test_delete_of_flavor_with_damaged_revision_fails_and_keeps_it(
    program: Program, kept: KeptInFile
) -> None:
    samples.flavor(kept.context, 1).create()
    kept.write("flavors", {"revision": -1})

    done = flavor(program, "delete", "id-1")

    assert (done.code, done.out) == (1, "")
    assert "id-1: Flavor id-1: revision has no value" in done.err
    assert kept.row("flavors")["name"] == "flavor-1"
