"""Request ids in threads of a cycle and in other threads."""

import re
import threading

from wharfinger import request_id

#: The format in which OpenStack services accept a request id, as in oslo.middleware.
TAKEN = re.compile(r"req-[a-f0-9]{8}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{12}$")


def test_same_request_within_another_keeps_the_outer_id() -> None:
    assert request_id.current() is None
    with request_id.same_request():
        outer = request_id.current()
        with request_id.same_request():
            assert request_id.current() == outer
        assert request_id.current() == outer
    assert request_id.current() is None

    with request_id.same_request():
        assert request_id.current() != outer
        assert TAKEN.match(request_id.current() or "")


def test_thread_pool_has_the_id_of_its_creator_and_other_threads_have_none() -> None:
    both = threading.Barrier(2)

    def look() -> str | None:
        both.wait(60)
        return request_id.current()

    seen: list[str | None] = []
    with request_id.same_request():
        with request_id.thread_pool(2) as pool:
            found = {future.result() for future in (pool.submit(look), pool.submit(look))}
        other = threading.Thread(target=lambda: seen.append(request_id.current()))
        other.start()
        other.join()
        assert found == {request_id.current()}
    assert seen == [None]
