"""Masks passwords and tokens in text that leaves the program."""

import json
import logging
import re
import sys
import threading
import traceback
from base64 import b64encode
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote, quote_plus, unquote

MASK: Final = "***"
#: Shorter values are masked by their place only, since they may be common words ("admin").
_SHORTEST: Final = 6
_WORDS: Final = ("pass", "pwd", "secret", "token", "key")
_NAMES: Final = r"(?:password|passwd|passphrase|passcode|pwd|secret|token|api_?key|access_?key)"
#: The name of a secret in text. hw:tpm_secret_security and a trait CUSTOM_TOKEN do not match.
_NAMED: Final = rf"(?<!CUSTOM_){_NAMES}(?:_?(?:id|key|hash|\d{{1,3}}))?"
#: Names of options that contain a secret, also of drivers that are not in this repository.
_SECRET_OPTION: Final = re.compile(rf"(?:.*_)?{_NAMES}\Z", re.IGNORECASE)
#: User, colon and password before the host of a URL, even with a / that is not encoded. Or the
#: user alone, which may be a token.
_USERINFO: Final = re.compile(
    r"://([^\s/?#@:]{0,300}:(?=[^\s/?#]{0,1000}@|(?!\d*(?:[/?#]|\Z))))?"
    r"(?:[^\s/?#]{1,1000}|(?<=:)\S{1,1000})@"
)
_IN_URL: Final = re.compile(r"(https?)?://(.*)@", re.DOTALL | re.IGNORECASE)
#: Words, pattern and replacement. For speed, a pattern is tried only on text with one of the words.
_PATTERNS: Final = (
    (("://",), _USERINFO, rf"://\g<1>{MASK}@"),
    # password=..., ?token=..., or with spaces around the =, as in a configuration file
    (
        _WORDS,
        re.compile(rf"({_NAMED}\s?=\s?)(?!{re.escape(MASK)})[^\s&,;'\"]+", re.IGNORECASE),
        rf"\g<1>{MASK}",
    ),
    # "password": "...", in JSON and in the repr of Python objects
    (
        _WORDS,
        re.compile(
            rf"({_NAMED}(?:[\"']\s*[:=]\s*|\s?=\s?)b?)"
            r"([\"'])(?:\\.|(?!\2)[^\\])*\2",
            re.IGNORECASE | re.DOTALL,
        ),
        rf"\g<1>\g<2>{MASK}\g<2>",
    ),
    # X-Auth-Token: ..., Authorization: Basic ..., ('Cookie', '...; ...')
    (
        ("token", "auth", "cookie"),
        re.compile(
            r"((?:x-[a-z-]{0,50}token|authorization|auth-receipt|cookie)"
            r"(?:[\"']?\s*[:=]|[\"'],)\s*(?:b?[\"'])?)"
            r"(?:(?:basic|bearer|digest|negotiate)\s+)?[^\s\"',;]+(?:;\s*[^\s\"',;]+)*",
            re.IGNORECASE,
        ),
        rf"\g<1>{MASK}",
    ),
)

_lock: Final = threading.Lock()
_known: frozenset[str] = frozenset()
_known_pattern: re.Pattern[str] | None = None


def masked(text: str) -> str:
    """Return the text with *** in place of recognised secrets."""
    if _known_pattern is not None:
        text = _known_pattern.sub(MASK, text)
    lower = text.lower()
    for words, pattern, replacement in _PATTERNS:
        if any(word in lower for word in words):
            text = pattern.sub(replacement, text)
    return text


def learn(secret: str) -> None:
    """Mask this value in all text from now on, if it has six characters or more."""
    _add(form for form in _forms(secret) if len(form) >= _SHORTEST)


def learn_option(key: str, value: str) -> None:
    """Mask the secret in an option's value from now on, if there is one."""
    if _SECRET_OPTION.match(key):
        learn(value)
    learn_url(value)


def learn_url(value: str) -> None:
    """Mask the password or token in a URL from now on, if there is one."""
    found = _IN_URL.search(value)
    if found is None:
        return
    is_http, userinfo = found.groups()
    user, _, password = userinfo.partition(":")
    learn(password)
    if is_http:
        if not password:
            learn(user)  # the user may be a token, but not in the URL of a database
        # in the form of HTTP's basic authentication
        learn(b64encode(f"{unquote(user)}:{unquote(password)}".encode()).decode())


class MaskingFormatter(logging.Formatter):
    """Formatter that masks secrets in the output of another formatter."""

    def __init__(self, formatter: logging.Formatter | None, *, is_json: bool = False) -> None:
        super().__init__()
        self._formatter: Final = formatter or logging.Formatter()
        self._is_json: Final = is_json

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as text without secrets; mask its ``exc_text``, too."""
        text = self._formatter.format(record)
        if record.exc_text:  # handlers read this, too
            record.exc_text = masked(record.exc_text)
        return _masked_json_without_arguments(text) if self._is_json else masked(text)

    def formatException(self, ei: Any) -> str:  # noqa: N802 - logging's name
        """Return a traceback without secrets."""
        return masked(self._formatter.formatException(ei))


def _masked_json_without_arguments(text: str) -> str:
    return json.dumps(_masked_value("", json.loads(text) | {"args": None}))


def _masked_value(key: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {masked(name): _masked_value(name, part) for name, part in value.items()}
    if isinstance(value, list):
        return [_masked_value(key, part) for part in value]
    if isinstance(value, str):
        return MASK if value and _SECRET_OPTION.match(key) else masked(value)
    return value


def mask_handlers(logger: logging.Logger, *, is_json: bool = False) -> None:
    """Mask secrets that a logger's handlers write, also when a log call fails."""
    for handler in logger.handlers:
        if not isinstance(handler.formatter, MaskingFormatter):
            handler.setFormatter(MaskingFormatter(handler.formatter, is_json=is_json))
        if type(handler).handleError is logging.Handler.handleError:
            handler.handleError = _print_error_without_record  # type: ignore[method-assign]


def _print_error_without_record(record: logging.LogRecord) -> None:
    text = f"line {record.lineno} of {record.pathname} was not logged:\n{traceback.format_exc()}"
    with suppress(AttributeError, OSError):  # there may be no standard error
        sys.stderr.write(masked(text))


def _forms(secret: str) -> Iterator[str]:
    single = secret.replace("%%", "%")  # in keystoneauth's messages, %% becomes %
    for one in {secret, single, unquote(secret), unquote(single)}:
        yield one
        yield quote(one)
        yield quote(one, safe="")
        yield quote_plus(one)
        yield json.dumps(one)[1:-1]
        yield repr(one)[1:-1]


def _add(secrets: Iterable[str]) -> None:
    global _known, _known_pattern  # noqa: PLW0603 - secrets of the whole process
    with _lock:
        known = _known.union(secrets) - {"", MASK}
        if known != _known:
            longest_first = sorted(known, key=lambda one: (-len(one), one))
            _known_pattern = re.compile("|".join(map(re.escape, longest_first)))
            _known = known
