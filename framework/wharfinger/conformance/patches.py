"""Find and undo changes of shared modules and their classes."""

import contextlib
import sys
from collections.abc import Iterator, Mapping, Set
from copy import copy
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Final

#: The framework, and the libraries that it shares with drivers: all of their modules. SQLAlchemy is
#: left out, since it adds methods to its classes at run time.
_PACKAGES: Final = frozenset(
    {
        *("wharfinger", "cachetools", "keystoneauth1", "msgspec", "os_resource_classes"),
        *("os_traits", "oslo_concurrency", "oslo_config", "oslo_db", "oslo_log", "oslo_utils"),
        *("prometheus_client", "requests", "stevedore", "tenacity", "urllib3"),
    }
)
_STANDARD: Final = frozenset(
    {
        *("base64", "configparser", "dataclasses", "enum", "glob", "importlib.metadata"),
        *("ipaddress", "itertools", "operator", "platform", "struct", "types"),
        *("asyncio", "builtins", "codecs", "collections", "concurrent.futures", "contextlib"),
        *("copy", "datetime", "decimal", "email.message", "encodings.idna", "functools"),
        *("concurrent.futures.thread", "hashlib", "http.client", "http.cookiejar", "inspect"),
        *("importlib", "io", "json", "json.decoder", "json.encoder", "logging", "math", "os"),
        *("os.path", "pathlib", "pickle", "queue", "random", "re", "selectors", "shutil"),
        *("signal", "socket", "socketserver", "sqlite3", "ssl", "string", "subprocess"),
        *("tempfile", "threading", "time", "traceback", "typing", "urllib.parse"),
        *("urllib.request", "uuid", "weakref", "xml.etree.ElementTree"),
    }
)
#: Attributes of a class that Python or a library writes at run time.
_KEPT: Final = frozenset({"__abstractmethods__", "__annotations__", "__doc__", "__weakref__"})
_METHODS: Final = (FunctionType, classmethod, staticmethod, property)
_CALLABLES: Final = (*_METHODS, BuiltinFunctionType, MethodType, type)
#: The flag of a class that Python code has made.
_HEAP: Final = 1 << 9
_CONSTANTS: Final = (str, bytes, int, float, tuple, frozenset)


@dataclass(frozen=True, slots=True)
class _Owner:
    name: str
    owner: Any
    names: Set[str]
    #: The attributes that may not change: value, and code and defaults of a function.
    had: Mapping[str, tuple[Any, Any]]

    @classmethod
    def seen(cls, name: str, owner: Any) -> "_Owner":
        is_class = isinstance(owner, type)
        had = {
            attribute: (value, _code_and_defaults(value))
            for attribute, value in vars(owner).items()
            if attribute not in _KEPT
            and (
                isinstance(value, _CALLABLES)
                or (is_class and value is not None)
                or (attribute.isupper() and isinstance(value, _CONSTANTS))
            )
        }
        return cls(name, owner, {*vars(owner)}, had)

    def repair(self) -> Iterator[str]:
        now = vars(self.owner)
        for attribute, (value, parts) in self.had.items():
            if now.get(attribute) is not value:
                yield f"{self.name}.{attribute}"
                with contextlib.suppress(AttributeError, TypeError):
                    setattr(self.owner, attribute, value)
            elif parts is not None and parts != (
                value.__code__,
                value.__defaults__,
                value.__kwdefaults__,
            ):
                yield f"{self.name}.{attribute}"
                value.__code__, value.__defaults__, value.__kwdefaults__ = parts
        if isinstance(self.owner, type):
            yield from self._remove_new({*now} - self.names - _KEPT)

    def _remove_new(self, names: Set[str]) -> Iterator[str]:
        for attribute in names:
            if isinstance(vars(self.owner)[attribute], (*_METHODS, *_CONSTANTS)):
                yield f"{self.name}.{attribute}"
                delattr(self.owner, attribute)


class Patches:
    """Remembers shared modules and their classes, and undoes later changes."""

    def __init__(self) -> None:
        self._owners: dict[int, _Owner] = {}
        self._named: dict[str, ModuleType] = {}
        self._modules = 0
        self._remember_new()

    def restore(self) -> list[str]:
        """Undo the changes; return the names of the changed attributes and modules."""
        found = [name for one in self._owners.values() for name in one.repair()]
        for name, module in self._named.items():
            if sys.modules.get(name) is not module:
                sys.modules[name] = module
                found.append(name)
        self._remember_new()
        return found

    def _remember_new(self) -> None:
        if self._modules != len(sys.modules):
            self._modules = len(sys.modules)
            for name, owner in _owners():
                if id(owner) not in self._owners:
                    self._owners[id(owner)] = _Owner.seen(name, owner)
                if isinstance(owner, ModuleType):
                    self._named.setdefault(name, owner)


def _owners() -> Iterator[tuple[str, Any]]:
    for name, module in [*sys.modules.items()]:
        is_shared = name in _STANDARD or name.partition(".")[0] in _PACKAGES
        if is_shared and isinstance(module, ModuleType):
            yield name, module
            for kind in [*vars(module).values()]:
                # A class in C cannot be changed.
                if isinstance(kind, type) and kind.__module__ == name and kind.__flags__ & _HEAP:
                    yield f"{name}.{kind.__qualname__}", kind


def _code_and_defaults(value: Any) -> Any:
    if not isinstance(value, FunctionType):
        return None
    return value.__code__, value.__defaults__, copy(value.__kwdefaults__)
