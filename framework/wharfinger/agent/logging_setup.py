"""Set up the logging of the agent and of its child processes."""

import logging
import sys
from contextlib import suppress
from logging import FileHandler
from typing import Final

from oslo_config import cfg
from oslo_log import log as oslo_log
from oslo_log import rate_limit

from wharfinger import request_id
from wharfinger.agent.standard_error import StandardError
from wharfinger.conf.logging_options import LoggingSection
from wharfinger.conf.unread_keys import DEFAULT
from wharfinger.error_codes import add_codes
from wharfinger.exceptions import ConfigurationError
from wharfinger.masking import mask_handlers

_PRODUCT: Final = "wharfinger"
#: Levels by the number of -v given, if no option names an output.
_BARE_LEVELS: Final = (logging.WARNING, logging.INFO, logging.DEBUG)
#: The logger of the embedded Placement, which logs with its own request ids.
_PLACEMENT: Final = "placement"
_RATE_LIMIT: Final = ("burst", "interval", "except_level")


def configure(conf: cfg.ConfigOpts, verbose_level: int = 0, log_file: str | None = None) -> None:
    """Set up the logging of this process. Raises ConfigurationError."""
    section = LoggingSection.read(conf)
    debug = section.debug or verbose_level >= len(_BARE_LEVELS) - 1
    is_bare = not section.names_output
    root = logging.getLogger()
    former = root.handlers[:]
    try:
        _set_up(section, log_file, debug=debug, to_stderr=is_bare or section.values["use_stderr"])
    except ConfigurationError:
        root.handlers[:] = former
        raise
    _limit_rate(**{key: section.values[f"rate_limit_{key}"] for key in _RATE_LIMIT})
    for handler in former:
        if isinstance(handler, FileHandler):
            handler.close()
    for handler in root.handlers:
        handler.addFilter(_add_request_id)
        handler.addFilter(add_codes)
        if isinstance(handler, logging.StreamHandler) and handler.stream is sys.stderr:
            with suppress(AttributeError, OSError):  # it is closed, or no file
                handler.setStream(StandardError(sys.stderr.fileno()))
        if is_bare and not isinstance(handler, FileHandler):
            handler.setFormatter(logging.Formatter("%(message)s"))
            handler.setLevel(logging.DEBUG if debug else _BARE_LEVELS[verbose_level])
    mask_handlers(root, is_json=section.values["use_json"])


def _set_up(section: LoggingSection, log_file: str | None, *, debug: bool, to_stderr: bool) -> None:
    path = log_file or (section.file and str(section.file))
    if not path and not (section.values["use_journal"] or section.values["use_syslog"]):
        to_stderr = True
    options = cfg.ConfigOpts()
    oslo_log.register_options(options)
    options([], project=_PRODUCT, default_config_files=[], default_config_dirs=[])
    ours = {
        "debug": debug,
        "use_stderr": to_stderr,
        "log_file": path,
        "log_dir": None,
        "rate_limit_burst": 0,  # oslo.log cannot replace the limit of an earlier set-up
    }
    for name, value in (section.values | ours).items():
        options.set_override(name, value)
    try:
        oslo_log.setup(options, _PRODUCT, fix_eventlet=False)
    except OSError as error:
        raise ConfigurationError(
            section=DEFAULT,
            key="log_file",
            value=path,
            problem=f"the log file cannot be written: {error.strerror}.",
            remedy="Create the directory of the file, and let the agent's user write to the "
            "directory and the file.",
        ) from error
    except RuntimeError as error:
        raise ConfigurationError(
            section=DEFAULT,
            key="use_journal",
            value=section.values["use_journal"],
            problem=f"the log cannot be written to the journal: {error}.",
            remedy="Install systemd-python. Or set use_stderr = true instead: systemd writes the "
            "standard error of a service to the journal.",
        ) from error
    root = logging.getLogger()
    for handler in root.handlers[:]:
        # oslo.log adds such a handler for syslog, but standard output is for the results of
        # commands.
        if isinstance(handler, logging.StreamHandler) and handler.stream is sys.stdout:
            root.removeHandler(handler)


def _limit_rate(burst: int, interval: int, except_level: str) -> None:
    rate_limit.uninstall_filter()
    if burst and interval:
        rate_limit.install_filter(burst, interval, except_level)


def _add_request_id(record: logging.LogRecord) -> bool:
    if record.name.partition(".")[0] != _PLACEMENT:
        current = request_id.current()
        record.context = {"request_id": current} if current else {}
    return True  # keep the record
