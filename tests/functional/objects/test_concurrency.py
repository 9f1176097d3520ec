"""Saves of many threads and processes at once: nothing that was saved is lost."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier, local

from tests.lab.objects import Kept, KeptElsewhere, Served, remotely
from tests.lab.samples import node, reservation, service
from wharfinger.exceptions import ConcurrentSave, ObjectExists
from wharfinger.objects import (
    ComputeNode,
    Context,
    Reservation,
    ReservationList,
    Service,
)

THREADS = 6
TIMES = 3


@contextmanager
def together(work: Callable[[int], None]) -> Iterator[None]:
    """Run the function in threads that start at the same moment; raise their first error."""
    start = Barrier(THREADS, timeout=60)

    def run(number: int) -> None:
        start.wait()
        work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        done = list(pool.map(run, range(THREADS)))
    assert len(done) == THREADS
    yield


def add_one(context: Context, key: str) -> None:
    while True:
        found = ComputeNode.get_by_uuid(context, key)
        found.vcpus_used += 1
        try:
            return found.save()
        except ConcurrentSave:
            continue


def test_saves_of_several_threads_are_all_kept(context: Context) -> None:
    one = node(context)
    one.create()

    def work(_: int) -> None:
        for _ in range(TIMES):
            add_one(context, one.uuid)

    with together(work):
        found = ComputeNode.get_by_uuid(context, one.uuid)
    assert found.vcpus_used == THREADS * TIMES
    assert found.revision == THREADS * TIMES + 1


def test_create_of_one_object_by_several_threads_succeeds_once(kept: Kept) -> None:
    refused = []

    def work(number: int) -> None:
        try:
            reservation(kept.context, number, holder="only one").create()
        except ObjectExists:
            refused.append(number)

    with together(work):
        [found] = ReservationList.get_by_filters(kept.context)
    assert len(refused) == THREADS - 1
    assert isinstance(found, Reservation)


def test_reports_and_saves_at_once_are_all_kept(context: Context) -> None:
    service(context).create()

    def work(number: int) -> None:
        for time in range(TIMES):
            one = Service.get_by_host_and_binary(context, "host-0", "wharfinger-agent")
            if number:
                one.report()
                continue
            one.disabled = not one.disabled
            one.version = time + 2
            one.save()  # a report does not raise the revision, so it causes no conflict

    with together(work):
        [found] = [Service.get_by_host_and_binary(context, "host-0", "wharfinger-agent")]
    assert found.report_count == (THREADS - 1) * TIMES
    assert (found.disabled, found.version) == (TIMES % 2 == 1, TIMES + 1)
    assert found.revision == TIMES + 1


def test_saves_of_two_processes_on_one_file_are_all_kept(tmp_path: Path) -> None:
    with KeptElsewhere(tmp_path) as kept, Served(tmp_path) as second:
        mine = local()

        def send(question: bytes) -> bytes:
            server = second if mine.number % 2 else kept.server
            return server.send(question)

        def work(number: int) -> None:
            mine.number = number
            for _ in range(TIMES):
                add_one(kept.context, key)

        mine.number = 0
        with kept.in_use(), remotely(send):
            one = node(kept.context)
            one.create()
            key = one.uuid
            with together(work):
                found = ComputeNode.get_by_uuid(kept.context, key)
        assert found.vcpus_used == THREADS * TIMES
        assert kept.server.questions
        assert second.questions
