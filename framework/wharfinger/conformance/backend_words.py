"""Search the harness and this machine's ids for a uuid."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from wharfinger.conformance import backend_proxy
from wharfinger.conformance.subject import Subject

#: Files with the identity of a machine.
_OF_MACHINE: Final = ("/etc/machine-id", "/sys/class/dmi/id/product_uuid")
#: The most bytes read of a file, and the most objects searched in a harness.
_LONGEST: Final = 1_000_000
_MOST: Final = 100_000


def contains(subject: Subject, uuid: str) -> bool:
    """Return whether the harness's data or this machine's identity contains a uuid."""
    sought = _plain(uuid)
    return any(sought in _plain(text) for text in _texts(subject))


def _plain(text: str) -> str:
    return text.replace("-", "").lower()


def _texts(subject: Subject) -> Iterator[str]:
    harness = subject.declared
    yield from map(_read, map(Path, _OF_MACHINE))
    if harness is None:
        return
    yield harness.configuration(subject.instance_name)
    yield from (_read(path) for path in sorted(harness.directory.rglob("*")) if path.is_file())
    yield from _texts_of_attributes(getattr(harness, "own", harness))


def _read(path: Path) -> str:
    with suppress(OSError), path.open("rb") as file:
        return file.read(_LONGEST).decode(errors="replace")
    return ""


def _texts_of_attributes(harness: object) -> Iterator[str]:
    package = type(harness).__module__.partition(".")[0]
    seen: set[int] = set()
    # The attribute placement has the uuids that the driver has published.
    left: list[Any] = [one for name, one in vars(harness).items() if name != "placement"]
    while left and len(seen) < _MOST:
        one = left.pop()
        if isinstance(one, str):
            yield one
        elif id(one) not in seen:
            seen.add(id(one))
            if isinstance(one, bytes):
                left.append(one.decode(errors="replace"))
            elif isinstance(one, dict):
                left += [*one.keys(), *one.values()]
            elif isinstance(one, list | tuple | set | frozenset):
                left += one
            elif _is_looked_into(type(one).__module__, package):
                left += getattr(one, "__dict__", {}).values()


def _is_looked_into(module: str, package: str) -> bool:
    return module.partition(".")[0] == package or module.startswith(backend_proxy.__name__)
