"""Options of the section [agent], read from a real file."""

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


def test_intervals_without_a_section_are_the_documented_ones(tmp_path: Path) -> None:
    section = AgentSection.read(read(tmp_path))

    assert (section.poll_interval, section.drift_interval, section.full_interval) == (2, 60, 300)


def test_intervals_may_be_fractions_of_a_second_and_equal(tmp_path: Path) -> None:
    opts = read(tmp_path, *(f"{key} = 0.5" for key in KEYS))

    section = AgentSection.read(opts)

    assert {getattr(section, key) for key in KEYS} == {0.5}
    assert not list(conf.problems(opts))


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        ("0", "Set a number of seconds above 0."),
        ("-1", "Set a number of seconds above 0."),
        ("nan", "Set a number of seconds above 0."),
        ("-inf", "Set a number of seconds above 0."),
        ("inf", "2147483647"),
        ("1e300", "2147483647"),
        ("2s", "2147483647"),
        ("", "2147483647"),
    ],
)
def test_invalid_interval_is_refused(tmp_path: Path, key: str, value: str, remedy: str) -> None:
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
def test_interval_shorter_than_that_of_a_smaller_cycle_is_refused(
    tmp_path: Path, line: str, told: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        AgentSection.read(read(tmp_path, line))
    assert str(caught.value).startswith(told)
    assert "poll_interval <= drift_interval <= full_interval" in caught.value.remedy


def test_misspelled_option_is_reported_with_a_suggestion(tmp_path: Path) -> None:
    [problem] = conf.problems(read(tmp_path, "pol_interval = 2"))

    assert "option pol_interval of section [agent] is unknown. Did you mean poll_interval?" in str(
        problem
    )


def test_health_socket_is_in_the_state_directory_by_default(tmp_path: Path) -> None:
    path = tmp_path / "test.conf"
    path.write_text(f"[DEFAULT]\nstate_path = {tmp_path}/state")
    section = AgentSection.read(conf.parse([str(path)]))

    assert section.health_socket == tmp_path / "state" / "agent.sock"
    assert section.health_address is None


def test_wrong_default_section_is_no_problem_of_the_socket(tmp_path: Path) -> None:
    path = tmp_path / "test.conf"
    path.write_text("[DEFAULT]\nstate_path = ~unknown-user\nservice_down_time = x")
    told = [str(problem) for problem in conf.problems(conf.parse([str(path)]))]

    assert len([text for text in told if "service_down_time" in text]) == 1
    assert not [text for text in told if "[agent]" in text]


def test_health_socket_in_the_home_directory_is_expanded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    section = AgentSection.read(read(tmp_path, "health_socket = ~/wharfinger.sock"))

    assert section.health_socket == tmp_path / "wharfinger.sock"


@pytest.mark.parametrize("value", ["agent.sock", "/", "/run/agent\x07.sock"])
def test_health_socket_that_is_no_path_is_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(ConfigurationError, match="health_socket") as caught:
        AgentSection.read(read(tmp_path, f"health_socket = {value}"))
    assert "/run/wharfinger/agent.sock" in caught.value.remedy


@pytest.mark.parametrize(
    ("value", "address"),
    [
        ("127.0.0.1:9479", ("127.0.0.1", 9479)),
        ("[::1]:9479", ("::1", 9479)),
        ("localhost:1", ("localhost", 1)),
        ("", None),
    ],
)
def test_health_address_is_a_host_and_a_port(
    tmp_path: Path, value: str, address: tuple[str, int] | None
) -> None:
    section = AgentSection.read(read(tmp_path, f"health_address = {value}"))

    assert section.health_address == address


@pytest.mark.parametrize(
    "value",
    ["9479", ":9479", "127.0.0.1", "::1", "[::1]", "127.0.0.1:0", "127.0.0.1:65536", "h:p", "h:-1"],
)
def test_health_address_without_host_or_port_is_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(ConfigurationError, match="health_address") as caught:
        AgentSection.read(read(tmp_path, f"health_address = {value}"))
    assert "127.0.0.1:9479" in caught.value.remedy
