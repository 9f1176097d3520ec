"""Options of oslo.log in the section [DEFAULT], read from a real file."""

from importlib.metadata import entry_points
from pathlib import Path

import pytest
from oslo_config import cfg

from wharfinger import conf
from wharfinger.conf.logging_options import OPTIONS, LoggingSection
from wharfinger.exceptions import ConfigurationError


def read(directory: Path, *lines: str) -> conf.Options:
    path = directory / "test.conf"
    path.write_text("\n".join(("[DEFAULT]", *lines)))
    return conf.parse([str(path)])


def test_options_have_the_types_of_oslo_log() -> None:
    [entry] = entry_points(group="oslo.config.opts", name="oslo.log")
    [(_, theirs)] = entry.load()()
    known = {option.dest: option for option in theirs}

    for option in OPTIONS:
        assert type(option) is type(known[option.dest]), option.dest
        assert isinstance(option, cfg.Opt)


def test_log_file_is_below_log_dir_and_has_a_default_name(tmp_path: Path) -> None:
    def file(*lines: str) -> Path | None:
        return LoggingSection.read(read(tmp_path, *lines)).file

    assert file() is None
    assert file("log_file = /var/log/one.log") == Path("/var/log/one.log")
    assert file("log_dir = /var/log", "log_file = one.log") == Path("/var/log/one.log")
    assert file("log_dir = /var/log") == Path("/var/log/wharfinger-agent.log")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("use_json = perhaps", "[DEFAULT] use_json = perhaps: this value cannot be used. It takes"),
        ("default_log_levels = urllib3", "default_log_levels = urllib3: this is not of"),
        ("default_log_levels = a=DEBUG, b=LOUD", "default_log_levels = b=LOUD: this is not of"),
        ("syslog_log_facility = MINE", "[DEFAULT] syslog_log_facility = MINE: "),
        ("rate_limit_burst = -1", "rate_limit_burst = -1: "),
        ("rate_limit_except_level =", "rate_limit_except_level = : "),
        (
            "logging_default_format_string = %(nothing)s",
            "not found in record: 'nothing'). Write %(name)s",
        ),
        ("logging_context_format_string = %(message)", "(ValueError: incomplete format)"),
        ("logging_exception_prefix = %(process)q", "this format of log lines is invalid"),
    ],
)
def test_wrong_value_is_named_with_its_remedy(tmp_path: Path, line: str, problem: str) -> None:
    opts = read(tmp_path, line)
    with pytest.raises(ConfigurationError) as caught:
        LoggingSection.read(opts)

    assert problem in str(caught.value)
    assert str(caught.value) in map(str, conf.problems(opts))


@pytest.mark.parametrize(
    "name",
    ["log_config_append", "log_rotation_type", "publish_errors", "watch_log_file", "log_files"],
)
def test_unsupported_option_is_refused_by_name(tmp_path: Path, name: str) -> None:
    problems = [str(one) for one in conf.problems(read(tmp_path, f"{name} = x"))]

    assert any(f"option {name} of section [DEFAULT] is unknown" in one for one in problems)
