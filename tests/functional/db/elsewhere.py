"""Functions that tests run on a database in other processes."""

import json
import os
import signal
from contextlib import suppress
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from tests.functional.db.databases import connect, upgrade
from tests.lab import samples
from tests.lab.objects import Served, remotely
from wharfinger.exceptions import ConcurrentSave
from wharfinger.objects import (
    ComputeNode,
    ComputeNodeList,
    Context,
    ServiceList,
)
from wharfinger.objects.base import REGISTERED


def is_change(statement: str) -> bool:
    """Return whether a statement does more than read."""
    return statement.lstrip().startswith(
        ("CREATE", "ALTER", "DROP", "INSERT", "UPDATE", "DELETE", "REPLACE")
    )


def upgrade_together(barrier: Barrier, url: str, directory: Path) -> None:
    """Upgrade at the same moment as the other processes."""
    barrier.wait()
    upgrade(url, directory)


def upgrade_until_killed(url: str, directory: Path, steps: int) -> None:
    """Upgrade, and kill the process after ``steps`` changes and commits."""
    taken = 0

    def step() -> None:
        nonlocal taken
        taken += 1
        if taken > steps:
            os.kill(os.getpid(), signal.SIGKILL)

    def execute(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if is_change(statement):
            step()

    def commit(_connection: object) -> None:
        if taken:
            step()

    sa.event.listen(sa.Engine, "before_cursor_execute", execute)
    sa.event.listen(sa.Engine, "commit", commit)
    upgrade(url, directory)


def versions() -> dict[str, tuple[str, list[str]]]:
    """Return the version and the fields of each kind of object."""
    return {name: (kind.VERSION, sorted(kind.fields)) for name, kind in REGISTERED.items()}


def create(url: str, directory: Path, number: int) -> None:
    """Create a node with all fields that this process knows."""
    context = connect(url, directory)
    try:
        values = {"pci_stats": samples.gpus()} if "pci_stats" in ComputeNode.fields else {}
        samples.node(context, number, vcpus=number, **values).create()
    finally:
        context.close()


def known(url: str, directory: Path) -> dict[str, dict[str, Any]]:
    """Return the fields of each node that this process knows, by node name."""
    context = connect(url, directory)
    try:
        return {
            node.hypervisor_hostname: node.obj_to_primitive()["wharfinger_object.data"]
            for node in ComputeNodeList.get_by_filters(context)
        }
    finally:
        context.close()


def count_up(url: str, directory: Path, uuid: str, field: str, times: int) -> int:
    """Increment a field ``times`` times, also after conflicts; return the number of conflicts."""
    context = connect(url, directory)
    try:
        return count_up_in(context, uuid, field, times)
    finally:
        context.close()


def count_up_in(context: Context, uuid: str, field: str, times: int) -> int:
    """Do what ``count_up`` does, in this context."""
    noticed = 0
    for _ in range(times):
        while True:
            node = ComputeNode.get_by_uuid(context, uuid)
            if field == "pci_stats":
                assert node.pci_stats is not None
                node.pci_stats = samples.gpus(node.pci_stats[0].count + 1)
            else:
                setattr(node, field, getattr(node, field) + 1)
            try:
                node.save()
                break
            except ConcurrentSave:
                noticed += 1
    return noticed


def use_from_afar(port: int, uuid: str) -> dict[str, Any]:
    """Read and change objects that another process serves; return what was read first."""
    served = Served(Path())
    served.port, served.questions = port, []
    answers: list[Any] = []

    def send(question: bytes) -> bytes:
        answer = served.send(question)
        answers.append(json.loads(answer))
        return answer

    context = Context()
    with remotely(send):
        node = ComputeNode.get_by_uuid(context, uuid)
        read = answers.pop()["result"]
        node.vcpus_used = 3
        node.save()
        samples.node(context, 1).create()
        nodes = ComputeNodeList.get_by_filters(context)
        listed = answers.pop()["result"]
        for one in nodes:
            one.memory_mb_used = 5
        nodes.save()
        made = ComputeNodeList(context, objects=[samples.node(context, 2)])
        made.create()
        made[0].vcpus_used = 1
        made.save()
        count_up_in(context, uuid, "vcpus_used", 2)
        return {
            "read": read,
            "listed": listed,
            "names": [one.hypervisor_hostname for one in ComputeNodeList.get_by_filters(context)],
        }


def count_up_from_afar(port: int, uuid: str, times: int) -> None:
    """Increment a field as ``count_up`` does, with objects that another process serves."""
    served = Served(Path())
    served.port, served.questions = port, []
    with remotely(served.send):
        count_up_in(Context(), uuid, "vcpus_used", times)


def save_or_not(services: ServiceList, reason: str) -> None:
    """Set the reason on all services, and save unless another process has saved one meanwhile."""
    for one in services:
        one.disabled_reason = reason
    with suppress(ConcurrentSave):
        services.save()
