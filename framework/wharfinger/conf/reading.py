"""Errors of oslo.config, told as ours."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oslo_config import cfg

from wharfinger.exceptions import ConfigurationError, ConfigurationFileError


@contextmanager
def reading(section: str) -> Iterator[None]:
    """Raise ConfigurationFileError for what oslo.config finds wrong in a section.

    It looks at an option's value when the option is first read.
    """
    try:
        yield
    except cfg.Error as error:
        raise ConfigurationFileError(
            problem=f"section [{section}]: {error}.", remedy="Correct it in the file."
        ) from error


def read_path(section: str, key: str, value: str) -> Path:
    """An absolute path, ~ taken for the home directory; raises ConfigurationError.

    Databases are made there, whose URLs have a meaning for some characters.
    """
    try:
        path = Path(value).expanduser()
    except RuntimeError as error:
        raise _wrong_path(section, key, value, str(error)) from error
    if not path.is_absolute():
        raise _wrong_path(section, key, value, "it depends on where the program is started")
    if not value.isprintable() or set("?#%") & set(value):
        raise _wrong_path(section, key, value, "a path with ?, # or % cannot hold a database")
    return path


def _wrong_path(section: str, key: str, value: str, problem: str) -> ConfigurationError:
    return ConfigurationError(
        section=section,
        key=key,
        value=value,
        problem=f"{problem}.",
        remedy="Name an absolute path.",
    )
