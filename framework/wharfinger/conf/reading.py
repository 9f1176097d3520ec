"""Errors of oslo.config, told as ours."""

from collections.abc import Iterator
from contextlib import contextmanager

from oslo_config import cfg

from wharfinger.exceptions import ConfigurationFileError


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
