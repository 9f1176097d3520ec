"""Read and check the options of a section."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from oslo_config import cfg, types

from wharfinger.conf.unread_keys import DEFAULT, Options
from wharfinger.exceptions import ConfigurationError, ConfigurationFileError
from wharfinger.masking import MASK, learn, learn_url

#: The part of oslo.config's message that says where an option is set, as the repr of an object.
_LOCATION: Final = re.compile(r" from LocationInfo\(.*\)(?= is not valid: )", re.DOTALL)


@contextmanager
def reading(section: str) -> Iterator[None]:
    """Translate oslo.config's errors about a section to ConfigurationFileError."""
    try:
        yield
    except cfg.Error as error:
        raise ConfigurationFileError(
            problem=f"section [{section}]: {_LOCATION.sub('', str(error))}.",
            remedy="Correct this section of the configuration.",
        ) from error


def read_options(conf: cfg.ConfigOpts, section: str, options: Sequence[cfg.Opt]) -> dict[str, Any]:
    """Register the options of a section; return their values. Raises ConfigurationError."""
    conf.register_opts(list(options), None if section == DEFAULT else section)
    return {option.dest: _value(conf, section, option) for option in options}


def _value(conf: cfg.ConfigOpts, section: str, option: cfg.Opt) -> Any:
    values = conf if section == DEFAULT else conf[section]
    try:
        value = values[option.dest]
        _learn_secrets(option, value)
        if value is not None or option.default is None:
            return value
        problem, remedy = (
            "the value is empty.",
            _accepted_values(option.type) or "Set a value, or remove it.",
        )
    except (cfg.ConfigFileValueError, cfg.ConfigSourceValueError) as error:
        problem = "this value cannot be used."
        text = str(error).rpartition(" is not valid: ")[2].rstrip(".")
        remedy = _accepted_values(option.type) or f"{text[:1].upper()}{text[1:]}."
    except (cfg.Error, RecursionError):
        problem = "the name after a $ is not an option, or refers back to this one."
        remedy = "Use the name of an option, or write $$ for the character $."
    setting = conf.setting(section, option) if isinstance(conf, Options) else None
    _learn_secrets(option, setting and setting.value)
    shown = setting.value if setting else "..."
    raise ConfigurationError(
        section=section,
        key=option.dest,
        value=MASK if option.secret else shown,
        problem=problem,
        remedy=f"{remedy} It is set in {setting.file}." if setting else remedy,
    )


def _learn_secrets(option: cfg.Opt, value: object) -> None:
    for text in value if isinstance(value, list) else [value]:
        if isinstance(text, str):
            if option.secret and "://" not in text:  # only a part of a URL is secret
                learn(text)
            learn_url(text)


def _accepted_values(wanted: object) -> str:
    if isinstance(wanted, types.Boolean):
        return "It takes true or false."
    if isinstance(wanted, types.Integer) or type(wanted) is types.Float:
        kind = "a whole number" if isinstance(wanted, types.Integer) else "a number"
        if wanted.min is None or wanted.max is None:
            least = "" if wanted.min is None else f", {wanted.min} or above"
            most = "" if wanted.max is None else f", {wanted.max} or below"
            return f"It takes {kind}{least}{most}."
        return f"It takes {kind} from {wanted.min} to {wanted.max}."
    return ""


def read_path(section: str, key: str, value: str) -> Path:
    """Return an absolute path; ~ is the home directory. Raises ConfigurationError."""
    try:
        path = Path(value).expanduser()
    except RuntimeError as error:
        raise _wrong_path(section, key, value, str(error)) from error
    if not path.is_absolute():
        raise _wrong_path(section, key, value, "it is not absolute")
    if not value.isprintable() or set("?#%") & set(value):
        problem = "it has an unprintable character, or one of ?, # and %"
        raise _wrong_path(section, key, value, problem)
    return path


def _wrong_path(section: str, key: str, value: str, problem: str) -> ConfigurationError:
    return ConfigurationError(
        section=section,
        key=key,
        value=value,
        problem=f"this path cannot be used: {problem}.",
        remedy="Set an absolute path of printable characters without ?, # and %.",
    )
