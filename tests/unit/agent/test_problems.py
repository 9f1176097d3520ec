"""A problem is logged when it begins and when it ends, and not between."""

import logging
import re

import pytest

from wharfinger.agent.problem_log import Problems
from wharfinger.exceptions import (
    BackendError,
    DatabaseUnavailable,
    PlacementError,
    PlacementUnavailable,
    UnexpectedAnswer,
    WharfingerError,
)

Told = list[tuple[str, str]]
_CODE = re.compile(r" \[\w+\]$")


def error(reason: str) -> WharfingerError:
    return WharfingerError(reason=reason)


@pytest.fixture
def problems(caplog: pytest.LogCaptureFixture) -> Problems:
    caplog.set_level(logging.INFO)
    return Problems("metal")


def told(caplog: pytest.LogCaptureFixture) -> Told:
    """Return the log lines since the last call, without the codes of errors."""
    records = [(one.levelname, _CODE.sub("", one.getMessage())) for one in caplog.records]
    caplog.clear()
    return records


def test_problem_is_logged_once_and_so_is_its_end(
    problems: Problems, caplog: pytest.LogCaptureFixture
) -> None:
    problems.found("poll", [error("no answer"), error("no node")])
    assert told(caplog) == [("WARNING", "metal: no answer"), ("WARNING", "metal: no node")]

    problems.found("poll", [error("no node"), error("no answer")])
    assert told(caplog) == []

    problems.found("poll", [error("no node")])
    assert told(caplog) == [("WARNING", "metal: solved: no answer")]

    problems.found("poll")
    assert told(caplog) == [("WARNING", "metal: solved: no node")]


def test_lines_of_a_problem_end_with_its_code(
    problems: Problems, caplog: pytest.LogCaptureFixture
) -> None:
    problems.found("poll", [backend("refused")])
    problems.found("poll")

    text = "driver metal: changed_nodes failed: refused [BackendError]"
    assert [one.getMessage() for one in caplog.records] == [
        f"metal: {text}",
        f"metal: solved: {text}",
    ]


def test_problem_that_returns_is_logged_again(
    problems: Problems, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        problems.found("poll", [error("no answer")])
        problems.found("poll")

    assert told(caplog) == 2 * [
        ("WARNING", "metal: no answer"),
        ("WARNING", "metal: solved: no answer"),
    ]


def test_problem_of_several_cycle_types_ends_when_none_of_them_finds_it(
    problems: Problems, caplog: pytest.LogCaptureFixture
) -> None:
    problems.found("full", [error("no answer"), error("no answer")])
    problems.found("poll", [error("no answer")])
    problems.found("full")
    assert told(caplog) == [("WARNING", "metal: no answer")]

    problems.found("poll")
    assert told(caplog) == [("WARNING", "metal: solved: no answer")]


def test_also_found_without_a_problem_ends_no_problem(
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
        ("WARNING", "metal: solved: no node"),
        ("WARNING", "metal: solved: no answer"),
    ]


def test_error_with_another_address_or_request_id_is_the_same_problem(
    problems: Problems, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3):
        text = f"<Connection at 0x7f{number}e>: 500 (Request-ID: req-{number}a-4e)"
        problems.found("poll", [error(text)])

    assert told(caplog) == [
        ("WARNING", "metal: <Connection at 0x7f0e>: 500 (Request-ID: req-0a-4e)")
    ]


def test_unexpected_exception_is_logged_with_its_traceback(
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


def placement(
    kind: type[PlacementError], detail: str, status: int = 0, request_id: str = ""
) -> PlacementError:
    return kind(request="GET /traits", detail=detail, status=status, request_id=request_id)


def backend(reason: str, operation: str = "changed_nodes") -> BackendError:
    return BackendError(driver="metal", operation=operation, reason=reason)


def database(problem: str) -> DatabaseUnavailable:
    return DatabaseUnavailable(path="db", problem=problem, remedy="Look.")


@pytest.mark.parametrize(
    "outage",
    [
        (
            placement(PlacementUnavailable, "refused"),
            placement(PlacementUnavailable, "timed out", request_id="req-1a"),
            placement(UnexpectedAnswer, "no JSON", status=200),
            placement(PlacementError, "An error has occurred.", status=500),
        ),
        (backend("refused"), backend("timed out"), backend("no JSON", "get_available_nodes")),
        (database("refused."), database("the server closed the connection.")),
    ],
    ids=lambda errors: type(errors[0]).__name__,
)
def test_outage_is_one_problem_for_all_requests_and_errors(
    problems: Problems,
    caplog: pytest.LogCaptureFixture,
    outage: tuple[WharfingerError, ...],
) -> None:
    for number, one in enumerate((*outage, *outage)):
        problems.found(("full", "poll")[number % 2], [one], ends_check=True)
    problems.found("full")
    assert told(caplog) == [("WARNING", f"metal: {outage[0]}")]

    problems.found("poll")
    assert told(caplog) == [("WARNING", f"metal: solved: {outage[0]}")]


def test_errors_of_parts_are_separate_problems_except_outages(
    problems: Problems, caplog: pytest.LogCaptureFixture
) -> None:
    parts = [
        backend("no power", "node-1"),
        backend("no power", "node-2"),
        placement(PlacementError, "one", status=500),
        placement(PlacementError, "two", status=500),
        placement(PlacementError, "two", status=500, request_id="req-1a"),
        placement(PlacementUnavailable, "one"),
        placement(PlacementUnavailable, "two"),
        placement(UnexpectedAnswer, "three", status=200),
    ]
    problems.found("cycles", parts)
    texts = [str(parts[number]) for number in (0, 1, 2, 3, 5)]
    assert told(caplog) == [("WARNING", f"metal: {text}") for text in texts]


def test_outages_of_two_dependencies_begin_and_end_independently(
    problems: Problems, caplog: pytest.LogCaptureFixture
) -> None:
    away, refused = placement(PlacementUnavailable, "refused"), backend("refused")
    problems.found("full", [refused], ends_check=True)
    problems.found("drift", [away], ends_check=True)
    problems.found("full")

    assert [text for _, text in told(caplog)] == [
        f"metal: {refused}",
        f"metal: {away}",
        f"metal: solved: {refused}",
    ]
