"""Codes of errors: the class names in ``wharfinger.exceptions``."""

import logging
from typing import Any

from wharfinger import exceptions
from wharfinger.exceptions import WharfingerError


def code(error: WharfingerError) -> str:
    """Return the code of an error, which is the name of a class."""
    return next(
        kind.__name__ for kind in type(error).__mro__ if kind.__module__ == exceptions.__name__
    )


def with_code(error: BaseException) -> str:
    """Return the message of an error, with its code if it has one."""
    return f"{error} [{code(error)}]" if isinstance(error, WharfingerError) else str(error)


def add_codes(record: logging.LogRecord) -> bool:
    """Add codes to the errors in a log record; return True, as a logging filter."""
    record.msg = _coded(record.msg)
    if isinstance(record.args, tuple):
        record.args = tuple(map(_coded, record.args))
    return True


def _coded(value: Any) -> Any:
    return with_code(value) if isinstance(value, WharfingerError) else value
