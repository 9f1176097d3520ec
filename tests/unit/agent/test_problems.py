"""What is wrong is told when it begins and when it is over."""

import logging

import pytest

from wharfinger.agent.problem_log import Problems
from wharfinger.exceptions import WharfingerError

Told = list[tuple[str, str]]


def error(reason: str) -> WharfingerError:
    return WharfingerError(reason=reason)


@pytest.fixture
def problems(caplog: pytest.LogCaptureFixture) -> Problems:
    caplog.set_level(logging.INFO)
    return Problems("metal")


def told(caplog: pytest.LogCaptureFixture) -> Told:
    """What has been told since this was asked last."""
    records = [(one.levelname, one.getMessage()) for one in caplog.records]
    caplog.clear()
    return records


def test_a_problem_is_told_once_and_so_is_its_end(
    problems: Problems, caplog: pytest.LogCaptureFixture
) -> None:
    problems.found("poll", [error("no answer"), error("no node")])
    assert told(caplog) == [("WARNING", "metal: no answer"), ("WARNING", "metal: no node")]

    problems.found("poll", [error("no node"), error("no answer")])
    assert told(caplog) == []

    problems.found("poll", [error("no node")])
    assert told(caplog) == [("INFO", "metal: over: no answer")]

    problems.found("poll")
    assert told(caplog) == [("INFO", "metal: over: no node")]


def test_one_that_comes_back_is_told_again(
    problems: Problems, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        problems.found("poll", [error("no answer")])
        problems.found("poll")

    assert told(caplog) == 2 * [
        ("WARNING", "metal: no answer"),
        ("INFO", "metal: over: no answer"),
    ]


def test_what_several_find_is_one_problem_until_nobody_finds_it(
    problems: Problems, caplog: pytest.LogCaptureFixture
) -> None:
    problems.found("full", [error("no answer"), error("no answer")])
    problems.found("poll", [error("no answer")])
    problems.found("full")
    assert told(caplog) == [("WARNING", "metal: no answer")]

    problems.found("poll")
    assert told(caplog) == [("INFO", "metal: over: no answer")]


def test_who_has_not_looked_at_everything_ends_nothing(
    problems: Problems, caplog: pytest.LogCaptureFixture
) -> None:
    problems.found("cycles", [error("no node")])
    for _ in range(2):
        problems.also_found("cycles", [error("no answer")])
        problems.also_found("cycles", [])
    assert told(caplog) == [("WARNING", "metal: no node"), ("WARNING", "metal: no answer")]

    problems.found("cycles", [error("no answer")])
    problems.found("cycles")
    assert told(caplog) == [
        ("INFO", "metal: over: no node"),
        ("INFO", "metal: over: no answer"),
    ]


def test_an_address_or_the_id_of_a_request_makes_no_other_problem(
    problems: Problems, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3):
        text = f"<Connection at 0x7f{number}e>: 500 (Request-ID: req-{number}a-4e)"
        problems.found("poll", [error(text)])

    assert told(caplog) == [
        ("WARNING", "metal: <Connection at 0x7f0e>: 500 (Request-ID: req-0a-4e)")
    ]


def test_what_nobody_has_thought_of_is_told_with_its_traceback(
    problems: Problems, caplog: pytest.LogCaptureFixture
) -> None:
    try:
        raise KeyError("a\nb")
    except KeyError as fault:
        problems.found("poll", [fault])

    [record] = caplog.records
    assert record.getMessage() == "metal: KeyError: 'a\\nb'. This is a fault"
    assert "raise KeyError" in caplog.text
    problems.found("poll", [error("no answer")])
    assert caplog.records[1].exc_info is None
