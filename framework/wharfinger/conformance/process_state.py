"""Compare and restore the state that all code of a process shares."""

import builtins
import contextlib
import decimal
import gc
import locale
import logging
import multiprocessing
import os
import resource
import signal
import socket
import sys
import tempfile
import threading
import time
import warnings
from _signal import getsignal as handler_of  # type: ignore[import-not-found]
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from operator import ne
from typing import Any, Final, NamedTuple, cast

from oslo_config import cfg

#: The packages with loggers of the framework and of the libraries that it shares with drivers.
_SHARED: Final = frozenset(
    {
        *("wharfinger", "alembic", "asyncio", "concurrent", "keystoneauth", "oslo_concurrency"),
        *("oslo_config", "oslo_db", "oslo_log", "oslo_utils", "requests", "sqlalchemy"),
        *("stevedore", "tenacity", "urllib3"),
    }
)
_LIMITS: Final = {
    name: getattr(resource, f"RLIMIT_{name}")
    for name in ("AS", "CORE", "CPU", "DATA", "FSIZE", "MEMLOCK", "NOFILE", "NPROC", "STACK")
}
_LEVELS: Final = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
_TIMERS: Final = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_SIGNALS: Final = tuple(map(int, signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}))
#: The undecoded variables of os.environ; it is quicker to copy these.
_VARIABLES: Final[dict[bytes, bytes]] = vars(os.environ)["_data"]
_CONTEXT: Final = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")


@dataclass(frozen=True, slots=True)
class Aspect:
    """One part of the shared state, such as the working directory."""

    name: str
    read: Callable[[], Any]
    #: Takes an earlier result of ``read``.
    restore: Callable[[Any], object]
    differ: Callable[[Any, Any], bool] = ne
    is_logging: bool = False
    #: Whether a harness may change the part between two calls to the driver.
    is_of_harness: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """An aspect with different values in two snapshots."""

    aspect: Aspect
    before: Any
    after: Any

    def __str__(self) -> str:
        if isinstance(self.before, Mapping) and isinstance(self.after, Mapping):
            keys = self.before.keys() | self.after.keys()
            usual = _USUAL if self.aspect.is_logging else None
            wrong = [
                key for key in keys if self.before.get(key, usual) != self.after.get(key, usual)
            ]
            named = sorted(one.decode() if isinstance(one, bytes) else str(one) for one in wrong)
            return f"{self.aspect.name} ({', '.join(named[:3])})"
        return self.aspect.name


def snapshot() -> list[Any]:
    """Return the present values of ``ASPECTS``."""
    return [aspect.read() for aspect in ASPECTS]


def changes(before: Sequence[Any], after: Sequence[Any]) -> list[Change]:
    """Return the changes between two snapshots."""
    return [
        Change(aspect, old, new)
        for aspect, old, new in zip(ASPECTS, before, after, strict=True)
        if aspect.differ(old, new)
    ]


def restore(found: Sequence[Change]) -> None:
    """Undo these changes as far as possible."""
    for change in found:
        with contextlib.suppress(OSError, ValueError, TypeError, RuntimeError):
            change.aspect.restore(change.before)


# Functions that read and restore one aspect each.


def _working_directory() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109 - a text, and quickly
    except OSError:
        return None


def _umask() -> bytes:
    # os.umask would set the umask.
    found = os.pread(_status_fd(os.getpid()), 4096, 0).partition(b"\nUmask:")[2]
    return found.partition(b"\n")[0]


@cache
def _status_fd(pid: int) -> int:
    return os.open(f"/proc/{pid}/status", os.O_RDONLY)


def _signal_handlers() -> dict[int, Any]:
    # signal.getsignal converts each result to an enum, which takes longer.
    return {number: handler_of(number) for number in _SIGNALS}


def _restore_signal_handlers(before: dict[int, Any]) -> None:
    for number, handler in before.items():
        if handler_of(number) is not handler and handler is not None:
            signal.signal(number, handler)


def _seconds_left() -> list[float]:
    return [signal.getitimer(one)[0] for one in _TIMERS]


def _timers_differ(before: list[float], after: list[float]) -> bool:
    # A timer that only runs does not differ.
    return any(
        bool(left) != bool(later) or later > left for left, later in zip(before, after, strict=True)
    )


def _restore_timers(before: list[float]) -> None:
    for timer, left in zip(_TIMERS, before, strict=True):
        signal.setitimer(timer, left)


def _environment() -> dict[bytes, bytes]:
    return dict(_VARIABLES)


def _restore_environment(before: dict[bytes, bytes]) -> None:
    for key in [key for key in os.environb if key not in before]:
        del os.environb[key]
    os.environb.update(before)
    time.tzset()


def _decimal_context() -> list[Any]:
    found = []
    for context in (decimal.getcontext(), decimal.DefaultContext):
        found += [getattr(context, name) for name in _CONTEXT]
        found.append([one for one, is_set in context.traps.items() if is_set])
    return found


def _restore_decimal_context(found: list[Any]) -> None:
    before = [*found]
    for context in (decimal.getcontext(), decimal.DefaultContext):
        for name in _CONTEXT:
            setattr(context, name, before.pop(0))
        traps = before.pop(0)
        for one in context.traps:
            context.traps[one] = one in traps


def _collector() -> tuple[Any, ...]:
    counted = gc.get_freeze_count()
    return gc.isenabled(), gc.get_threshold(), gc.get_debug(), counted, [*gc.callbacks]


def _restore_collector(before: tuple[Any, ...]) -> None:
    (gc.enable if before[0] else gc.disable)()
    gc.set_threshold(*before[1])
    gc.set_debug(before[2])
    gc.callbacks[:] = before[4]


def _limits() -> dict[str, Any]:
    return {name: resource.getrlimit(number) for name, number in _LIMITS.items()}


def _restore_limits(before: dict[str, Any]) -> None:
    for name, limit in before.items():
        if resource.getrlimit(_LIMITS[name]) != limit:
            resource.setrlimit(_LIMITS[name], limit)


def _attributes(name: str, *of: tuple[Any, str], is_logging: bool = False) -> Aspect:
    def restore(before: list[Any]) -> None:
        for (owner, attribute), value in zip(of, before, strict=True):
            setattr(owner, attribute, value)

    return Aspect(name, lambda: [getattr(*one) for one in of], restore, is_logging=is_logging)


def _list_of_sys(name: str) -> Aspect:
    def restore(before: list[str]) -> None:
        getattr(sys, name)[:] = before

    return Aspect(f"sys.{name}", lambda: [*getattr(sys, name)], restore)


def _tracing() -> list[Any]:
    return [sys.gettrace(), sys.getprofile(), threading.gettrace(), threading.getprofile()]


def _restore_tracing(before: list[Any]) -> None:
    sys.settrace(before[0])
    sys.setprofile(before[1])
    threading.settrace(before[2])
    threading.setprofile(before[3])


def _names_of_builtins() -> frozenset[str]:
    return frozenset(vars(builtins))


def _restore_builtins(before: frozenset[str]) -> None:
    for name in _names_of_builtins() - before:
        delattr(builtins, name)


class _Option(NamedTuple):
    group: str | None
    name: str

    def __str__(self) -> str:
        return f"[{self.group or 'DEFAULT'}] {self.name}"


class _ChangedOptions(dict[_Option, dict[str, Any]]):
    def __init__(self) -> None:
        groups = _options_by_group()
        super().__init__(
            {
                _Option(group, name): {key: info[key] for key in _SET if key in info}
                for group, options in groups.items()
                for name, info in options.items()
                if "override" in info or "default" in info
            }
        )
        self.names: Final = {group: [*options] for group, options in groups.items()}
        self.modules: Final = len(sys.modules)


#: The values of an option that code can set.
_SET: Final = ("override", "default")


def _options_differ(before: _ChangedOptions, after: _ChangedOptions) -> bool:
    # After an import, new options do not count: a library may register and set its own.
    return before != {
        option: values
        for option, values in after.items()
        if after.modules == before.modules or option.name in before.names.get(option.group, ())
    }


def _options_by_group() -> dict[str | None, dict[str, dict[str, Any]]]:
    # No public function returns which values code has set.
    conf = vars(cfg.CONF)
    groups = {name: vars(group)["_opts"] for name, group in conf["_groups"].items()}
    return {None: conf["_opts"], **groups}


def _restore_options(before: _ChangedOptions) -> None:
    now = _ChangedOptions()
    for group, options in _options_by_group().items():
        for option in [_Option(group, name) for name in options]:
            if now.get(option) != (kept := before.get(option)):
                for key in _SET:
                    getattr(cfg.CONF, f"clear_{key}")(option.name, group)
                for key, value in (kept or {}).items():
                    getattr(cfg.CONF, f"set_{key}")(option.name, value, group)


# Logs and warnings.


def _restore_names_of_levels(before: Mapping[int, str]) -> None:
    for level, name in before.items():
        logging.addLevelName(level, name)


def _shared_loggers() -> Iterator[tuple[str, logging.Logger]]:
    yield "root", logging.root
    loggers = logging.root.manager.loggerDict
    for name in filter(_is_shared, [*loggers]):
        if isinstance(one := loggers[name], logging.Logger):
            yield name, one


@cache
def _is_shared(name: str) -> bool:
    return name.partition(".")[0] in _SHARED


#: The settings of a new logger, as in ``_configured_loggers``.
_USUAL: Final[tuple[Any, ...]] = (logging.NOTSET, [], [], True, False)


def _configured_loggers() -> dict[str, Any]:
    return {
        name: (
            one.level,
            [(handler, handler.level) for handler in one.handlers],
            [*one.filters],
            one.propagate,
            one.disabled,
        )
        for name, one in _shared_loggers()
        if one.level or one.handlers or one.filters or not one.propagate or one.disabled
    }


def _restore_loggers(before: dict[str, Any]) -> None:
    for name, one in _shared_loggers():
        level, handlers, filters, one.propagate, one.disabled = before.get(name, _USUAL)
        one.setLevel(level)
        one.handlers[:] = [handler for handler, _ in handlers]
        for handler, own in handlers:
            handler.setLevel(own)
        one.filters[:] = filters


def _filters() -> list[Any]:
    return [*warnings.filters]


def _restore_filters(before: list[Any]) -> None:
    cast(list[Any], warnings.filters)[:] = before


def _filters_differ(before: list[Any], after: list[Any]) -> bool:
    if before == after:
        return False
    kept = [one for one in after if one in before]
    # An import of a library may add narrow filters.
    news = [one for one in after if one not in before]
    return kept != before or any(map(_is_for_all, news))


def _is_for_all(warning_filter: Any) -> bool:
    _action, message, category, module, _line = warning_filter
    return category.__module__ == "builtins" and message is None and module is None


def _standard_files() -> list[tuple[int, int] | None]:
    found: list[tuple[int, int] | None] = []
    for number in range(3):
        try:
            status = os.fstat(number)
        except OSError:
            found.append(None)
        else:
            found.append((status.st_dev, status.st_ino))
    return found


ASPECTS: Final[Sequence[Aspect]] = (
    Aspect("the files of descriptors 0 to 2", _standard_files, lambda before: None),
    Aspect("the working directory", _working_directory, os.chdir),
    Aspect("the umask", _umask, lambda before: os.umask(int(before, 8))),
    Aspect("signal handlers", _signal_handlers, _restore_signal_handlers),
    Aspect(
        "the mask of signals",
        lambda: signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        lambda before: signal.pthread_sigmask(signal.SIG_SETMASK, before),
    ),
    Aspect("the timers", _seconds_left, _restore_timers, _timers_differ),
    Aspect("the environment", _environment, _restore_environment, is_of_harness=True),
    Aspect(
        "the locale",
        lambda: locale.setlocale(locale.LC_ALL),
        lambda before: locale.setlocale(locale.LC_ALL, before),
    ),
    Aspect("the time zone", lambda: time.tzname, lambda _: time.tzset()),
    Aspect("the default time-out of sockets", socket.getdefaulttimeout, socket.setdefaulttimeout),
    Aspect("the recursion limit", sys.getrecursionlimit, sys.setrecursionlimit),
    Aspect("the interval of threads", sys.getswitchinterval, sys.setswitchinterval),
    Aspect("the stack size of threads", threading.stack_size, threading.stack_size),
    Aspect("the digits of integers", sys.get_int_max_str_digits, sys.set_int_max_str_digits),
    _attributes(
        "the hooks of exceptions",
        (sys, "excepthook"),
        (sys, "unraisablehook"),
        (sys, "displayhook"),
        (threading, "excepthook"),
    ),
    _attributes("the standard streams", (sys, "stdin"), (sys, "stdout"), (sys, "stderr")),
    Aspect("the tracing of code", _tracing, _restore_tracing),
    _list_of_sys("path"),
    _list_of_sys("argv"),
    Aspect(
        "the directory of temporary files",
        tempfile.gettempdir,
        lambda before: setattr(tempfile, "tempdir", before),
    ),
    Aspect(
        "the user, the groups and the session",
        lambda: (os.getresuid(), os.getresgid(), os.getgroups(), os.getpgrp(), os.getsid(0)),
        lambda before: None,
    ),
    Aspect("the decimal context", _decimal_context, _restore_decimal_context),
    Aspect("the garbage collector", _collector, _restore_collector),
    Aspect("the resource limits", _limits, _restore_limits),
    Aspect(
        "the niceness",
        lambda: os.getpriority(os.PRIO_PROCESS, 0),
        lambda before: os.setpriority(os.PRIO_PROCESS, 0, before),
    ),
    Aspect(
        "the processors",
        lambda: os.sched_getaffinity(0),
        lambda before: os.sched_setaffinity(0, before),
    ),
    Aspect(
        "the way to start processes",
        lambda: multiprocessing.get_start_method(allow_none=True) or "fork",
        lambda before: multiprocessing.set_start_method(before, force=True),
    ),
    Aspect("the names of builtins", _names_of_builtins, _restore_builtins),
    Aspect(
        "oslo.config's cfg.CONF",
        _ChangedOptions,
        _restore_options,
        _options_differ,
        is_of_harness=True,
    ),
    Aspect(
        "the name of the thread",
        lambda: threading.current_thread().name,
        lambda before: setattr(threading.current_thread(), "name", before),
    ),
    Aspect(
        "the names of log levels",
        lambda: {level: logging.getLevelName(level) for level in _LEVELS},
        _restore_names_of_levels,
        is_logging=True,
    ),
    Aspect("the loggers", _configured_loggers, _restore_loggers, is_logging=True),
    _attributes(
        "the switches of logging",
        (logging, "raiseExceptions"),
        (logging, "lastResort"),
        (logging, "_loggerClass"),
        (logging, "_logRecordFactory"),
        (logging.root.manager, "disable"),
        (logging.root.manager, "loggerClass"),
        (logging.root.manager, "logRecordFactory"),
        is_logging=True,
    ),
    Aspect("the filters of warnings", _filters, _restore_filters, _filters_differ, is_logging=True),
    _attributes("warnings.showwarning", (warnings, "showwarning"), is_logging=True),
)
