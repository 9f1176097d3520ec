"""Logging of the agent's processes: handlers, lines, and hidden secrets."""

import json
import logging
import os
import subprocess
import sys
import syslog
from collections.abc import Iterator
from pathlib import Path

import pytest
from oslo_log import rate_limit

from wharfinger import conf
from wharfinger.agent import logging_setup
from wharfinger.conf.logging_options import OPTIONS
from wharfinger.exceptions import ConfigurationError
from wharfinger.masking import learn
from wharfinger.request_id import current, same_request

LOG = logging.getLogger("wharfinger.test_logging_setup")
SECRET = "hunter2hunter2"
#: A program that logs to the configured file; its lines are longer than any buffer.
WRITER = """
import logging, sys
from wharfinger import conf
from wharfinger.agent import logging_setup
logging_setup.configure(conf.parse([sys.argv[1]]))
for number in range(200):
    logging.getLogger("wharfinger").info("%s %s", number, sys.argv[2] * 20_000)
"""


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """Remove all handlers of the root logger; restore the logging after the test."""
    root, hook = logging.getLogger(), sys.excepthook
    handlers, level = root.handlers[:], root.level
    levels = {
        name: logger.level
        for name, logger in root.manager.loggerDict.items()
        if isinstance(logger, logging.Logger)
    }
    root.handlers[:] = []
    yield
    rate_limit.uninstall_filter()
    for handler in root.handlers:
        handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)
    sys.excepthook = hook
    for name in [*root.manager.loggerDict]:
        logging.getLogger(name).setLevel(levels.get(name, logging.NOTSET))


def parse(directory: Path, *lines: str) -> conf.Options:
    path = directory / "test.conf"
    path.write_text("\n".join(("[DEFAULT]", *lines)))
    return conf.parse([str(path)])


def configure(directory: Path, *lines: str, verbose: int = 0, file: str | None = None) -> Path:
    """Set up logging to the file ``log`` in the directory; return the file."""
    logging_setup.configure(
        parse(directory, *(lines or [f"log_file = {directory / 'log'}"])), verbose, file
    )
    return directory / "log"


def log_secrets() -> None:
    """Log a secret in each way in which a log line may contain one."""
    learn(SECRET)
    LOG.warning("message %s", SECRET)
    LOG.warning("at %s", "http://u:pa55word@host/x")
    LOG.warning("password=%s", 'pa55"word')
    LOG.warning('{"password": "%s"}', "pa55word")
    LOG.warning("mapped %(token)s", {"token": SECRET})
    LOG.warning("extra", extra={"extra_keys": ["password"], "password": "pa55word"})
    try:
        try:
            raise ValueError("http://u:pa55word@host")
        except ValueError as error:
            raise RuntimeError(f"api_key = pa55word, {SECRET}") from error
    except RuntimeError:
        LOG.exception("with a traceback")


# Destinations of log lines.


def test_standard_error_without_options_has_bare_warnings_and_info_lines_with_v(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for verbose, told in ((0, "W\n"), (1, "I\nW\n"), (2, "D\nI\nW\n"), (3, "D\nI\nW\n")):
        configure(tmp_path, "host = x", verbose=verbose)
        LOG.debug("D")
        LOG.info("I")
        LOG.warning("W")
        assert capsys.readouterr() == ("", told)


def test_file_of_the_configuration_has_info_lines_and_with_debug_all_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = configure(tmp_path)
    LOG.debug("not this")
    LOG.info("this")
    configure(tmp_path, f"log_dir = {tmp_path}", "log_file = log", "debug = true")
    LOG.debug("and this")

    first, second = file.read_text().splitlines()
    assert first.endswith(f" {os.getpid()} INFO {LOG.name} [-] this")
    assert f" DEBUG {LOG.name} [-] and this log" not in first
    assert f" DEBUG {LOG.name} [-] and this" in second
    assert capsys.readouterr() == ("", "")


def test_file_of_the_command_line_comes_first_and_leaves_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = tmp_path / "named"
    configure(tmp_path, "host = x", file=str(named))
    LOG.warning("one")
    assert capsys.readouterr().err == "one\n"
    other = configure(tmp_path, f"log_file = {tmp_path / 'log'}", file=str(named))
    LOG.warning("two")

    assert [line[-3:] for line in named.read_text().splitlines()] == ["one", "two"]
    assert not other.exists()


def test_use_stderr_and_use_json_without_a_file_write_to_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(tmp_path, "use_stderr = true")
    LOG.info("plain")
    configure(tmp_path, "use_json = true")
    LOG.info("object")

    out, err = capsys.readouterr()
    plain, text = err.splitlines()
    assert out == ""
    assert plain.endswith(f"INFO {LOG.name} [-] plain")
    assert json.loads(text)["message"] == "object"


def test_use_syslog_writes_only_masked_lines_with_their_priority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sent: list[tuple[int, str]] = []
    opened: list[tuple[object, ...]] = []
    monkeypatch.setattr(syslog, "openlog", lambda *args: opened.append(args))
    monkeypatch.setattr(syslog, "syslog", lambda *args: sent.append(args))
    configure(tmp_path, "use_syslog = true", "syslog_log_facility = LOG_DAEMON")
    LOG.error("http://u:pa55word@host")

    [(priority, line)] = sent
    assert priority == syslog.LOG_ERR
    assert line.endswith("http://u:***@host")
    assert opened[0][-1] == syslog.LOG_DAEMON
    assert capsys.readouterr() == ("", "")


def test_use_journal_has_no_secret_in_any_field(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler is that of oslo.log; the test replaces the journal."""
    sent: list[str] = []

    class Journal:
        @staticmethod
        def send(message: str, **fields: object) -> None:
            sent.append(f"{message} {fields}")

    monkeypatch.setattr("oslo_log.handlers.journal", Journal)
    configure(tmp_path, "use_journal = true")
    with same_request():
        request_id = current()
        log_secrets()

    assert len(sent) == 7
    assert "EXCEPTION_INFO" in sent[-1]
    for one in sent:
        assert "pa55" not in one
        assert SECRET not in one
        assert f"'REQUEST_ID': '{request_id}'" in one


def test_use_journal_without_its_library_is_refused_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oslo_log.handlers.journal", None)

    with pytest.raises(ConfigurationError, match=r"use_journal = True: .*Install systemd-python"):
        configure(tmp_path, "use_journal = true")


def test_file_that_cannot_be_written_is_named_and_logging_goes_on_as_before(
    tmp_path: Path,
) -> None:
    file = configure(tmp_path)
    with pytest.raises(
        ConfigurationError, match=r"/none/log: the log file cannot be written: No such"
    ):
        configure(tmp_path, f"log_file = {tmp_path / 'none' / 'log'}")

    LOG.info("as before")
    assert file.read_text().endswith("as before\n")


# Lines.


@pytest.mark.parametrize("options", [(), ("use_json = true",), ("debug = true",)], ids=str)
def test_no_line_has_a_secret(tmp_path: Path, options: tuple[str, ...]) -> None:
    file = configure(tmp_path, f"log_file = {tmp_path / 'log'}", *options)
    log_secrets()

    text = file.read_text()
    assert "message ***" in text
    assert "RuntimeError" in text
    assert "pa55" not in text
    assert SECRET not in text
    if "use_json = true" in options:
        lines = [json.loads(line) for line in text.splitlines()]
        assert len(lines) == 7
        assert lines[1]["message"] == "at http://u:***@host/x"
        assert lines[3]["message"] == '{"password": "***"}'
        assert lines[5]["extra"]["password"] == "***"


def test_lines_of_a_cycle_have_its_request_id_and_others_have_none(tmp_path: Path) -> None:
    file = configure(tmp_path, f"log_file = {tmp_path / 'log'}")
    objects = tmp_path / "objects"
    with same_request():
        request_id = current()
        LOG.info("in a cycle")
    LOG.info("between")
    configure(tmp_path, f"log_file = {objects}", "use_json = true")
    with same_request():
        LOG.info("in another")
        another = current()
    LOG.info("between")

    first, second = file.read_text().splitlines()
    assert first.endswith(f"[{request_id}] in a cycle")
    assert second.endswith("[-] between")
    inside, outside = (json.loads(line)["context"] for line in objects.read_text().splitlines())
    assert (inside, outside) == ({"request_id": another}, {})


def test_levels_of_libraries_are_those_of_the_option_also_with_debug(tmp_path: Path) -> None:
    configure(tmp_path, "debug = true")
    assert logging.getLogger("oslo_db").level == logging.CRITICAL
    assert not logging.getLogger("urllib3.connectionpool").isEnabledFor(logging.WARNING)
    assert logging.getLogger("keystoneauth.identity").level == logging.ERROR
    assert LOG.isEnabledFor(logging.DEBUG)

    configure(tmp_path, "default_log_levels = urllib3.connectionpool=DEBUG, wharfinger=ERROR")
    assert logging.getLogger("urllib3.connectionpool").level == logging.DEBUG
    assert not LOG.isEnabledFor(logging.WARNING)


def test_every_option_reaches_oslo_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, object] = {}

    def look(options: conf.Options, *_args: object, **_more: object) -> None:
        found.update({option.dest: options[option.dest] for option in OPTIONS})
        logging.getLogger().handlers[:] = []  # oslo.log does this first, too

    monkeypatch.setattr("oslo_log.log.setup", look)
    configure(tmp_path, "log_date_format = %H", "use_json = true")

    assert found["log_date_format"] == "%H"
    assert found["use_json"] is True


def test_rate_limit_is_replaced_at_the_next_set_up_and_stays_after_one_that_fails(
    tmp_path: Path,
) -> None:
    to_file = f"log_file = {tmp_path / 'log'}"
    configure(tmp_path, to_file, "rate_limit_interval = 600", "rate_limit_burst = 9")
    file = configure(tmp_path, to_file, "rate_limit_interval = 600", "rate_limit_burst = 2")
    with pytest.raises(ConfigurationError):
        configure(tmp_path, file=str(tmp_path / "missing" / "log"))
    for number in range(5):
        LOG.info("line %s", number)
    assert [f"line {number}" in file.read_text() for number in range(5)] == [True] * 2 + [False] * 3

    configure(tmp_path)
    LOG.info("without a limit")
    assert "without a limit" in file.read_text()


# Log files that several processes write.


def test_two_processes_append_whole_lines_to_one_file(tmp_path: Path) -> None:
    """The lines are longer than the buffers of Python's files."""
    parse(tmp_path, f"log_file = {tmp_path / 'log'}")
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path / "test.conf"), letter])
        for letter in "ab"
    ]
    assert [writer.wait(60) for writer in writers] == [0, 0]

    lines = [line.rpartition(" [-] ")[2] for line in (tmp_path / "log").read_text().splitlines()]
    wanted = {f"{number} {letter * 20_000}" for number in range(200) for letter in "ab"}
    assert len(lines) == 400
    assert set(lines) == wanted


def test_file_that_logrotate_renames_is_created_again(tmp_path: Path) -> None:
    file = configure(tmp_path)
    LOG.info("before")
    file.rename(tmp_path / "log.1")
    LOG.info("after")

    assert (tmp_path / "log.1").read_text().endswith("before\n")
    assert file.read_text().endswith("after\n")
