"""Set the clocks of this process ahead, so that drivers need not wait.

Processor times do not change.
"""

import ctypes
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

_POINTER: Final = ctypes.c_void_p
#: A C function that takes no arguments or a tuple, and one that takes an array and keywords.
_PLAIN: Final = ctypes.PYFUNCTYPE(ctypes.py_object, _POINTER, _POINTER)
_FAST: Final = ctypes.PYFUNCTYPE(ctypes.py_object, _POINTER, _POINTER, ctypes.c_ssize_t, _POINTER)
#: _PLAIN for a function whose arguments ``later`` needs.
_ASKED: Final = ctypes.PYFUNCTYPE(ctypes.py_object, _POINTER, ctypes.py_object)
_NANOSECONDS: Final = 10**9
#: The clocks that count the time of a processor.
_OF_A_PROCESSOR: Final = (time.CLOCK_PROCESS_CPUTIME_ID, time.CLOCK_THREAD_CPUTIME_ID)


class _Definition(ctypes.Structure):
    """The beginning of a PyMethodDef."""

    _fields_ = (("name", ctypes.c_char_p), ("function", _POINTER))


class _Builtin(ctypes.Structure):
    """The beginning of a PyCFunctionObject."""

    _fields_ = (
        ("head", ctypes.c_byte * object.__basicsize__),
        ("definition", ctypes.POINTER(_Definition)),
    )


# Replaces a C function, since a driver may have imported the clock before.
class _Clock:
    def __init__(self, clock: Any, signature: Any, later: Callable[..., Any]) -> None:
        self._definition: Final = _Builtin.from_address(id(clock)).definition.contents
        self._real: Final = self._definition.function
        original = signature(self._real)

        def shifted(*arguments: Any) -> Any:
            asked = arguments[1:] if signature is _ASKED else ()
            return later(original(*arguments), _SHIFT.seconds, *asked)

        self._shifted: Final = signature(shifted)  # kept for ever, since a thread may be inside it

    def set_ahead(self, ahead: bool) -> None:
        shifted = ctypes.cast(self._shifted, _POINTER).value
        self._definition.function = shifted if ahead else self._real


class _Shift:
    def __init__(self) -> None:
        self.seconds = 0
        self.clocks: tuple[_Clock, ...] = ()


_SHIFT: Final = _Shift()


def advance(seconds: int) -> None:
    """Advance the clocks of this process; a negative number sets them back."""
    if not _SHIFT.clocks:
        _SHIFT.clocks = _clocks()
    _SHIFT.seconds += seconds
    for clock in _SHIFT.clocks:
        clock.set_ahead(_SHIFT.seconds != 0)


def real_seconds() -> float:
    """Return the monotonic time in seconds without the shift."""
    return time.clock_gettime(time.CLOCK_MONOTONIC) - _SHIFT.seconds


def _clocks() -> tuple[_Clock, ...]:
    return (
        *(_Clock(clock, _PLAIN, _later) for clock in (time.time, time.monotonic)),
        _Clock(time.perf_counter, _PLAIN, _later),
        *(
            _Clock(clock, _PLAIN, lambda now, ahead: now + ahead * _NANOSECONDS)
            for clock in (time.time_ns, time.monotonic_ns, time.perf_counter_ns)
        ),
        _Clock(time.clock_gettime, _ASKED, partial(_clock_later, unit=1)),
        _Clock(time.clock_gettime_ns, _ASKED, partial(_clock_later, unit=_NANOSECONDS)),
        *(_Clock(one, _ASKED, partial(_date_later, one)) for one in (time.localtime, time.gmtime)),
        _Clock(datetime.now, _FAST, _moment_later),
        _Clock(datetime.utcnow, _PLAIN, _moment_later),
    )


def _later(now: float, ahead: int) -> float:
    return now + ahead


def _clock_later(now: float, ahead: int, clock: object, *, unit: int) -> float:
    # Before Python 3.12, the function takes a tuple.
    (number,) = clock if isinstance(clock, tuple) else (clock,)
    return now if number in _OF_A_PROCESSOR else now + ahead * unit


def _date_later(
    convert: Callable[[float], time.struct_time],
    now: time.struct_time,
    ahead: int,
    asked: tuple[float | None, ...],
) -> time.struct_time:
    # time.time is ahead, too.
    return now if asked and asked[0] is not None else convert(time.time())


def _moment_later(now: datetime, ahead: int) -> datetime:
    later = timedelta(seconds=ahead)
    if now.tzinfo is None:
        return now + later
    return (now.astimezone(UTC) + later).astimezone(now.tzinfo)
