"""``wharfinger service``: services that publish, and whether they are up."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.functional.cli.outcomes import change, failed, shown
from tests.lab import inprocess, samples
from tests.lab.objects import KeptInFile
from tests.lab.program import Done, Program
from wharfinger.objects import Service, ServiceList


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


@pytest.fixture
def service(kept: KeptInFile) -> Service:
    """The only service, which has never reported."""
    return has_service(kept)


def has_service(kept: KeptInFile, number: int = 0, **values: object) -> Service:
    service = samples.service(kept.context, number, **values)
    service.create()
    return service


def damage_times(kept: KeptInFile) -> None:
    """Make the time of the first service's last report unreadable."""
    with kept.engine.begin() as connection:
        connection.execute(text("UPDATE services SET last_seen_up = 'soon' WHERE id = 1"))


def run(program: Program, *arguments: str) -> Done:
    return inprocess.run(program, "service", *arguments)


def hosts(program: Program, *arguments: str) -> list[str]:
    return [row["Host"] for row in shown(program, "service", "list", *arguments)]


# List and show.


def test_service_list_shows_state_version_and_owners(program: Program, kept: KeptInFile) -> None:
    reporting = has_service(kept, 1, version=2, owners=["CUSTOM_OWNER_ACME", "OWNER_NOVA"])
    reporting.report()
    assert reporting.last_seen_up is not None
    has_service(kept, 2, disabled=True, disabled_reason="a fan is loud")

    assert shown(program, "service", "list") == [
        {
            "ID": reporting.uuid,
            "Host": "host-1",
            "Binary": "wharfinger-agent",
            "Version": 2,
            "Gates": {"CUSTOM_OWNER_ACME": True, "OWNER_NOVA": True},
            "Status": "enabled",
            "State": "up",
            "Last Seen Up": reporting.last_seen_up.isoformat(),
            "Disabled Reason": None,
        },
        {
            "ID": samples.uuid("service 2"),
            "Host": "host-2",
            "Binary": "wharfinger-agent",
            "Version": 1,
            "Gates": {},
            "Status": "disabled",
            "State": "down",
            "Last Seen Up": None,
            "Disabled Reason": "a fan is loud",
        },
    ]


def test_gate_of_an_owner_is_off_while_a_service_of_the_owner_has_an_old_version(
    program: Program, kept: KeptInFile
) -> None:
    has_service(kept, 1, version=2, owners=["CUSTOM_OWNER_ACME", "OWNER_NOVA"])
    has_service(kept, 2, version=1, owners=["OWNER_NOVA"])

    (listed,) = shown(program, "service", "list", "--host", "host-1")
    table = run(program, "list").out

    assert listed["Gates"] == {"CUSTOM_OWNER_ACME": True, "OWNER_NOVA": False}
    assert "CUSTOM_OWNER_ACME: on" in table
    assert "OWNER_NOVA: off" in table


def test_service_list_filters_by_host_and_program(program: Program, kept: KeptInFile) -> None:
    for number, (host, binary) in enumerate([("a", "agent"), ("a", "conductor"), ("b", "agent")]):
        has_service(kept, number, host=host, binary=binary)

    assert hosts(program) == ["a", "a", "b"]
    assert hosts(program, "--host", "a") == ["a", "a"]
    assert hosts(program, "--binary", "agent") == ["a", "b"]
    assert hosts(program, "--binary", "agent", "--host", "b") == ["b"]
    assert hosts(program, "--binary", "conductor", "--host", "b") == []


def test_service_without_a_report_in_service_down_time_is_down(
    program: Program, kept: KeptInFile, service: Service
) -> None:
    yesterday = datetime.now(UTC).replace(tzinfo=None) - timedelta(days=1)
    kept.write("services", {"last_seen_up": yesterday})
    listing = ("list", "-c", "State", "-f", "value")
    assert run(program, *listing).out == "down\n"

    change(program, "[DEFAULT]", "[DEFAULT]\nservice_down_time = 172800")

    assert run(program, *listing).out == "up\n"
    kept.write("services", {"forced_down": True})
    assert run(program, *listing).out == "down\n"


def test_invalid_service_options_are_refused(program: Program) -> None:
    sound = program.config.read_text()
    for seconds in ("0", "-1", "soon", "1e3", "2147483648"):
        line = f"service_down_time = {seconds}"
        program.config.write_text(sound.replace("[DEFAULT]", f"[DEFAULT]\n{line}"))
        failed(run(program, "list"), line, "from 1 to 2147483647")

    for host, told in (
        ("h" * 256, "more than 255 characters"),
        ("red\x1b[31m", "it has unprintable characters"),
    ):
        program.config.write_text(sound.replace("host = gpu-host-1", f"host = {host}"))
        done = run(program, "list")
        failed(done, "[DEFAULT] host = ", told)
        assert "\x1b" not in done.err

    program.config.write_text(sound.replace("host = gpu-host-1", f"host = {'ö' * 255}"))
    assert run(program, "list").code == 0


def test_damaged_service_is_listed_with_the_others(program: Program, kept: KeptInFile) -> None:
    late, damaged, sound = (has_service(kept, number) for number in (1, 2, 3))
    kept.write("services", {"owners": "{", "topic": "", "version": -1}, uuid=damaged.uuid)
    damage_times(kept)

    done = run(program, "list", "-f", "json")

    assert done.code == 0
    rows = done.json()
    assert [row["ID"] for row in rows] == [late.uuid, damaged.uuid, sound.uuid]
    unknown = [{name for name, value in row.items() if value == "?"} for row in rows]
    assert unknown == [{"State", "Last Seen Up"}, {"Gates", "Version"}, set()]


def test_service_show_has_all_fields(program: Program, kept: KeptInFile) -> None:
    service = has_service(kept, 1, owners=["OWNER_NOVA"], forced_down=True)

    data = shown(program, "service", "show", "host-1")

    assert data.keys() == Service.fields.keys()
    assert data["uuid"] == service.uuid
    assert data["owners"] == ["OWNER_NOVA"]
    assert data["forced_down"] is True
    assert data["last_seen_up"] is None


def test_control_characters_in_services_are_escaped(program: Program, kept: KeptInFile) -> None:
    has_service(kept, 1, host="\x1b[31mred", disabled_reason="two\nlines")

    for command in (("list",), ("show", "\x1b[31mred")):
        out = run(program, *command).out
        assert "\x1b" not in out
        assert r"\x1b[31mred" in out
        assert r"two\nlines" in out


# Selection.


def test_service_is_found_by_uuid_host_or_host_and_program(
    program: Program, kept: KeptInFile, service: Service
) -> None:
    for name in (service.uuid, service.uuid.upper(), "host-0", "host-0/wharfinger-agent"):
        done = run(program, "show", name, "-c", "uuid", "-f", "value")
        assert (done.code, done.out) == (0, f"{service.uuid}\n")


def test_name_of_no_service_or_of_several_is_refused(program: Program, kept: KeptInFile) -> None:
    services = [has_service(kept, number, host="a", binary=f"p-{number}") for number in (1, 2)]
    has_service(kept, 3, host="b", binary="c")
    has_service(
        kept, 4, host="b/c", binary="d"
    )  # b/c is this host, but also the program c on host b
    before = kept.rows("services")

    for verb in ("show", "disable", "enable", "delete"):
        several = [f"a/{one.binary} ({one.uuid})" for one in services]
        failed(run(program, verb, "a"), "several objects of kind service with the name a", *several)
        failed(run(program, verb, "b/c"), "several objects", "b/c/d (")
        for name in ("host-9", "a/other", samples.uuid("service 9")):
            failed(run(program, verb, name), f"there is no Service {name}")
    assert kept.rows("services") == before


# Disable, enable, delete.


def test_disable_replaces_the_reason_and_enable_clears_it(
    program: Program, kept: KeptInFile, service: Service
) -> None:
    which = f"host-0/wharfinger-agent ({service.uuid})"
    for command, reason in (
        (("disable", "host-0", "--reason", "r" * 255), "r" * 255),
        (("disable", "host-0"), None),
        (("disable", "host-0", "--reason", "a fan is loud"), "a fan is loud"),
        (("enable", "host-0"), None),
    ):
        done = run(program, *command)
        assert (done.code, done.err) == (0, "")
        assert done.out == f"{which}: {command[0]}d\n"
        now = Service.get_by_uuid(kept.context, service.uuid)
        assert (now.disabled, now.disabled_reason) == (command[0] == "disable", reason)


def test_delete_of_down_service_allows_a_new_one_on_its_host(
    program: Program, kept: KeptInFile, service: Service
) -> None:
    done = run(program, "delete", service.uuid)

    assert (done.code, done.err) == (0, "")
    assert done.out == f"host-0/wharfinger-agent ({service.uuid}): deleted\n"
    assert not ServiceList.get_by_filters(kept.context)
    has_service(kept)
    assert hosts(program) == ["host-0"]


@pytest.mark.parametrize("is_known", [True, False])
def test_delete_of_service_that_may_be_up_requires_force(
    program: Program, kept: KeptInFile, service: Service, is_known: bool
) -> None:
    if is_known:
        service.report()
        told = ["is up", "Stop its agent"]
    else:
        damage_times(kept)
        told = ["last_seen_up has no value"]

    failed(run(program, "delete", "host-0"), *told)
    assert len(kept.rows("services")) == 1

    assert run(program, "delete", "host-0", "--force").code == 0
    assert hosts(program) == []


def test_service_commands_with_unreadable_database_fail(program: Program) -> None:
    (program.directory / "wharfinger.sqlite").mkdir()

    for command in (("list",), ("show", "host-0"), ("disable", "host-0")):
        failed(run(program, *command), f"state in {program.directory / 'wharfinger.sqlite'}: ")
