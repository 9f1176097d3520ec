"""Promises about secrets, files, and endless answers."""

import os
import stat
from pathlib import Path

import pytest

from tests.lab import inprocess, secrets
from tests.lab.endless import Endless
from tests.lab.placement import Requests
from tests.lab.program import Done, Program
from wharfinger import conf
from wharfinger.exceptions import BackendError
from wharfinger.objects import Service
from wharfinger_ironic.driver import IronicDriver

# Secrets.


@pytest.mark.usefixtures("no_waiting")
@pytest.mark.parametrize("options", [(), ("--debug", "-vv")], ids=["plain", "debug"])
def test_output_with_passwords_in_urls_and_services_down_has_no_password(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    """No command prints a password while no service answers, not even with --debug."""
    config = secrets.configure(tmp_path, placement=secrets.DOWN)

    done = {" ".join(command): secrets.run(config, command, *options) for command in commands()}

    assert wrongly_used(done) == []
    assert "operator:***@127.0.0.1:1" in done["provider list"].err
    assert {name: found for name, one in done.items() if (found := secrets.traces(one))} == {}


@pytest.mark.usefixtures("no_waiting")
def test_output_with_passwords_in_urls_and_placement_up_has_no_password(
    tmp_path: Path, placement_url: tuple[str, Requests]
) -> None:
    """No command prints a password while Placement answers, not even with --debug."""
    config = secrets.configure(tmp_path, placement=secrets.with_password(placement_url[0]))

    done = {" ".join(command): secrets.run(config, command, "--debug") for command in commands()}

    assert placement_url[1].seen, "Placement was never asked"
    assert {name: found for name, one in done.items() if (found := secrets.traces(one))} == {}


@pytest.mark.usefixtures("no_waiting")
def test_output_with_a_password_in_the_database_url_has_no_password(tmp_path: Path) -> None:
    """No command prints the password of a database that does not answer."""
    config = secrets.configure(tmp_path, secrets.DOWN, database=secrets.DATABASE_DOWN)

    done = {" ".join(command): secrets.run(config, command, "--debug") for command in commands()}
    done["wharfinger-status"] = secrets.run_status(config)

    assert {name: found for name, one in done.items() if (found := secrets.traces(one))} == {}


def test_conformance_report_of_a_backend_with_a_password_has_no_password(tmp_path: Path) -> None:
    """Neither the conformance kit nor its reports show a password of the backend."""
    done = secrets.run_conformance(secrets.configure(tmp_path, placement=secrets.DOWN))

    assert "127.0.0.1" in done.out, "no report says where the backend was sought"
    assert secrets.traces(done) == []


# Files.


@pytest.mark.parametrize("link", ["symbolic", "hard"])
def test_lock_file_that_is_a_link_is_refused(program: Program, link: str) -> None:
    """A lock file that is a link is an error, and the file it leads to stays as it is."""
    precious = program.directory / "precious"
    precious.write_text("42")
    make = Path.symlink_to if link == "symbolic" else Path.hardlink_to
    make(program.directory / "gpus.lock", precious)

    done = inprocess.run(program, "sync")

    assert done.code == 1
    assert f"{program.directory}/gpus.lock: the path is a {link} link" in done.err
    assert precious.read_text() == "42"


@pytest.mark.parametrize("content", [b"a letter to a friend", b"\xff\xfe\x00"])
def test_lock_file_with_other_content_is_refused(program: Program, content: bytes) -> None:
    """A file of another program in place of a lock file is an error, and is not emptied."""
    lock = program.directory / "gpus.lock"
    lock.write_bytes(content)

    done = inprocess.run(program, "sync")

    assert done.code == 1
    assert f"state in {lock}: " in done.err
    assert "Traceback" not in done.err
    assert lock.read_bytes() == content


def test_files_with_any_umask_are_readable_only_by_their_owner(program: Program) -> None:
    """Files and directories that Wharfinger creates have mode 0600 or 0700, whatever the
    umask is.
    """
    state = program.directory / "made" / "state"
    text = program.config.read_text()
    program.config.write_text(
        text.replace(f"state_path = {program.directory}", f"state_path = {state}").replace(
            "test://$state_path", f"test://{program.directory}"
        )
    )

    before = os.umask(0)
    try:
        assert inprocess.run(program, "sync").code == 0
    finally:
        os.umask(before)

    made = [state.parent, *state.parent.rglob("*")]
    assert {"wharfinger.sqlite", "gpus.lock"} <= {one.name for one in made}
    assert {
        str(one): oct(mode)
        for one in made
        if (mode := stat.S_IMODE(one.stat().st_mode)) != (0o700 if one.is_dir() else 0o600)
    } == {}


# Endless servers.


@pytest.mark.parametrize(
    ("pages", "told"),
    [("new", r"after 3 pages \(3 nodes\).*raise \[metal\] max_pages"), ("the same", "than once")],
)
def test_endless_listing_is_an_error(tmp_path: Path, pages: str, told: str) -> None:
    """An endless listing, or one that returns to an earlier page, is an error."""
    with Endless(pages=pages) as server:
        driver = ironic(tmp_path, server.url)

        with pytest.raises(BackendError, match=told):
            driver.get_available_nodes(refresh=True)


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_endless_answer_is_an_error(tmp_path: Path, encoding: str) -> None:
    """An answer is read up to a limit, even if it grows only when it is decompressed."""
    with Endless(encoding=encoding) as server:
        program = Program(tmp_path, server.url)
        program.config.write_text(program.config.read_text() + "max_response_size = 1\n")

        done = inprocess.run(program, "provider", "list")

    assert done.code == 1
    assert "Placement: GET /: " in done.err
    assert "more than 1 MiB" in done.err
    assert "[placement] max_response_size" in done.err
    assert server.sent < 100 * 2**20


# Helpers.


@pytest.fixture
def program(tmp_path: Path, placement_url: tuple[str, Requests]) -> Program:
    return Program(tmp_path, placement_url[0])


def commands() -> list[list[str]]:
    return secrets.commands()


def wrongly_used(done: dict[str, Done]) -> list[str]:
    """Return the commands for which tests/lab/secrets.py gives wrong arguments."""
    return [name for name, one in done.items() if one.code == 64]


def ironic(directory: Path, url: str) -> IronicDriver:
    """Return an Ironic driver for this server, which reads three pages of a listing at most."""
    config = directory / "ironic.conf"
    config.write_text(
        f"[DEFAULT]\nenabled_drivers = metal\nstate_path = {directory}\n"
        f"[metal]\ndriver = ironic\nauth_type = none\nendpoint = {url}\nmax_pages = 3\n"
    )
    driver = IronicDriver(conf.parse([str(config)], []), "here", "metal")
    driver.init_host(Service())
    return driver
