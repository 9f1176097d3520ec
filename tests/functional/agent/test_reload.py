"""SIGHUP: which instances a new configuration restarts, and which configurations are refused."""

import gc
import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.functional.agent.standing_in import StandIn, install, wait_until
from tests.lab.cycles import HOST
from wharfinger.agent import agent as agent_module
from wharfinger.agent.configuration_snapshot import Snapshot
from wharfinger.conf import AgentSection


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    monkeypatch.syspath_prepend(str(install(tmp_path)))
    with StandIn(tmp_path) as stand_in:
        yield stand_in


@dataclass(frozen=True)
class Used:
    """A configuration that is used: its changes, and the instances that it starts and stops."""

    changes: tuple[tuple[str, str], ...] = ()
    more: str = ""
    started: str = ""
    stopped: str = ""


BOTH = "ab"
USED = {
    "nothing changed": Used(),
    "instance added": Used((("a, b", "a, b, c"),), "[c]\ndriver = file\npath = c\n", started="c"),
    "instance removed": Used((("a, b", "a"),), stopped="b"),
    "instance changed": Used(more="total = 2\n", started="b", stopped="b"),
    "instance renamed": Used((("a, b", "a, c"), ("[b]", "[c]")), started="c", stopped="b"),
    "instances swapped": Used(
        (("/a.json", "/x.json"), ("/b.json", "/a.json"), ("/x.json", "/b.json")),
        started=BOTH,
        stopped=BOTH,
    ),
    "section of an instance's section added": Used(
        more="[b:more]\nnote = x\n", started="b", stopped="b"
    ),
    "another Placement": Used(
        (("embedded = true", "embedded = true\nconnections = 2"),), started=BOTH, stopped=BOTH
    ),
    "other intervals": Used((("interval = 1", "interval = 3"),), started=BOTH, stopped=BOTH),
    "another hang_timeout": Used((("[agent]", "[agent]\nhang_timeout = 7"),), "", BOTH, BOTH),
    "other options of logging": Used((("[agent]", "debug = true\n[agent]"),), "", BOTH, BOTH),
    "comments alone": Used((("[a]", "# a comment\n[a]\n; another\n"),)),
    "blanks alone": Used((("driver = file", "driver  =    file"),)),
    "another order of enabled_drivers": Used((("a, b", "b, a"),)),
    "another order of sections": Used(
        (("[agent]\npoll_interval = 1\n", ""),), "[agent]\npoll_interval = 1\n"
    ),
    "section of an instance that is not enabled": Used(more="[c]\ndriver = file\npath = c\n"),
    "default written out": Used((("[agent]", "[agent]\nisolation = process"),)),
    "name of a section in capitals": Used((("[agent]", "[Agent]"),)),
}


@pytest.mark.drawn(8)
@pytest.mark.parametrize("case", USED)
def test_reload_of_a_usable_configuration_restarts_the_changed_instances(
    stand_in: StandIn, case: str
) -> None:
    used = USED[case]
    stand_in.rewrite(*used.changes, more=used.more)
    stand_in.reload()
    wait_until(lambda: len(stand_in.calls) >= len(used.started) + len(used.stopped))
    wait_until(lambda: stand_in.notified()[-1] == "READY=1")

    assert sorted(stand_in.calls) == sorted(
        [f"start {name}" for name in used.started] + [f"stop {name}" for name in used.stopped]
    )
    status = stand_in.agent.status()
    assert (status.reloads, status.refused_reload) == (1, "")
    assert stand_in.log.lines("the new configuration is used")
    assert stand_in.notified() == ["READY=1", "RELOADING=1", "READY=1"]
    names = [one.name for one in status.instances]
    assert names == list(Snapshot([str(stand_in.config)]).conf.enabled_drivers)
    for name in used.started:
        assert AgentSection.read(stand_in.runner(name).snapshot.conf).poll_interval in (1, 3)


@dataclass(frozen=True)
class Refused:
    """A configuration that is refused, and the reason in the message."""

    said: str
    changes: tuple[tuple[str, str], ...] = ()
    more: str = ""
    content: bytes | None = field(default=None)


REFUSED = {
    "bad value": Refused("poll_interval = soon", (("interval = 1", "interval = soon"),)),
    "interval of none": Refused("this is not a duration", (("interval = 1", "interval = 0"),)),
    "intervals in the wrong order": Refused("shorter", (("interval = 1", "interval = 61"),)),
    "unknown option": Refused("polls", (("[agent]", "[agent]\npolls = 1"),)),
    "unknown section": Refused("section [agents] is unknown", more="[agents]\n"),
    "unknown option of an instance": Refused("colour", more="colour = 1\n"),
    "unknown section of an instance": Refused("[b:colour]", more="[b:colour]\n"),
    "not parsable": Refused("wharfinger.conf", more="[c\n"),
    "not text": Refused("utf-8", content=b"\xff\xfe\x00"),
    "empty": Refused("no driver instance is enabled", content=b""),
    "no instance": Refused("no driver instance is enabled", (("a, b", ""),)),
    "one trait for two": Refused(
        "the same instance trait", (("a, b", "a, b-c, b_c"),), "[b-c]\ndriver=file\n[b_c]\n"
    ),
    "driver that is not installed": Refused("driver none", (("driver = file", "driver = none"),)),
    "driver that cannot be imported": Refused(
        "no_such_module", (("a, b", "a, b, c"),), "[c]\ndriver = missing\n"
    ),
    "bad value of a driver's option": Refused("total", more="total = many\n"),
    "another host": Refused("[DEFAULT] host", ((f"host = {HOST}", "host = other"),)),
    "another state_path": Refused("[DEFAULT] state_path", (("/state\n", "/other\n"),)),
    "another service_down_time": Refused(
        "service_down_time", (("[agent]", "service_down_time = 7\n[agent]"),)
    ),
    "another database": Refused(
        "[database] connection", more="[Database]\nconnection = postgresql://other/wharfinger\n"
    ),
    "another isolation": Refused("isolation", (("[agent]", "[agent]\nisolation = thread"),)),
    "another health_socket": Refused(
        "[agent] health_socket", (("[agent]", "[agent]\nhealth_socket = /run/a.sock"),)
    ),
    "another health_address": Refused(
        "[agent] health_address", (("[agent]", "[agent]\nhealth_address = 127.0.0.1:9"),)
    ),
    "no embedded Placement": Refused("", (("embedded = true", "embedded = false"),)),
}


@pytest.mark.drawn(8)
@pytest.mark.parametrize("case", REFUSED)
def test_reload_of_an_unusable_configuration_changes_no_instance(
    stand_in: StandIn, case: str
) -> None:
    refused = REFUSED[case]
    if refused.content is None:
        stand_in.rewrite(*refused.changes, more=refused.more)
    else:
        stand_in.config.write_bytes(refused.content)
    before = list(stand_in.runners)
    stand_in.reload()
    wait_until(lambda: stand_in.notified()[-1] == "READY=1")

    [line] = stand_in.refusals()
    assert line.levelno == logging.ERROR
    assert str(stand_in.config) in line.getMessage()
    assert refused.said in line.getMessage()
    assert "/proc/" not in line.getMessage()
    assert stand_in.agent.status().refused_reload in line.getMessage()
    assert stand_in.agent.status().reloads == 0
    assert stand_in.calls == []
    assert stand_in.runners == before
    assert stand_in.notified() == ["READY=1", "RELOADING=1", "READY=1"]
    # The next usable configuration is used, and the status shows no refusal any more.
    stand_in.rewrite(more="total = 2\n")
    stand_in.reload()
    assert stand_in.agent.status().refused_reload == ""
    assert stand_in.agent.status().reloads == 1


def test_reload_without_a_configuration_file_is_refused(stand_in: StandIn) -> None:
    stand_in.config.unlink()
    stand_in.reload()

    [line] = stand_in.refusals()
    assert str(stand_in.config) in line.getMessage()
    assert stand_in.calls == []


def test_reload_during_the_check_of_another_reload_reads_the_file_again(stand_in: StandIn) -> None:
    stand_in.check_holds.set()
    stand_in.agent.reload()
    wait_until(lambda: stand_in.checks)
    stand_in.rewrite(more="total = 2\n")
    stand_in.agent.reload()
    stand_in.agent.reload()
    stand_in.agent.look()
    checks = stand_in.runner("a").checks
    looked_at = stand_in.agent.status().looked_at
    wait_until(
        lambda: stand_in.runner("a").checks > checks + 2
    )  # the agent still checks its instances
    assert stand_in.agent.status().looked_at > looked_at
    assert len(stand_in.checks) == 1
    stand_in.check_holds.clear()
    wait_until(lambda: stand_in.agent.status().reloads == 2)

    wait_until(lambda: stand_in.calls == ["stop b", "start b"])
    assert stand_in.notified() == ["READY=1", *["RELOADING=1", "READY=1"] * 2]
    assert len(stand_in.checks) == 2


def test_changed_instance_starts_after_the_old_one_has_ended(
    stand_in: StandIn,
) -> None:
    stand_in.runner("b").hangs = True
    stand_in.rewrite(more="total = 2\n")
    stand_in.reload()
    # A second reload leaves instance b as it is.
    stand_in.rewrite(("[a]", "[a]\ntotal = 3"), more="total = 2\n")
    stand_in.reload()
    wait_until(lambda: "start a" in stand_in.calls)
    assert stand_in.calls == ["stop b", "stop a", "start a"]

    next(one for one in stand_in.runners if one.name == "b").is_at_work = False
    wait_until(lambda: "start b" in stand_in.calls)

    assert stand_in.calls.count("start b") == 1
    assert stand_in.runner("b").snapshot.conf.b.total == 2


def test_instance_that_is_added_again_while_it_ends_starts_once_after_its_end(
    stand_in: StandIn,
) -> None:
    before = stand_in.runner("b")
    before.hangs = True
    for enabled in ("a", "a, b", "a", "a, b"):
        stand_in.rewrite(("a, b", enabled))
        stand_in.reload()
    assert "start b" not in stand_in.calls

    before.is_at_work = False
    wait_until(lambda: "start b" in stand_in.calls)

    assert stand_in.calls.count("start b") == 1
    assert [one.is_at_work for one in stand_in.runners if one.name == "b"] == [False, False, True]


def test_instance_that_is_removed_and_does_not_end_is_killed(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "PATIENCE", 0.2)
    stand_in.runner("b").hangs = True
    stand_in.rewrite(("a, b", "a"))
    stand_in.reload()
    wait_until(lambda: "kill b" in stand_in.calls)

    assert stand_in.calls == ["stop b", "kill b"]
    stand_in.log.wait_for("b: still at work 0.2 s after the request to stop")


def test_stop_during_a_check_ends_the_check(stand_in: StandIn) -> None:
    stand_in.check_holds.set()
    stand_in.agent.reload()
    wait_until(lambda: stand_in.checks)
    stand_in.stop()

    assert stand_in.checks[0].was_ended
    assert sorted(stand_in.calls) == ["stop a", "stop b"]
    assert stand_in.left == ()
    assert stand_in.notified() == ["READY=1", "RELOADING=1", "STOPPING=1"]


def test_stop_waits_for_an_instance_that_a_reload_has_removed(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_module, "PATIENCE", 3.0)
    stand_in.runner("b").hangs = True
    stand_in.rewrite(("a, b", "a"))
    stand_in.reload()
    stand_in.stop()

    stand_in.log.wait_for("the agent waits at most 3 s for the end of driver instances: b")
    assert stand_in.calls == ["stop b", "stop a", "kill b"]
    assert stand_in.left == ("b",)


def test_reloads_in_a_row_keep_only_the_configurations_in_use(stand_in: StandIn) -> None:
    for number in range(2):
        stand_in.rewrite(more=f"total = {number % 2 + 1}\n")
        stand_in.reload()
        stand_in.rewrite(more="colour = 1\n")
        stand_in.reload()
    stand_in.runners[:] = stand_in.runners[-1:]
    stand_in.checks.clear()

    # In use are the current configuration and the one with which a was started.
    wait_until(lambda: _configurations() <= 2)


def _configurations() -> int:
    gc.collect()
    paths = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            paths.append(descriptor.readlink().name)
    return sum("wharfinger-configuration" in path for path in paths)
