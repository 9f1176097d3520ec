"""The seed determines the cases that a run draws, so that they can be run again."""

import pytest

from tests.lab.drawing import Draw

pytest_plugins = ["pytester"]

SUITE = """
import pytest

@pytest.mark.drawn(3, keep=["7"])
@pytest.mark.parametrize("number", range(20))
def test_many(number):
    print("tried", number)

THERE = pytest.param("there", marks=pytest.mark.drawn(2, of="module"))

@pytest.mark.parametrize("where", ["here", THERE])
@pytest.mark.parametrize("number", range(5))
def test_twice(number, where):
    print("tried", number, where)

def test_inside(draw):
    print("tried", draw(range(100, 120), 3))

def test_failed(draw):
    assert not draw(range(100), 2)
"""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the runs in these tests load no plugins."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def run(pytester: pytest.Pytester, *arguments: str) -> list[str]:
    """Run a suite in which one test fails; return its output."""
    pytester.makeconftest("from tests.conftest import *")
    pytester.makepyfile(SUITE)
    result = pytester.runpytest_inprocess("-s", "-p", "no:cacheprovider", *arguments)
    return [*map(str, result.outlines)]


def tried(printed: list[str]) -> set[str]:
    return {line.partition("tried ")[2] for line in printed if "tried " in line}


def test_run_with_a_seed_tries_the_same_cases_again_and_the_kept_ones(
    pytester: pytest.Pytester,
) -> None:
    first = tried(run(pytester, "--seed", "1"))

    assert first == tried(run(pytester, "--seed", "1"))
    assert first != tried(run(pytester, "--seed", "2"))
    assert "7" in first
    assert len([one for one in first if one.isdigit()]) == 4
    assert len([one for one in first if one.endswith("there")]) == 2
    assert len([one for one in first if one.endswith("here")]) == 2 + 5


def test_run_of_a_part_with_a_seed_tries_the_same_cases(pytester: pytest.Pytester) -> None:
    every = tried(run(pytester, "--seed", "1"))
    part = tried(run(pytester, "--seed", "1", "-k", "test_many or test_inside"))

    assert len(part) == 5
    assert part < every


def test_run_of_all_tries_every_case(pytester: pytest.Pytester) -> None:
    printed = run(pytester, "--all")

    assert tried(printed) >= {*map(str, range(20)), str([*range(100, 120)]), "4 there"}
    assert any(line.startswith("every case was tried") for line in printed)


def test_failure_names_the_seed_and_the_cases(pytester: pytest.Pytester) -> None:
    printed = run(pytester, "--seed", "3")

    assert "drawn with --seed 3" in printed
    assert any(line.startswith("2 of 100 cases: ") for line in printed)
    assert (
        "drawn with --seed 3, which draws the same cases again; --all tries every case" in printed
    )


def test_draw_keeps_the_order_and_the_kept_cases() -> None:
    cases = [f"case {number}" for number in range(50)]

    drawn = Draw(4, "a test")(cases, 5, keep=["case 49", "case 0"])

    assert drawn == sorted(drawn, key=cases.index)
    assert {"case 0", "case 49"} <= {*drawn}
    assert 5 <= len(drawn) <= 7
    assert Draw(None, "a test")(cases, 5) == cases
