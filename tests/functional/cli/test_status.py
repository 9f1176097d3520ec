"""``wharfinger-status upgrade check``: what it says of what there is, and that all stays so."""

import io
import json
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import pytest
import sqlalchemy as sa

from tests.lab import placement as lab
from tests.lab import samples
from tests.lab.faults import Answer, Fault, Interceptor
from tests.lab.placement import PlacementFixture, Requests
from tests.lab.program import Program
from wharfinger.cli import status
from wharfinger.db import migration
from wharfinger.db.database import FILE_NAME
from wharfinger.objects import ServiceList
from wharfinger.objects.context import local
from wharfinger.placement.embedded import EmbeddedPlacement
from wharfinger.providers import Inventory

SUCCESS, WARNING, FAILURE = range(3)
DATABASE = "Database"
DRIVERS = "Configuration and drivers"
PLACEMENT = "Placement"
SERVICES = "Versions of services"
PROVIDERS = "Providers without an owner"
UNUSED_PORT = "127.0.0.1:1"


@dataclass(frozen=True)
class Found:
    """How the program ended, and what it says of each check."""

    code: int
    results: dict[str, int]
    details: dict[str, str]


def run(program: Program, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program in a process of its own."""
    return subprocess.run(
        [str(Path(sys.executable).with_name("wharfinger-status")), *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=program.directory,
    )


def check_apart(program: Program) -> Found:
    """Have everything checked by the program; nothing but results is printed."""
    done = run(program, "--config-file", str(program.config), "upgrade", "check", "--json")
    assert done.stderr == ""
    return found(done.returncode, done.stdout)


def check(program: Program) -> Found:
    """Have everything checked in this process, without the start-up."""
    out = io.StringIO()
    with redirect_stdout(out):
        code = status.main(["--config-file", str(program.config), "upgrade", "check", "--json"])
    return found(code, out.getvalue())


def found(code: int, out: str) -> Found:
    checks = json.loads(out)["checks"]
    return Found(
        code,
        {one["check"]: one["result"] for one in checks},
        {one["check"]: one["details"] for one in checks},
    )


def add(program: Program, text: str) -> None:
    program.config.write_text(program.config.read_text() + text)


def others(told: Found, *checks: str) -> set[int]:
    """The results of all checks but these."""
    return {result for name, result in told.results.items() if name not in checks}


@pytest.fixture
def engine(program: Program) -> Iterator[sa.Engine]:
    """The file that is the program's database, and may not be there yet."""
    engine = sa.create_engine(f"sqlite:///{program.directory / FILE_NAME}")
    yield engine
    engine.dispose()


@pytest.fixture
def newest(engine: sa.Engine, program: Program) -> sa.Engine:
    migration.upgrade(engine, "host", directory=program.directory)
    return engine


def execute(engine: sa.Engine, *statements: str) -> None:
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))


# Nothing is wrong.


def test_before_anything_was_used_all_is_well_and_nothing_is_made(tmp_path: Path) -> None:
    program = Program(tmp_path)  # with the embedded Placement
    before = set(tmp_path.iterdir())

    told = check_apart(program)

    assert (told.code, set(told.results.values())) == (0, {SUCCESS})
    for name in (DATABASE, PLACEMENT, PROVIDERS):
        assert "when it is first used" in told.details[name]
    assert told.details[SERVICES] == "No service publishes yet."
    assert set(tmp_path.iterdir()) == before


def test_after_a_sync_all_is_well_and_nothing_is_written(
    program: Program, requests: Requests
) -> None:
    assert program.run("sync").code == 0
    requests.clear()

    told = check_apart(program)

    assert (told.code, set(told.results.values())) == (0, {SUCCESS})
    assert str(program.directory / FILE_NAME) in told.details[DATABASE]
    assert "gpus (libvirt)" in told.details[DRIVERS]
    assert "1.39" in told.details[PLACEMENT]
    assert "OWNER_NOVA: 2" in told.details[SERVICES]
    assert requests.writes == []


def test_without_json_it_is_a_table(tmp_path: Path) -> None:
    program = Program(tmp_path)

    done = run(program, "--config-file", str(program.config), "upgrade", "check")

    assert (done.returncode, done.stderr) == (0, "")
    for name in (DATABASE, DRIVERS, PLACEMENT, SERVICES, PROVIDERS):
        assert f"| Check: {name} " in done.stdout


# The database.


def test_a_database_that_is_behind_fails_and_stays_as_it_is(
    program: Program, engine: sa.Engine
) -> None:
    migration.upgrade(engine, "host", directory=program.directory, revision="0002")

    told = check_apart(program)

    assert (told.code, told.results[DATABASE]) == (2, FAILURE)
    assert "table compute_nodes lacks pci_stats" in told.details[DATABASE]
    assert "wharfinger db upgrade" in told.details[DATABASE]
    assert migration.schema(engine).current == "0002"
    # To read them, the database would have to be opened, and with that upgraded.
    assert told.results[SERVICES] == WARNING
    assert others(told, DATABASE, SERVICES) == {SUCCESS}


def test_a_newer_database_that_has_what_is_needed_is_a_warning(
    program: Program, newest: sa.Engine
) -> None:
    execute(newest, "UPDATE alembic_version SET version_num = '9999'")

    told = check_apart(program)

    assert (told.code, told.results[DATABASE]) == (1, WARNING)
    assert "9999, of a newer version" in told.details[DATABASE]
    assert others(told, DATABASE) == {SUCCESS}


def test_a_newer_database_that_lacks_what_is_needed_fails(
    program: Program, newest: sa.Engine
) -> None:
    execute(
        newest,
        "UPDATE alembic_version SET version_num = '9999'",
        "ALTER TABLE migrations DROP COLUMN old_flavor",
    )

    told = check(program)

    assert (told.code, told.results[DATABASE]) == (2, FAILURE)
    assert "table migrations lacks old_flavor" in told.details[DATABASE]
    assert "Run that version" in told.details[DATABASE]


def test_a_database_that_has_lost_a_column_fails(program: Program, newest: sa.Engine) -> None:
    execute(newest, "ALTER TABLE flavors DROP COLUMN description")

    told = check(program)

    assert (told.code, told.results[DATABASE]) == (2, FAILURE)
    assert "table flavors lacks description. Restore it from a backup" in told.details[DATABASE]


def test_a_database_that_cannot_be_reached_fails_without_its_password(program: Program) -> None:
    add(
        program,
        f"[database]\nconnection = postgresql+psycopg://wharfinger:hunter2@{UNUSED_PORT}/none"
        "?sslpassword=hunter2\n",
    )

    told = check_apart(program)

    assert told.code == 2
    assert (told.results[DATABASE], told.results[SERVICES]) == (FAILURE, FAILURE)
    assert "Check [database] connection" in told.details[DATABASE]
    assert "hunter2" not in str(told)
    assert others(told, DATABASE, SERVICES) == {SUCCESS}


def test_a_database_of_ones_own_without_tables_fails_and_is_not_made(program: Program) -> None:
    file = program.directory / "other.sqlite"
    add(program, f"[database]\nconnection = sqlite:///{file}\n")

    told = check(program)

    assert (told.code, told.results[DATABASE]) == (2, FAILURE)
    assert "no tables yet. Run `wharfinger db upgrade`" in told.details[DATABASE]
    assert not file.exists()


def test_a_file_that_is_no_database_fails(program: Program) -> None:
    (program.directory / FILE_NAME).write_text("no database, " * 100)

    told = check(program)

    assert (told.code, told.results[DATABASE]) == (2, FAILURE)
    assert "file is not a database" in told.details[DATABASE]


# The configuration.


def test_a_driver_that_cannot_be_loaded_fails_and_the_rest_is_looked_at(program: Program) -> None:
    program.config.write_text(program.config.read_text().replace("= gpus", "= gpus, rack"))

    told = check(program)

    assert (told.code, told.results[DRIVERS]) == (2, FAILURE)
    assert "driver rack: entry point: found none" in told.details[DRIVERS]
    assert others(told, DRIVERS) == {SUCCESS}


def test_all_that_is_wrong_in_the_configuration_is_told(program: Program) -> None:
    add(program, "[gpus]\nremoval_dlay = 7\n[placemnt]\n[database]\nconnection = nonsense\n")

    told = check(program)

    assert (told.code, told.results[DRIVERS]) == (2, FAILURE)
    for problem in ("removal_dlay", "[placemnt]", "[database] connection = ***: this is no URL"):
        assert problem in told.details[DRIVERS]
    assert "this is no URL" in told.details[DATABASE]


def test_a_configuration_that_cannot_be_read_is_a_message(program: Program) -> None:
    add(program, "[gpus\n")
    for file in (program.config, program.directory / "none.conf"):
        done = run(program, "--config-file", str(file), "upgrade", "check")

        assert (done.returncode, done.stdout) == (255, "")
        assert done.stderr.startswith("configuration: ")
        assert str(file) in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments", ["", "upgrade", "upgrade chekc", "upgrade check --jsn", "--config-file"]
)
def test_wrong_usage_is_told_from_a_failure(
    arguments: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status.main(arguments.split()) == 64
    assert "usage: wharfinger-status" in capsys.readouterr().err


# Placement.


def test_a_placement_that_is_away_fails(tmp_path: Path) -> None:
    told = check_apart(Program(tmp_path, f"http://{UNUSED_PORT}"))

    assert told.code == 2
    assert (told.results[PLACEMENT], told.results[PROVIDERS]) == (FAILURE, FAILURE)
    assert "no answer" in told.details[PLACEMENT]
    assert others(told, PLACEMENT, PROVIDERS) == {SUCCESS}


def test_a_placement_without_full_reservation_fails(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.lower(monkeypatch, "1.25")

    told = check(program)

    assert (told.code, told.results[PLACEMENT]) == (2, FAILURE)
    assert "nothing can be fully reserved below 1.26" in told.details[PLACEMENT]


def test_a_placement_that_lacks_a_feature_is_a_warning(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.lower(monkeypatch, "1.36")

    told = check(program)

    assert (told.code, told.results[PLACEMENT]) == (1, WARNING)
    assert "reparent (1.37), consumer types (1.38), any traits (1.39)" in told.details[PLACEMENT]
    assert "same subtree" not in told.details[PLACEMENT]
    assert others(told, PLACEMENT) == {SUCCESS}


@pytest.fixture
def old_traits(placement_service: EmbeddedPlacement) -> Iterator[Interceptor]:
    """A Placement beside which os-traits is too old to have owners."""

    def without_owners(answer: Answer) -> Answer:
        traits = json.loads(answer.body).get("traits", ())
        known = [trait for trait in traits if not trait.startswith("OWNER_")]
        return replace(answer, status=200, body=json.dumps({"traits": known}).encode())

    with Interceptor(placement_service.application) as interceptor:
        interceptor.expect(
            lambda request: request.path.startswith("/traits"),
            Fault("old", "", answer=without_owners, carried_out={"GET"}, persistent=True),
        )
        yield interceptor


def test_an_owner_trait_that_placement_does_not_know_fails(
    tmp_path: Path, old_traits: Interceptor
) -> None:
    program = Program(tmp_path, old_traits.url)

    told = check(program)

    assert (told.code, told.results[PLACEMENT]) == (2, FAILURE)
    assert "does not know OWNER_NOVA (gpus)" in told.details[PLACEMENT]
    assert "Upgrade os-traits" in told.details[PLACEMENT]


def test_an_owner_of_ones_own_need_not_be_known_yet(
    tmp_path: Path, old_traits: Interceptor
) -> None:
    program = Program(tmp_path, old_traits.url)
    add(program, "[gpus]\nowner = CUSTOM_OWNER_LAB\n")

    told = check(program)

    assert (told.code, told.results[PLACEMENT]) == (0, SUCCESS)


# Services.


def publish(program: Program, *services: tuple[str, int, Collection[str]]) -> None:
    """Have services with these hosts, versions and owners in the database."""
    context = local(program.directory, "host")
    try:
        ServiceList(
            context,
            objects=[
                samples.service(None, number, host=host, version=version, owners=list(owners))
                for number, (host, version, owners) in enumerate(services)
            ],
        ).create()
    finally:
        context.close()


def test_services_that_do_not_tag_everything_are_named_by_host(program: Program) -> None:
    publish(
        program,
        ("tags", 2, {"OWNER_NOVA"}),
        ("slow", 1, {"OWNER_NOVA", "CUSTOM_OWNER_LAB"}),
        ("fpga", 2, {"OWNER_CYBORG"}),
        ("idle", 1, ()),
    )

    told = check(program)

    assert (told.code, told.results[SERVICES]) == (1, WARNING)
    details = told.details[SERVICES]
    assert "CUSTOM_OWNER_LAB: 1; OWNER_CYBORG: 2; OWNER_NOVA: 1." in details
    assert details.count("slow (wharfinger-agent, version 1)") == 2
    for host in ("tags", "fpga", "idle"):
        assert f"{host} (" not in details
    assert others(told, SERVICES) == {SUCCESS}


def test_a_deleted_service_is_not_waited_for(program: Program) -> None:
    publish(program, ("gone", 1, {"OWNER_NOVA"}), ("here", 2, {"OWNER_NOVA"}))
    context = local(program.directory, "host")
    [gone] = ServiceList.get_by_filters(context, host="gone")
    gone.destroy()
    context.close()

    told = check(program)

    assert (told.code, told.results[SERVICES]) == (0, SUCCESS)


def test_a_service_whose_owners_cannot_be_read_fails(program: Program, newest: sa.Engine) -> None:
    publish(program, ("spoilt", 2, {"OWNER_NOVA"}))
    execute(newest, "UPDATE services SET owners = '[nonsense'")

    told = check_apart(program)

    assert (told.code, told.results[SERVICES]) == (2, FAILURE)
    assert samples.uuid("service 0") in told.details[SERVICES]
    assert "services.owners cannot be read" in told.details[SERVICES]


# Providers.


def provide(placement: PlacementFixture, name: str, *traits: str, **amounts: int) -> None:
    """Have a provider in Placement with these traits and inventories."""
    provider = placement.client.create_provider(str(uuid4()), name, None)
    generation = provider.generation
    if traits:
        for trait in traits:
            if trait.startswith("CUSTOM_"):
                placement.client.create_trait(trait)
        generation = placement.client.set_traits(provider.uuid, generation, traits)
    if amounts:
        inventories = {kind: Inventory(total=amount) for kind, amount in amounts.items()}
        placement.client.set_inventories(provider.uuid, generation, inventories)


def test_providers_that_would_be_passed_by_are_named(
    program: Program, placement: PlacementFixture
) -> None:
    provide(placement, "bare\x1b[31m-host", VCPU=8)
    provide(placement, "nova-host", "OWNER_NOVA", VCPU=8)
    provide(placement, "lab-host", "CUSTOM_OWNER_LAB", VCPU=8)
    provide(placement, "shared-disk", "MISC_SHARES_VIA_AGGREGATE", DISK_GB=100)
    provide(placement, "ovs-agent")
    provide(placement, "port", "CUSTOM_PHYSNET", NET_BW_EGR_KILOBIT_PER_SEC=1000)

    told = check(program)

    assert (told.code, told.results[PROVIDERS]) == (1, WARNING)
    assert told.details[PROVIDERS].startswith("1 with inventory: bare\\x1b[31m-host (")
    assert others(told, PROVIDERS) == {SUCCESS}


def test_a_fleet_without_owners_is_found_by_few_requests(
    program: Program, placement: PlacementFixture, requests: Requests
) -> None:
    for number in range(51):
        provide(placement, f"host-{number:03}", VCPU=8)
    requests.clear()

    told = check(program)

    assert (told.code, told.results[PROVIDERS]) == (1, WARNING)
    details = told.details[PROVIDERS]
    assert details.startswith("At least 51 with inventory: ")
    assert details.count("host-") == 10
    assert ", and 41 more." in details
    assert requests.writes == []
    assert len(requests) < 60
