"""Options of oslo.log for `wharfinger agent`.

Options that rotate files or show secrets do not belong here.
"""

import logging
from dataclasses import dataclass
from logging import PercentStyle
from pathlib import Path
from typing import Any, Final, Self

from oslo_config import cfg

from wharfinger.conf.option_reading import read_options
from wharfinger.conf.unread_keys import DEFAULT
from wharfinger.exceptions import ConfigurationError
from wharfinger.log_levels import LOUD_LIBRARIES, QUIET_LIBRARIES

_FACILITIES: Final = (
    *("AUTH", "AUTHPRIV", "CRON", "DAEMON", "KERN", "LPR", "MAIL", "NEWS", "SYSLOG", "USER"),
    *("UUCP", *(f"LOCAL{number}" for number in range(8))),
)
_IN_FRONT: Final = "%(asctime)s.%(msecs)03d %(process)d"

OPTIONS: Final[tuple[cfg.Opt, ...]] = (
    cfg.BoolOpt(
        "debug",
        default=False,
        help="Log at DEBUG and above, as `wharfinger -vv agent` does. False: at INFO and above; or "
        "only warnings and errors, if no option sets where to log (see use_stderr).",
    ),
    cfg.StrOpt(
        "log_file",
        help="The file to which `wharfinger agent` and its child processes append their log. A "
        "relative path is relative to log_dir, if log_dir is set. When logrotate has renamed the "
        "file, a new file is opened. Default: wharfinger-agent.log in log_dir; no file without "
        "log_dir. `wharfinger --log-file FILE agent` overrides log_file and log_dir.",
    ),
    cfg.StrOpt(
        "log_dir",
        help="The directory of the log file. If log_file is not set, the name of the file is "
        "wharfinger-agent.log.",
    ),
    cfg.BoolOpt(
        "use_stderr",
        default=False,
        help="Log to standard error in the configured formats. If none of use_stderr, log_file, "
        "log_dir, use_journal, use_syslog and use_json is set, the agent prints only the text of "
        "warnings and errors to standard error; with -v or debug, of more lines. --log-file FILE "
        "on the command line does not change this; the file gets formatted lines.",
    ),
    cfg.BoolOpt(
        "use_journal",
        default=False,
        help="Log to systemd's journal, with structured fields. Needs the Python package "
        "systemd-python.",
    ),
    cfg.BoolOpt(
        "use_syslog", default=False, help="Log to syslog, with the facility syslog_log_facility."
    ),
    cfg.StrOpt(
        "syslog_log_facility",
        default="LOG_USER",
        choices=[f"LOG_{name}" for name in _FACILITIES],
        help="The syslog facility of lines in syslog and in the journal (use_syslog, use_journal).",
    ),
    cfg.BoolOpt(
        "use_json",
        default=False,
        help="Log each record as a JSON object in one line. Of the configured formats, only "
        "log_date_format applies. If no other option sets where to log, the lines go to standard "
        "error. In each object, args is null, since message already contains the arguments, with "
        "secrets masked.",
    ),
    cfg.StrOpt(
        "log_date_format",
        default="%Y-%m-%d %H:%M:%S",
        help="Format of the time %(asctime)s in log lines, as for strftime.",
    ),
    cfg.StrOpt(
        "logging_context_format_string",
        default=f"{_IN_FRONT} %(levelname)s %(name)s [%(request_id)s] %(instance)s%(message)s",
        help="Format of the lines that are logged during a cycle. %(request_id)s is the request "
        "id that the cycle sends to Placement.",
    ),
    cfg.StrOpt(
        "logging_default_format_string",
        default=f"{_IN_FRONT} %(levelname)s %(name)s [-] %(instance)s%(message)s",
        help="Format of the lines that are logged outside cycles.",
    ),
    cfg.StrOpt(
        "logging_debug_format_suffix",
        default="%(funcName)s %(pathname)s:%(lineno)d",
        help="Text that is added to the format of lines at level DEBUG.",
    ),
    cfg.StrOpt(
        "logging_exception_prefix",
        default=f"{_IN_FRONT} ERROR %(name)s %(instance)s",
        help="Format of the prefix of each line of a traceback.",
    ),
    cfg.ListOpt(
        "default_log_levels",
        default=[*QUIET_LIBRARIES, *LOUD_LIBRARIES],
        help="Levels of single loggers, as a list of logger=LEVEL. These levels apply also with "
        "debug = true.",
    ),
    cfg.IntOpt(
        "rate_limit_interval",
        default=0,
        min=0,
        help="The length of an interval, in seconds, for rate_limit_burst. 0: no limit.",
    ),
    cfg.IntOpt(
        "rate_limit_burst",
        default=0,
        min=0,
        help="The largest number of lines that a process logs in rate_limit_interval seconds; "
        "further lines are dropped. 0: no limit.",
    ),
    cfg.StrOpt(
        "rate_limit_except_level",
        default="CRITICAL",
        choices=["CRITICAL", "ERROR", "WARNING", "INFO", "DEBUG"],
        help="Lines at this level and above are always logged, and do not count in "
        "rate_limit_burst.",
    ),
)
_FORMATS: Final = (
    "logging_context_format_string",
    "logging_default_format_string",
    "logging_debug_format_suffix",
    "logging_exception_prefix",
)
#: Attributes that oslo.log adds to a record before it fills in a format.
_ADDED: Final = (
    *(
        "asctime",
        "message",
        "instance",
        "color",
        "user_identity",
        "resource",
        "user_name",
        "project_name",
    ),
    *("global_request_id", "request_id", "project", "version", "isotime", "error_summary"),
)
_FILE_NAME: Final = "wharfinger-agent.log"


@dataclass(frozen=True, slots=True)
class LoggingSection:
    """The validated options of oslo.log."""

    file: Path | None
    values: dict[str, Any]

    @classmethod
    def read(cls, conf: cfg.ConfigOpts) -> Self:
        """Read and check the options. Raises ConfigurationError."""
        values = read_options(conf, DEFAULT, OPTIONS)
        for name in _FORMATS:
            _check_format(name, values[name])
        for pair in values["default_log_levels"]:
            _check_level(pair)
        directory, name = values["log_dir"], values["log_file"]
        if not directory and not name:
            return cls(None, values)
        return cls(Path(directory or "", name or _FILE_NAME), values)

    @property
    def debug(self) -> bool:
        """The value of the option debug."""
        return bool(self.values["debug"])

    @property
    def names_output(self) -> bool:
        """Whether an option sets where to log, or use_json is set."""
        chosen = ("use_stderr", "use_journal", "use_syslog", "use_json")
        return self.file is not None or any(self.values[name] for name in chosen)


def _check_format(name: str, value: str) -> None:
    record = logging.makeLogRecord(dict.fromkeys(_ADDED, ""))
    try:
        PercentStyle(value).format(record)
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigurationError(
            section=DEFAULT,
            key=name,
            value=value,
            problem=f"this format of log lines is invalid ({type(error).__name__}: {error}).",
            remedy="Write %(name)s for an attribute of a log record, and %% for the character %.",
        ) from error


def _check_level(pair: str) -> None:
    name, _, level = pair.partition("=")
    if not name or not (level in logging.getLevelNamesMapping() or level.isdecimal()):
        raise ConfigurationError(
            section=DEFAULT,
            key="default_log_levels",
            value=pair,
            problem="this is not of the form logger=LEVEL.",
            remedy="Write it as sqlalchemy=WARNING. The levels are DEBUG, INFO, WARNING, ERROR "
            "and CRITICAL.",
        )
