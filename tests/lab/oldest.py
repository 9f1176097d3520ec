"""A process whose objects are the oldest there were: what an old release is among newer ones."""

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

from wharfinger.objects import ComputeNodeList, WharfingerObject
from wharfinger.objects.base import REGISTERED
from wharfinger.tracker import instance_moves

#: Starts processes that have nothing of this one but their code.
PROCESSES = multiprocessing.get_context("forkserver")
#: What takes long to import, and what most of them do.
PRELOADED = (
    *("__main__", "wharfinger.objects", "wharfinger.objects.remote"),
    *("alembic.autogenerate", "oslo_db.sqlalchemy.engines", "psycopg", "pymysql"),
)
PROCESSES.set_forkserver_preload(list(PRELOADED))


def become_oldest() -> None:
    """Have all objects in their first versions, for good; call it before there is an object."""
    for kind in REGISTERED.values():
        _take_back(kind)
    ComputeNodeList.move_to = _move_to  # type: ignore[assignment, method-assign]


@contextmanager
def oldest() -> Iterator[ProcessPoolExecutor]:
    """Another process with the oldest objects, which does one thing after the other."""
    with ProcessPoolExecutor(1, PROCESSES, become_oldest) as process:
        yield process


@contextmanager
def newest() -> Iterator[ProcessPoolExecutor]:
    """Another process with the objects of today."""
    with ProcessPoolExecutor(1, PROCESSES) as process:
        yield process


def _take_back(kind: type[WharfingerObject]) -> None:
    first, *later = kind.HISTORY
    kind.HISTORY = (first,)
    kind.VERSION = first.version
    gone = {name for step in later for name in step.fields}
    kind.fields = {name: field for name, field in kind.fields.items() if name not in gone}
    for name in gone:
        delattr(kind, name)


def _move_to(nodes: ComputeNodeList, host: str, driver_instance: str) -> None:
    """Move nodes as a release before version 1.3 of the list does: in several transactions."""
    before: dict[str, list[str]] = {}
    for node in nodes:
        before.setdefault(node.host, []).append(node.hypervisor_hostname)
        node.host, node.driver_instance = host, driver_instance
    nodes.save()
    for former, names in before.items():
        instance_moves.follow_host(nodes._context, former, host, names)
