"""``wharfinger service``: who publishes, and whether they do."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from tests.lab import inprocess, samples
from tests.lab.objects import KeptInFile
from tests.lab.program import Done, Program
from wharfinger.objects import Service, ServiceList


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


@pytest.fixture
def service(kept: KeptInFile) -> Service:
    """The only one there is; it has never reported."""
    return has_service(kept)


def has_service(kept: KeptInFile, number: int = 0, **values: object) -> Service:
    service = samples.service(kept.context, number, **values)
    service.create()
    return service


def damage_times(kept: KeptInFile) -> None:
    """Have the time of the first service be none."""
    with kept.engine.begin() as connection:
        connection.execute(text("UPDATE services SET last_seen_up = 'soon' WHERE id = 1"))


def refused(done: Done, *told: str) -> None:
    """It failed, and says why in words."""
    assert done.code == 1
    assert done.out == ""
    for part in told:
        assert part in done.err
    assert "Traceback" not in done.err


def hosts(program: Program, *arguments: str) -> list[str]:
    done = inprocess.run(program, "service", "list", *arguments, "-f", "json")
    assert (done.code, done.err) == (0, "")
    return [row["Host"] for row in done.json()]


# What there is.


def test_services_are_listed_with_what_an_operator_asks_for(
    program: Program, kept: KeptInFile
) -> None:
    reporting = has_service(kept, 1, version=2, owners=["CUSTOM_OWNER_ACME", "OWNER_NOVA"])
    reporting.report()
    assert reporting.last_seen_up is not None
    has_service(kept, 2, disabled=True, disabled_reason="a fan is loud")

    done = program.run("service", "list", "-f", "json")

    assert (done.code, done.err) == (0, "")
    assert done.json() == [
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


def test_a_gate_is_off_while_one_service_is_behind_and_of_no_other_owner(
    program: Program, kept: KeptInFile
) -> None:
    has_service(kept, 1, version=2, owners=["CUSTOM_OWNER_ACME", "OWNER_NOVA"])
    has_service(kept, 2, version=1, owners=["OWNER_NOVA"])

    (listed,) = inprocess.run(program, "service", "list", "--host", "host-1", "-f", "json").json()
    table = inprocess.run(program, "service", "list").out

    assert listed["Gates"] == {"CUSTOM_OWNER_ACME": True, "OWNER_NOVA": False}
    assert "CUSTOM_OWNER_ACME: on" in table
    assert "OWNER_NOVA: off" in table


def test_a_list_is_of_a_host_a_program_or_both(program: Program, kept: KeptInFile) -> None:
    for number, (host, binary) in enumerate([("a", "agent"), ("a", "conductor"), ("b", "agent")]):
        has_service(kept, number, host=host, binary=binary)

    assert hosts(program) == ["a", "a", "b"]
    assert hosts(program, "--host", "a") == ["a", "a"]
    assert hosts(program, "--binary", "agent") == ["a", "b"]
    assert hosts(program, "--binary", "agent", "--host", "b") == ["b"]
    assert hosts(program, "--binary", "conductor", "--host", "b") == []


def test_a_service_is_down_when_it_has_not_reported_for_as_long_as_is_configured(
    program: Program, kept: KeptInFile, service: Service
) -> None:
    yesterday = datetime.now(UTC).replace(tzinfo=None) - timedelta(days=1)
    kept.write("services", {"last_seen_up": yesterday})
    listing = ("service", "list", "-c", "State", "-f", "value")
    assert inprocess.run(program, *listing).out == "down\n"

    conf = program.config.read_text()
    program.config.write_text(conf.replace("[DEFAULT]", "[DEFAULT]\nservice_down_time = 172800"))

    assert inprocess.run(program, *listing).out == "up\n"
    kept.write("services", {"forced_down": True})
    assert inprocess.run(program, *listing).out == "down\n"


@pytest.mark.parametrize("seconds", ["0", "-1", "soon", "1e3", "2147483648"])
def test_a_time_after_which_nothing_could_be_up_is_refused(program: Program, seconds: str) -> None:
    conf = program.config.read_text()
    line = f"service_down_time = {seconds}"
    program.config.write_text(conf.replace("[DEFAULT]", f"[DEFAULT]\n{line}"))

    refused(inprocess.run(program, "service", "list"), line, "a whole number from 1 to 2147483647")


@pytest.mark.parametrize(
    ("host", "told"),
    [
        ("h" * 256, "it has more than 255 characters"),
        ("red\x1b[31m", "not all of its characters can be printed"),
    ],
)
def test_a_host_that_could_not_be_kept_or_shown_is_refused(
    program: Program, host: str, told: str
) -> None:
    conf = program.config.read_text()
    program.config.write_text(conf.replace("host = gpu-host-1", f"host = {host}"))

    done = inprocess.run(program, "service", "list")

    refused(done, "[DEFAULT] host = ", told)
    assert "\x1b" not in done.err


def test_a_host_may_have_as_long_a_name_as_can_be_kept(program: Program) -> None:
    conf = program.config.read_text()
    program.config.write_text(conf.replace("[DEFAULT]", f"[DEFAULT]\nhost = {'ö' * 255}"))

    assert inprocess.run(program, "service", "list").code == 0


def test_a_service_of_which_part_is_damaged_is_listed_with_the_others(
    program: Program, kept: KeptInFile
) -> None:
    damaged, sound = has_service(kept, 1), has_service(kept, 2)
    kept.write("services", {"owners": "{", "topic": "", "version": -1}, uuid=damaged.uuid)

    done = inprocess.run(program, "service", "list", "-f", "json")

    assert done.code == 0
    first, second = done.json()
    assert first["ID"] == damaged.uuid
    unknown = {name for name, value in first.items() if value == "?"}
    assert unknown == {"Gates", "Version"}
    assert (second["ID"], second["Gates"]) == (sound.uuid, {})


def test_a_service_with_a_damaged_time_is_listed_with_the_others(
    program: Program, kept: KeptInFile
) -> None:
    for number in (1, 2):
        has_service(kept, number)
    damage_times(kept)

    done = inprocess.run(program, "service", "list", "-f", "json")

    assert done.code == 0
    assert [(row["Host"], row["State"], row["Last Seen Up"]) for row in done.json()] == [
        ("host-1", "?", "?"),
        ("host-2", "down", None),
    ]


def test_everything_about_a_service_is_shown(program: Program, kept: KeptInFile) -> None:
    service = has_service(kept, 1, owners=["OWNER_NOVA"], forced_down=True)

    done = inprocess.run(program, "service", "show", "host-1", "-f", "json")

    assert (done.code, done.err) == (0, "")
    data = done.json()
    assert data.keys() == Service.fields.keys()
    assert data["uuid"] == service.uuid
    assert data["owners"] == ["OWNER_NOVA"]
    assert data["forced_down"] is True
    assert data["last_seen_up"] is None


def test_what_a_terminal_would_not_take_is_escaped(program: Program, kept: KeptInFile) -> None:
    has_service(kept, 1, host="\x1b[31mred", disabled_reason="two\nlines")

    for command in (("list",), ("show", "\x1b[31mred")):
        out = inprocess.run(program, "service", *command).out
        assert "\x1b" not in out
        assert r"\x1b[31mred" in out
        assert r"two\nlines" in out


# Which one.


def test_a_service_goes_by_uuid_host_or_host_and_program(
    program: Program, kept: KeptInFile, service: Service
) -> None:
    for name in (service.uuid, service.uuid.upper(), "host-0", "host-0/wharfinger-agent"):
        done = inprocess.run(program, "service", "show", name, "-c", "uuid", "-f", "value")
        assert (done.code, done.out) == (0, f"{service.uuid}\n")


@pytest.mark.parametrize("verb", ["show", "disable", "enable", "delete"])
def test_a_host_with_several_services_names_them(
    program: Program, kept: KeptInFile, verb: str
) -> None:
    services = [has_service(kept, number, host="a", binary=f"p-{number}") for number in (1, 2)]
    before = kept.rows("services")

    done = inprocess.run(program, "service", verb, "a")

    refused(
        done, "a is more than one service", *(f"a/{one.binary} ({one.uuid})" for one in services)
    )
    assert kept.rows("services") == before


def test_what_is_one_services_host_and_anothers_host_and_program_is_neither(
    program: Program, kept: KeptInFile
) -> None:
    has_service(kept, 1, host="a", binary="b")
    has_service(kept, 2, host="a/b", binary="c")

    refused(inprocess.run(program, "service", "show", "a/b"), "more than one", "a/b/c (")


@pytest.mark.parametrize("name", ["host-9", "host-0/other", samples.uuid("service 9"), "\udcff"])
@pytest.mark.parametrize("verb", ["show", "disable", "enable", "delete"])
def test_a_service_that_is_not_there_is_told(
    program: Program, service: Service, verb: str, name: str
) -> None:
    done = inprocess.run(program, "service", verb, name)

    if name == "\udcff":
        assert done.code == 64
        assert "argument SERVICE: '\\udcff' is not text" in done.err
    else:
        refused(done, f"there is no Service {name}")


@pytest.mark.parametrize(
    "arguments",
    [
        ("show",),
        ("delete",),
        ("list", "--host", ""),
        ("list", "--binary", "b" * 256),
        ("disable", "host-0", "--reason", ""),
        ("disable", "host-0", "--reason", "r" * 256),
    ],
)
def test_wrong_usage_exits_with_64_and_changes_nothing(
    program: Program, kept: KeptInFile, service: Service, arguments: tuple[str, ...]
) -> None:
    before = kept.rows("services")

    done = inprocess.run(program, "service", *arguments)

    assert (done.code, done.out) == (64, "")
    assert kept.rows("services") == before


# Disabled, enabled, deleted.


def test_a_service_is_disabled_with_a_reason_and_enabled_without(
    program: Program, kept: KeptInFile, service: Service
) -> None:
    disabled = program.run("service", "disable", "host-0", "--reason", "a fan is loud")

    assert (disabled.code, disabled.err) == (0, "")
    assert disabled.out == f"host-0/wharfinger-agent ({service.uuid}): disabled\n"
    now = Service.get_by_uuid(kept.context, service.uuid)
    assert (now.disabled, now.disabled_reason) == (True, "a fan is loud")

    enabled = inprocess.run(program, "service", "enable", "host-0")

    assert (enabled.code, enabled.err) == (0, "")
    now = Service.get_by_uuid(kept.context, service.uuid)
    assert (now.disabled, now.disabled_reason) == (False, None)


def test_a_reason_is_that_of_the_last_time(
    program: Program, kept: KeptInFile, service: Service
) -> None:
    inprocess.run(program, "service", "disable", "host-0", "--reason", "r" * 255)
    assert Service.get_by_uuid(kept.context, service.uuid).disabled_reason == "r" * 255

    inprocess.run(program, "service", "disable", "host-0")

    assert Service.get_by_uuid(kept.context, service.uuid).disabled_reason is None


def test_a_service_that_is_down_is_deleted_and_its_host_may_have_one_again(
    program: Program, kept: KeptInFile, service: Service
) -> None:
    done = program.run("service", "delete", service.uuid)

    assert (done.code, done.err) == (0, "")
    assert done.out == f"host-0/wharfinger-agent ({service.uuid}): deleted\n"
    assert not ServiceList.get_by_filters(kept.context)
    assert hosts(program) == []
    has_service(kept)
    assert hosts(program) == ["host-0"]


def test_a_service_that_is_up_is_deleted_only_by_force(
    program: Program, kept: KeptInFile, service: Service
) -> None:
    service.report()

    refused(inprocess.run(program, "service", "delete", "host-0"), "is up", "stop it first")
    assert hosts(program) == ["host-0"]

    assert inprocess.run(program, "service", "delete", "host-0", "--force").code == 0
    assert hosts(program) == []


def test_a_service_of_which_it_is_not_known_whether_it_is_up_is_deleted_only_by_force(
    program: Program, kept: KeptInFile, service: Service
) -> None:
    damage_times(kept)

    refused(inprocess.run(program, "service", "delete", "host-0"), "nothing is known of last_seen")
    assert inprocess.run(program, "service", "delete", "host-0", "--force").code == 0
    assert hosts(program) == []


# Where there is no database.


def test_a_database_that_cannot_be_opened_is_told(program: Program) -> None:
    (program.directory / "wharfinger.sqlite").mkdir()

    for command in (("list",), ("show", "host-0"), ("disable", "host-0")):
        done = inprocess.run(program, "service", *command)
        refused(done, f"state in {program.directory / 'wharfinger.sqlite'}: ")
