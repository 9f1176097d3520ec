"""[agent], read from a real file."""

from pathlib import Path

import pytest

from wharfinger import conf
from wharfinger.conf import AgentSection
from wharfinger.exceptions import ConfigurationError

KEYS = ("poll_interval", "drift_interval", "full_interval")


def read(directory: Path, *lines: str) -> conf.Options:
    path = directory / "test.conf"
    path.write_text("\n".join(("[agent]", *lines)))
    return conf.parse([str(path)])


def test_without_a_section_the_paces_are_those_that_are_promised(tmp_path: Path) -> None:
    assert AgentSection.read(read(tmp_path)) == AgentSection(2, 60, 300)


def test_intervals_may_be_parts_of_a_second_and_equal(tmp_path: Path) -> None:
    opts = read(tmp_path, *(f"{key} = 0.5" for key in KEYS))

    assert AgentSection.read(opts) == AgentSection(0.5, 0.5, 0.5)
    assert not list(conf.problems(opts))


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        ("0", "It takes a number above 0."),
        ("-1", "It takes a number above 0."),
        ("nan", "It takes a number above 0."),
        ("-inf", "It takes a number above 0."),
        ("inf", "2147483647"),
        ("1e300", "2147483647"),
        ("2s", "2147483647"),
        ("", "2147483647"),
    ],
)
def test_what_is_no_time_is_refused(tmp_path: Path, key: str, value: str, remedy: str) -> None:
    opts = read(tmp_path, f"{key} = {value}")
    with pytest.raises(ConfigurationError) as caught:
        AgentSection.read(opts)
    error = caught.value
    assert (error.section, error.key, str(error.value)) == ("agent", key, value)
    assert remedy in error.remedy
    assert [str(error)] == [str(problem) for problem in conf.problems(opts)]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("poll_interval = 60.5", "[agent] drift_interval = 60: it is shorter than the interval"),
        ("drift_interval = 301", "[agent] full_interval = 300: it is shorter than the interval"),
        ("drift_interval = 1", "[agent] drift_interval = 1: it is shorter than the interval"),
        ("full_interval = 59", "[agent] full_interval = 59: it is shorter than the interval"),
    ],
)
def test_what_does_more_is_not_to_come_more_often(tmp_path: Path, line: str, told: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        AgentSection.read(read(tmp_path, line))
    assert str(caught.value).startswith(told)
    assert "poll_interval <= drift_interval <= full_interval" in caught.value.remedy


def test_a_slip_of_the_pen_is_told(tmp_path: Path) -> None:
    [problem] = conf.problems(read(tmp_path, "pol_interval = 2"))

    assert "option pol_interval of section [agent]. Did you mean poll_interval?" in str(problem)
