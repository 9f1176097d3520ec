"""Processes with the oldest and with the newest version of objects on one database."""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

from tests.functional.db import elsewhere
from tests.functional.db.databases import Place
from tests.lab import samples
from tests.lab.objects import KeptElsewhere
from tests.lab.oldest import newest, oldest
from wharfinger.objects import ComputeNode

UUID = samples.node(None).uuid
TIMES = 10


@pytest.fixture(scope="module")
def old() -> Iterator[ProcessPoolExecutor]:
    with oldest() as process:
        yield process


@pytest.fixture(scope="module")
def new() -> Iterator[ProcessPoolExecutor]:
    with newest() as process:
        yield process


def counted(node: ComputeNode) -> int:
    assert node.pci_stats is not None
    return node.pci_stats[0].count


def test_oldest_process_has_the_first_version_of_each_object(old: ProcessPoolExecutor) -> None:
    then, now = old.submit(elsewhere.versions).result(), elsewhere.versions()

    assert {version for version, _ in then.values()} == {"1.0"}
    assert then.keys() == now.keys()
    later = {name: set(now[name][1]) - set(then[name][1]) for name in now}
    assert {name: fields for name, fields in later.items() if fields} == {
        "ComputeNode": {"pci_stats"},
        "ProviderRecord": {"reserved_since", "absence", "undone", "revision"},
        "Instance": {"task_state", "updated_at", "claimed_allocations"},
        "Reservation": {"own_reserved", "consumer_uuid", "phase"},
    }
    assert now["ComputeNode"][0] == "1.1"
    assert all(set(then[name][1]) <= set(now[name][1]) for name in now)


def test_each_version_reads_objects_that_the_other_creates(
    place: Place, old: ProcessPoolExecutor, new: ProcessPoolExecutor
) -> None:
    place.upgrade()
    arguments = (place.url, place.directory)

    created = [
        process.submit(elsewhere.create, *arguments, number)
        for number, process in ((1, old), (2, new))
    ]
    for one in created:
        one.result()

    for_old = old.submit(elsewhere.known, *arguments).result()
    for_new = new.submit(elsewhere.known, *arguments).result()
    assert for_old.keys() == for_new.keys() == {"node-1", "node-2"}
    assert for_new["node-1"].pop("pci_stats") is None
    assert for_new["node-2"].pop("pci_stats") is not None
    assert for_old == for_new


def test_each_version_keeps_fields_that_the_other_saves(
    place: Place, old: ProcessPoolExecutor, new: ProcessPoolExecutor
) -> None:
    place.upgrade()
    context = place.open()
    samples.node(context, pci_stats=samples.gpus(0)).create()

    counting = [
        process.submit(elsewhere.count_up, place.url, place.directory, UUID, field, TIMES)
        for process, field in ((old, "vcpus_used"), (new, "pci_stats"))
    ]
    for one in counting:
        one.result()

    node = ComputeNode.get_by_uuid(context, UUID)
    assert (node.vcpus_used, counted(node)) == (TIMES, TIMES)
    assert node.revision == 1 + 2 * TIMES


def assert_oldest(primitive: dict[str, Any]) -> None:
    assert primitive["wharfinger_object.version"] == "1.0"
    assert "pci_stats" not in primitive["wharfinger_object.data"]


def test_old_client_of_a_new_server_gets_old_objects_and_loses_no_field(
    file: Place, old: ProcessPoolExecutor
) -> None:
    with KeptElsewhere(file.directory) as kept, kept.in_use():
        samples.node(kept.context, pci_stats=samples.gpus(9)).create()

        seen = old.submit(elsewhere.use_from_afar, kept.server.port, UUID).result()

        assert_oldest(seen["read"])
        assert seen["listed"]["wharfinger_object.version"] == "1.0"
        for one in seen["listed"]["wharfinger_object.data"]["objects"]:
            assert_oldest(one)
        assert seen["names"] == ["node-0", "node-1", "node-2"]
        node = ComputeNode.get_by_uuid(kept.context, UUID)
        assert (node.vcpus_used, node.memory_mb_used, counted(node)) == (5, 5, 9)


def test_old_and_new_client_of_a_new_server_work_at_once(
    file: Place, old: ProcessPoolExecutor
) -> None:
    with KeptElsewhere(file.directory) as kept, kept.in_use():
        samples.node(kept.context, pci_stats=samples.gpus(0)).create()

        counting = old.submit(elsewhere.count_up_from_afar, kept.server.port, UUID, TIMES)
        elsewhere.count_up_in(kept.context, UUID, "pci_stats", TIMES)
        counting.result()

        node = ComputeNode.get_by_uuid(kept.context, UUID)
        assert (node.vcpus_used, counted(node)) == (TIMES, TIMES)
