"""``wharfinger-status upgrade check``: its results; it changes nothing."""

import io
import json
import sys
from collections.abc import Collection, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import pytest
import sqlalchemy as sa

from tests.functional.cli.outcomes import change, configure
from tests.lab import inprocess, samples
from tests.lab import placement as lab
from tests.lab.faults import Answer, Fault, Interceptor
from tests.lab.placement import PlacementFixture, Requests
from tests.lab.program import Done, Program, run_command
from wharfinger.cli import upgrade_check
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.db import migration
from wharfinger.db.database import FILE_NAME
from wharfinger.objects import ServiceList
from wharfinger.objects.database_context import local
from wharfinger.placement.embedded import EmbeddedPlacement
from wharfinger.providers import Inventory

SUCCESS, WARNING, FAILURE = range(3)
DATABASE = "Database"
DRIVERS = "Configuration and drivers"
PLACEMENT = "Placement"
SERVICES = "Versions of services"
PROVIDERS = "Providers without an owner"
FOREIGN = "Reservations by other programs"
UNUSED_PORT = "127.0.0.1:1"
NEWER = "UPDATE alembic_version SET version_num = '9999'"
#: By check: the checks that cannot succeed if it fails.
_NEED = {DATABASE: [SERVICES, FOREIGN], PLACEMENT: [PROVIDERS]}


@dataclass(frozen=True)
class CheckResults:
    """The exit code of the program, and the result of each check."""

    code: int
    results: dict[str, int]
    details: dict[str, str]

    def assert_only(self, code: int, result: int, check: str, *details: str) -> None:
        """Assert this exit code and result; all checks that do not depend on ``check`` succeed."""
        assert (self.code, self.results[check]) == (code, result), self
        for part in details:
            assert part in self.details[check]
        others = {name for name, one in self.results.items() if one != SUCCESS}
        assert others <= {check, *_NEED.get(check, ())}, self


def run(program: Program, *arguments: str) -> Done:
    """Run the program in another process."""
    command = str(Path(sys.executable).with_name("wharfinger-status"))
    return run_command([command, *arguments], program.directory)


def check(program: Program) -> CheckResults:
    """Run all checks in this process; return their results."""
    out = io.StringIO()
    with redirect_stdout(out):
        code = upgrade_check.main(
            ["--config-file", str(program.config), "upgrade", "check", "--json"]
        )
    return found(code, out.getvalue())


def found(code: int, out: str) -> CheckResults:
    checks = json.loads(out)["checks"]
    return CheckResults(
        code,
        {one["check"]: one["result"] for one in checks},
        {one["check"]: one["details"] for one in checks},
    )


@pytest.fixture
def engine(program: Program) -> Iterator[sa.Engine]:
    """An engine for the program's database file, which may not exist yet."""
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


# Success.


def test_check_before_first_use_succeeds_and_creates_nothing(tmp_path: Path) -> None:
    program = Program(tmp_path)  # it uses the embedded Placement
    before = set(tmp_path.iterdir())

    told = check(program)

    assert (told.code, set(told.results.values())) == (0, {SUCCESS})
    for name in (DATABASE, PLACEMENT, PROVIDERS):
        assert "when it is first used" in told.details[name]
    assert told.details[SERVICES] == "No service publishes yet."
    assert set(tmp_path.iterdir()) == before


def test_check_after_a_sync_succeeds_and_writes_nothing(
    program: Program, requests: Requests
) -> None:
    assert inprocess.run(program, "sync").code == 0
    requests.clear()

    told = check(program)

    assert (told.code, set(told.results.values())) == (0, {SUCCESS})
    assert str(program.directory / FILE_NAME) in told.details[DATABASE]
    assert "gpus (libvirt)" in told.details[DRIVERS]
    assert "1.39" in told.details[PLACEMENT]
    assert "OWNER_NOVA: 2" in told.details[SERVICES]
    assert requests.writes == []


def test_check_without_json_prints_a_table(tmp_path: Path) -> None:
    program = Program(tmp_path)

    done = run(program, "--config-file", str(program.config), "upgrade", "check")

    assert (done.code, done.err) == (0, "")
    for name in (DATABASE, DRIVERS, PLACEMENT, SERVICES, PROVIDERS):
        assert f"| Check: {name} " in done.out


# The database.


def test_older_database_fails_and_is_kept(program: Program, engine: sa.Engine) -> None:
    migration.upgrade(engine, "host", directory=program.directory, revision="0002")

    told = check(program)

    told.assert_only(2, FAILURE, DATABASE, "table compute_nodes lacks pci_stats", "db upgrade")
    assert migration.schema(engine).current == "0002"
    # The check of services reads nothing, because opening the database would upgrade it.
    assert told.results[SERVICES] == WARNING


@pytest.mark.parametrize(
    ("statements", "code", "details"),
    [
        ([NEWER], WARNING, ["9999, of a newer release"]),
        (
            [NEWER, "ALTER TABLE migrations DROP COLUMN old_flavor"],
            FAILURE,
            ["table migrations lacks old_flavor", "Install that release"],
        ),
        (
            ["ALTER TABLE flavors DROP COLUMN description"],
            FAILURE,
            ["table flavors lacks description", "Restore it from a backup"],
        ),
    ],
)
def test_newer_or_damaged_database_is_reported(
    program: Program, newest: sa.Engine, statements: list[str], code: int, details: list[str]
) -> None:
    execute(newest, *statements)

    check(program).assert_only(code, code, DATABASE, *details)


def test_unreachable_database_fails_without_its_password(program: Program) -> None:
    url = f"postgresql+psycopg://wharfinger:hunter2@{UNUSED_PORT}/none?sslpassword=hunter2"
    configure(program, f"[database]\nconnection = {url}")

    told = check(program)

    told.assert_only(2, FAILURE, DATABASE, "Check [database] connection")
    assert told.results[SERVICES] == FAILURE
    assert "hunter2" not in str(told)


def test_file_that_is_missing_or_no_database_fails_and_is_not_created(program: Program) -> None:
    (program.directory / FILE_NAME).write_text("no database, " * 100)
    check(program).assert_only(2, FAILURE, DATABASE, "file is not a database")

    file = program.directory / "other.sqlite"
    configure(program, f"[database]\nconnection = sqlite:///{file}")
    told = "no tables yet. Run `wharfinger db upgrade`"
    check(program).assert_only(2, FAILURE, DATABASE, told)
    assert not file.exists()


def test_foreign_reservation_is_reported_with_the_command_that_ends_it(
    program: Program, placement_service: EmbeddedPlacement
) -> None:
    """The reservation of another program stays, and does not prevent an upgrade."""
    inprocess.run(program, "sync")
    client = WritingClient(placement_service.adapter)
    [gpu] = client.list_providers(name="gpu-host-1_pci_0000_84_00_0")
    live = client.get_inventories(gpu.uuid)
    full = {name: replace(one, reserved=one.total) for name, one in live.inventories.items()}
    client.set_inventories(gpu.uuid, live.resource_provider_generation, full)
    before = check(program)
    inprocess.run(program, "sync")

    told = check(program)

    assert before.details[FOREIGN] == "No reservation."
    assert (told.code, told.results[FOREIGN]) == (0, SUCCESS)
    command = f"{gpu.name} (`wharfinger provider release {gpu.uuid} --foreign`)"
    assert command in told.details[FOREIGN]


# The configuration.


def test_driver_that_cannot_be_loaded_fails_and_the_other_checks_run(program: Program) -> None:
    change(program, "= gpus", "= gpus, rack")

    check(program).assert_only(
        2, FAILURE, DRIVERS, "driver rack cannot be loaded: entry point: found none"
    )


def test_all_errors_of_the_configuration_are_reported(program: Program) -> None:
    configure(program, "[gpus]\nremoval_dlay = 7\n[placemnt]\n[database]\nconnection = nonsense")

    told = check(program)

    assert (told.code, told.results[DRIVERS]) == (2, FAILURE)
    for problem in ("removal_dlay", "[placemnt]", "[database] connection = ***: this is not a URL"):
        assert problem in told.details[DRIVERS]
    assert "this is not a URL" in told.details[DATABASE]


def test_unreadable_configuration_is_reported(program: Program) -> None:
    configure(program, "[gpus")
    for file in (program.config, program.directory / "none.conf"):
        done = run(program, "--config-file", str(file), "upgrade", "check")

        assert (done.code, done.out) == (255, "")
        assert done.err.startswith("configuration: ")
        assert str(file) in done.err
        assert "Traceback" not in done.err


@pytest.mark.parametrize(
    "arguments", ["", "upgrade", "upgrade chekc", "upgrade check --jsn", "--config-file"]
)
def test_wrong_usage_exits_with_64(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert upgrade_check.main(arguments.split()) == 64
    assert "usage: wharfinger-status" in capsys.readouterr().err


# Placement.


def test_status_without_the_embedded_placement_installed_fails_and_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Program(tmp_path)
    monkeypatch.setitem(sys.modules, "placement", None)

    told = check(program)

    assert told.code == FAILURE
    for name in (DRIVERS, PLACEMENT, PROVIDERS):
        assert told.results[name] == FAILURE
        assert "pip install 'wharfinger[embedded]'" in told.details[name]
    assert (told.results[DATABASE], told.results[SERVICES]) == (SUCCESS, SUCCESS)


def test_unreachable_placement_fails(tmp_path: Path) -> None:
    told = check(Program(tmp_path, f"http://{UNUSED_PORT}"))

    told.assert_only(2, FAILURE, PLACEMENT, "no answer")
    assert told.results[PROVIDERS] == FAILURE


def test_placement_without_a_feature_is_reported(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.lower(monkeypatch, "1.36")
    told = check(program)
    features = "reparent (1.37), consumer types (1.38), any traits (1.39)"
    told.assert_only(1, WARNING, PLACEMENT, features)
    assert "same subtree" not in told.details[PLACEMENT]

    lab.lower(monkeypatch, "1.25")
    told = check(program)
    told.assert_only(2, FAILURE, PLACEMENT, "full reservations need 1.26")


@pytest.fixture
def old_traits(placement_service: EmbeddedPlacement) -> Iterator[Interceptor]:
    """An interceptor that removes owner traits from Placement's answers, as an old os-traits."""

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


def test_unknown_owner_trait_fails_unless_it_is_custom(
    tmp_path: Path, old_traits: Interceptor
) -> None:
    program = Program(tmp_path, old_traits.url)
    told = "does not know OWNER_NOVA (gpus)"
    check(program).assert_only(2, FAILURE, PLACEMENT, told, "Upgrade os-traits")

    configure(program, "[gpus]\nowner = CUSTOM_OWNER_LAB")
    assert check(program).code == 0


# Services.


def publish(program: Program, *services: tuple[str, int, Collection[str]]) -> None:
    """Store services with these hosts, versions and owners."""
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

    told.assert_only(1, WARNING, SERVICES)
    details = told.details[SERVICES]
    assert "CUSTOM_OWNER_LAB: 1; OWNER_CYBORG: 2; OWNER_NOVA: 1." in details
    assert details.count("slow (wharfinger-agent, version 1)") == 2
    for host in ("tags", "fpga", "idle"):
        assert f"{host} (" not in details


def test_deleted_service_does_not_count(program: Program) -> None:
    publish(program, ("gone", 1, {"OWNER_NOVA"}), ("here", 2, {"OWNER_NOVA"}))
    context = local(program.directory, "host")
    [gone] = ServiceList.get_by_filters(context, host="gone")
    gone.destroy()
    context.close()

    told = check(program)

    assert (told.code, told.results[SERVICES]) == (0, SUCCESS)


def test_service_with_unreadable_owners_fails(program: Program, newest: sa.Engine) -> None:
    publish(program, ("spoilt", 2, {"OWNER_NOVA"}))
    execute(newest, "UPDATE services SET owners = '[nonsense'")

    told = check(program)

    assert (told.code, told.results[SERVICES]) == (2, FAILURE)
    assert samples.uuid("service 0") in told.details[SERVICES]
    assert "services.owners cannot be read" in told.details[SERVICES]


# Providers.


def provide(placement: PlacementFixture, name: str, *traits: str, **amounts: int) -> None:
    """Create a provider with these traits and inventories."""
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


def test_providers_with_inventory_but_no_owner_are_named(
    program: Program, placement: PlacementFixture
) -> None:
    provide(placement, "bare\x1b[31m-host", VCPU=8)
    provide(placement, "nova-host", "OWNER_NOVA", VCPU=8)
    provide(placement, "lab-host", "CUSTOM_OWNER_LAB", VCPU=8)
    provide(placement, "shared-disk", "MISC_SHARES_VIA_AGGREGATE", DISK_GB=100)
    provide(placement, "ovs-agent")
    provide(placement, "port", "CUSTOM_PHYSNET", NET_BW_EGR_KILOBIT_PER_SEC=1000)

    told = check(program)

    told.assert_only(1, WARNING, PROVIDERS)
    assert told.details[PROVIDERS].startswith("1 with inventory: bare\\x1b[31m-host (")


def test_fleet_without_owners_is_found_with_few_requests(
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
