"""The driver's contract, with a Cyborg that says what a test has put into it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.lab.samples import service, uuid
from tests.unit.cyborg.samples import (
    FUNCTION,
    HOST,
    VENDOR_TRAIT,
    ScriptedCyborg,
    attributes,
    deployable,
    request,
)
from wharfinger.conf import load
from wharfinger.driver import loader
from wharfinger.exceptions import BackendError
from wharfinger.providers import Provider, ProviderTree, PublishingMode
from wharfinger_cyborg.client import Cyborg
from wharfinger_cyborg.deployable import Deployable
from wharfinger_cyborg.driver import CyborgDriver

OVERLAY, OWN = PublishingMode.OVERLAY, PublishingMode.OWN
PROVIDERS = [uuid(f"provider {number}") for number in range(4)]
ROOT = uuid("root")
IMAGE = uuid("image")
MODES = pytest.mark.parametrize("publish", ["overlay", "own"], indirect=True)
IN_OWN_MODE = pytest.mark.parametrize("publish", ["own"], indirect=True)


class ProgrammingCyborg(ScriptedCyborg):
    """Takes images too, and notes for which deployables."""

    def __init__(self, *deployables: Deployable) -> None:
        super().__init__(*deployables)
        self.programmed: list[tuple[str, str]] = []

    def deployable(self, uuid: str) -> Deployable:
        self._asked("deployable")
        [found] = [one for one in self.listed if one.uuid == uuid]
        return found

    def find(self, uuid: str) -> Deployable | None:
        self._asked("find")
        return next((one for one in self.listed if one.uuid == uuid), None)

    def has_host(self, host: str) -> bool:
        self._asked("has_host")
        return host in self.named

    def program(self, deployable: Deployable, image: str) -> None:
        self._asked("program")
        self.programmed.append((deployable.uuid, image))


@pytest.fixture
def cyborg(monkeypatch: pytest.MonkeyPatch) -> ProgrammingCyborg:
    """The one to which every driver instance leads."""
    cyborg = ProgrammingCyborg(deployable(0), deployable(1))

    def connect(*_: object) -> ProgrammingCyborg:
        return cyborg

    monkeypatch.setattr(Cyborg, "connect", connect)
    return cyborg


@pytest.fixture
def publish(request: pytest.FixtureRequest) -> str:
    """Who publishes the accelerators."""
    return getattr(request, "param", "overlay")


@pytest.fixture
def unconnected(tmp_path: Path, publish: str) -> CyborgDriver:
    path = tmp_path / "wharfinger.conf"
    path.write_text(
        "[DEFAULT]\nenabled_drivers = fpga\n[fpga]\ndriver = cyborg\nauth_type = none\n"
        f"endpoint = http://127.0.0.1:9\npublish = {publish}\n"
    )
    return CyborgDriver(load([str(path)]), "ctl", "fpga")


@pytest.fixture
def driver(unconnected: CyborgDriver, cyborg: ProgrammingCyborg) -> CyborgDriver:
    """One that has taken a snapshot."""
    unconnected.init_host(service(None))
    unconnected.get_available_nodes(refresh=True)
    return unconnected


def tree(*numbers: int, host: str = HOST, **others: str) -> ProviderTree:
    """A host's tree as Placement has it, with the providers of deployables; and of others."""
    children = {PROVIDERS[number]: deployable(number).name for number in numbers} | {
        uuid(serial): name for name, serial in others.items()
    }
    root = uuid(f"root {host}")
    return ProviderTree.from_providers(
        [
            Provider(uuid=root, name=host, root_uuid=root),
            *(
                Provider(uuid=one, name=name, root_uuid=root, parent_uuid=root)
                for one, name in children.items()
            ),
        ]
    )


def asked(driver: CyborgDriver, edited: ProviderTree, host: str = HOST) -> ProviderTree:
    driver.update_provider_tree(edited, host)
    return edited


def stated(edited: ProviderTree) -> dict[str, PublishingMode]:
    """What the driver has said something of, by uuid."""
    return {one.provider.uuid: one.mode for one in edited.desired() if one.stated}


def reasons(edited: ProviderTree) -> dict[str, tuple[str, ...]]:
    return {one.provider.uuid: one.reservations for one in edited.desired() if one.reservations}


OF_ALL: dict[str, Callable[[CyborgDriver], object]] = {
    "nodes": lambda driver: driver.get_available_nodes(refresh=True),
    "tree": lambda driver: driver.update_provider_tree(tree(0), HOST),
    "problems": lambda driver: driver.get_problems(),
    "changes": lambda driver: driver.changed_nodes(None),
    "available": lambda driver: driver.node_is_available(HOST),
    "provider available": lambda driver: driver.provider_is_available(PROVIDERS[0], "a"),
}
#: Of one that Cyborg does not have.
OF_A_PROVIDER: dict[str, Callable[[CyborgDriver], object]] = {
    "program": lambda driver: driver.program(PROVIDERS[3], IMAGE),
    "function": lambda driver: driver.current_function(PROVIDERS[3]),
    "scope": lambda driver: driver.programming_scope(PROVIDERS[3]),
    "trait": lambda driver: driver.function_trait(PROVIDERS[3], "loop"),
}


# Loading.


def test_it_is_loaded_and_nothing_is_wrong_with_it() -> None:
    assert loader.load("cyborg") is CyborgDriver
    assert loader.check("cyborg") == []
    assert CyborgDriver.default_owner == "OWNER_CYBORG"


@pytest.mark.parametrize("question", [*OF_ALL, *OF_A_PROVIDER])
def test_before_it_is_connected_it_answers_nothing(
    unconnected: CyborgDriver, question: str
) -> None:
    with pytest.raises(BackendError, match="init_host has not been called"):
        (OF_ALL | OF_A_PROVIDER)[question](unconnected)


def test_its_nodes_are_the_hosts_with_devices_as_of_the_last_snapshot(
    driver: CyborgDriver, cyborg: ProgrammingCyborg
) -> None:
    cyborg.named = frozenset({"b", "a", HOST})
    assert driver.get_available_nodes() == [HOST]
    assert driver.get_available_nodes(refresh=True) == ["a", "b", HOST]
    assert driver.get_available_nodes() == ["a", "b", HOST]


# Overlaying what Cyborg publishes.


def test_what_cyborg_has_published_is_overlaid_and_nothing_else_touched(
    driver: CyborgDriver,
) -> None:
    edited = tree(0, 1, other="a GPU")
    before = {one.provider.uuid: one.provider for one in edited.desired()}
    asked(driver, edited)
    assert stated(edited) == {PROVIDERS[0]: OVERLAY, PROVIDERS[1]: OVERLAY}
    assert {one.provider.uuid: one.provider for one in edited.desired()} == before
    assert driver.get_problems() == []


def test_what_cyborg_has_not_published_is_reported_and_passed_over(
    driver: CyborgDriver, cyborg: ProgrammingCyborg
) -> None:
    unpublished = deployable(1, rp_uuid=None)
    cyborg.listed = [deployable(0), unpublished]
    driver.get_available_nodes(refresh=True)
    # Not even where its provider has that uuid: Cyborg does not say that it is that one's.
    edited = asked(driver, tree(0, of_that_name="x"))
    assert stated(edited) == {PROVIDERS[0]: OVERLAY}
    [problem] = driver.get_problems()
    assert unpublished.name in problem
    assert unpublished.uuid in problem
    assert "not published it yet" in problem


def test_a_provider_that_is_gone_is_reported_once_all_hosts_were_looked_at(
    driver: CyborgDriver, cyborg: ProgrammingCyborg
) -> None:
    cyborg.named = frozenset({HOST, "other"})
    driver.get_available_nodes(refresh=True)
    asked(driver, tree(0))
    assert driver.get_problems() == [], "it may be the other host's"
    asked(driver, tree(host="other"), "other")
    [problem] = driver.get_problems()
    assert PROVIDERS[1] in problem
    assert "it is gone" in problem

    driver.get_available_nodes(refresh=True)
    assert driver.get_problems() == [], "nobody has been asked since"


@MODES
def test_it_is_quiet_where_all_is_published(driver: CyborgDriver) -> None:
    asked(driver, tree(0, 1))
    assert driver.get_problems() == []


# Publishing where nobody else does.


@IN_OWN_MODE
def test_each_deployable_is_a_child_of_its_host_s_root(
    driver: CyborgDriver, cyborg: ProgrammingCyborg
) -> None:
    cyborg.listed = [
        deployable(0, num_accelerators=3),
        deployable(1, rp_uuid=None),
        deployable(2, num_accelerators=0, attributes_list=attributes(("rc", "VGPU"))),
    ]
    driver.get_available_nodes(refresh=True)
    edited = asked(driver, tree())
    for one in cyborg.listed:
        data = edited.data(one.name)
        assert data.uuid == one.provider_uuid
        assert data.parent_uuid == uuid(f"root {HOST}")
    assert edited.data(deployable(0).name).inventory["FPGA"]["total"] == 3
    assert edited.data(deployable(0).name).traits == {VENDOR_TRAIT}
    assert edited.data(deployable(2).name).inventory == {}
    assert set(stated(edited).values()) == {OWN}
    assert uuid(f"root {HOST}") not in stated(edited), "that is nova's"


@IN_OWN_MODE
def test_what_is_no_more_is_removed(driver: CyborgDriver) -> None:
    edited = asked(driver, tree(0, 1, 2))
    assert not edited.exists(PROVIDERS[2])
    assert set(stated(edited)) == set(PROVIDERS[:2])


@IN_OWN_MODE
@pytest.mark.parametrize(
    "wrong",
    [
        {"attributes_list": "nonsense"},
        {"num_accelerators": -1},
        {"attributes_list": attributes(("rc", "FPGA"), ("trait0", "lower"))},
    ],
    ids=["attributes", "total", "trait"],
)
def test_what_cannot_be_published_is_reported_and_stays_as_it_is(
    driver: CyborgDriver, cyborg: ProgrammingCyborg, wrong: dict[str, Any]
) -> None:
    cyborg.listed = [deployable(0, **wrong), deployable(1)]
    driver.get_available_nodes(refresh=True)
    edited = asked(driver, tree(0))
    assert stated(edited) == {PROVIDERS[1]: OWN}
    assert edited.exists(PROVIDERS[0])
    [problem] = driver.get_problems()
    assert problem.startswith(f"deployable {deployable(0).name} ({deployable(0).uuid}): ")

    cyborg.listed = [deployable(0), deployable(1)]
    driver.get_available_nodes(refresh=True)
    asked(driver, tree(0, 1))
    assert driver.get_problems() == []


@IN_OWN_MODE
def test_each_host_has_its_own_and_what_tells_none_is_reported(
    driver: CyborgDriver, cyborg: ProgrammingCyborg
) -> None:
    cyborg.named = frozenset({HOST, "other"})
    cyborg.listed = [deployable(0), deployable(1, name="other_0c"), deployable(2, name="lost")]
    driver.get_available_nodes(refresh=True)
    assert set(stated(asked(driver, tree()))) == {PROVIDERS[0]}
    assert set(stated(asked(driver, tree(host="other"), "other"))) == {PROVIDERS[1]}
    [problem] = driver.get_problems()
    assert "deployable lost " in problem
    assert f"{HOST}, other" in problem


@IN_OWN_MODE
def test_what_tells_no_host_any_more_stays_where_it_was_published(
    driver: CyborgDriver, cyborg: ProgrammingCyborg
) -> None:
    cyborg.listed = [deployable(0, name="lost")]
    driver.get_available_nodes(refresh=True)
    edited = asked(driver, tree())
    cyborg.named = frozenset({HOST, "other"})
    driver.get_available_nodes(refresh=True)
    asked(driver, edited)
    assert edited.exists("lost"), "Cyborg has it"
    [problem] = driver.get_problems()
    assert "deployable lost " in problem


# What is being bound.


@MODES
def test_all_parts_of_a_device_are_reserved_while_one_is_being_bound(
    driver: CyborgDriver, cyborg: ProgrammingCyborg
) -> None:
    cyborg.listed = [deployable(0), deployable(1, device_id=0), deployable(2)]
    cyborg.requests = [request(0)]
    driver.get_available_nodes(refresh=True)
    edited = asked(driver, tree(0, 1, 2))
    reason = (f"being bound to accelerator request {uuid('request 0')}",)
    assert reasons(edited) == {PROVIDERS[0]: reason, PROVIDERS[1]: reason}

    cyborg.requests = []
    driver.get_available_nodes(refresh=True)
    assert reasons(asked(driver, tree(0, 1, 2))) == {}


# The feed.


@MODES
def test_a_change_is_told_of_the_host_that_has_it(
    driver: CyborgDriver, cyborg: ProgrammingCyborg
) -> None:
    cyborg.named = frozenset({HOST, "other"})
    cyborg.listed = [deployable(0), deployable(1, name="other_0c")]
    driver.get_available_nodes(refresh=True)
    asked(driver, tree(0))
    other = tree(host="other")
    other.new_child("other_0c", "other", PROVIDERS[1])
    asked(driver, other, "other")
    nothing, mark = driver.changed_nodes(None)
    assert nothing == set()
    nothing, mark = driver.changed_nodes(mark)
    assert nothing == set()

    cyborg.requests = [request(0)]
    driver._connected().refresh()
    changed, mark = driver.changed_nodes(mark)
    assert changed == {HOST}

    # Where something new is, is not known before all were asked.
    cyborg.listed.append(deployable(2))
    driver._connected().refresh()
    changed, mark = driver.changed_nodes(mark)
    assert changed == {HOST, "other"}


# Programming.


def test_a_device_is_programmed_and_what_cyborg_says_after_that_is_not_believed(
    driver: CyborgDriver, cyborg: ProgrammingCyborg
) -> None:
    listed = attributes(("rc", "FPGA"), ("trait0", FUNCTION))
    cyborg.listed = [deployable(0, attributes_list=listed), deployable(1, attributes_list=listed)]
    assert driver.current_function(PROVIDERS[0]) == "LOOP"

    driver.program(PROVIDERS[0], IMAGE, "other")

    assert cyborg.programmed == [(deployable(0).uuid, IMAGE)]
    with pytest.raises(BackendError, match="does not report when"):
        driver.current_function(PROVIDERS[0])
    assert driver.current_function(PROVIDERS[1]) == "LOOP"


def test_what_cyborg_says_is_not_believed_after_programming_has_failed_either(
    driver: CyborgDriver, cyborg: ProgrammingCyborg
) -> None:
    cyborg.fails["program"] = BackendError(driver="fpga", operation="programming", reason="late")
    with pytest.raises(BackendError, match="late"):
        driver.program(PROVIDERS[0], IMAGE)
    with pytest.raises(BackendError, match="does not report when"):
        driver.current_function(PROVIDERS[0])


def test_no_part_of_a_device_is_believed_that_was_programmed_as_a_whole(
    driver: CyborgDriver, cyborg: ProgrammingCyborg
) -> None:
    listed = attributes(("rc", "FPGA"), ("trait0", FUNCTION))
    cyborg.listed = [deployable(number, device_id=0, attributes_list=listed) for number in range(2)]
    driver.get_available_nodes(refresh=True)
    driver.program(PROVIDERS[0], IMAGE)
    with pytest.raises(BackendError, match="does not report when"):
        driver.current_function(PROVIDERS[1])


@pytest.mark.parametrize(
    ("listed", "told"),
    [
        (attributes(("rc", "FPGA")), "Cyborg reports none"),
        (attributes(("rc", "FPGA"), ("trait0", "lower")), "lower"),
        ("nonsense", "not understood"),
    ],
)
def test_a_function_that_is_not_said_is_not_known(
    driver: CyborgDriver, cyborg: ProgrammingCyborg, listed: str, told: str
) -> None:
    cyborg.listed = [deployable(0, attributes_list=listed)]
    with pytest.raises(BackendError, match=told):
        driver.current_function(PROVIDERS[0])


def test_all_that_is_programmed_at_once_is_the_scope(
    driver: CyborgDriver, cyborg: ProgrammingCyborg
) -> None:
    cyborg.listed = [deployable(0), deployable(1, device_id=0), deployable(2)]
    driver.get_available_nodes(refresh=True)
    assert sorted(driver.programming_scope(PROVIDERS[0])) == sorted(PROVIDERS[:2])
    assert driver.programming_scope(PROVIDERS[2]) == [PROVIDERS[2]]


def test_a_trait_is_named_as_cyborg_s_own_drivers_name_it(driver: CyborgDriver) -> None:
    assert driver.function_trait(PROVIDERS[0], "loop") == FUNCTION


@pytest.mark.parametrize("question", OF_A_PROVIDER)
def test_what_cyborg_does_not_have_is_told(
    driver: CyborgDriver, cyborg: ProgrammingCyborg, question: str
) -> None:
    with pytest.raises(BackendError, match=PROVIDERS[3]):
        OF_A_PROVIDER[question](driver)
    assert not cyborg.programmed


# Questions for one host or deployable.


def test_node_is_available_asks_cyborg_and_not_the_snapshot(
    driver: CyborgDriver, cyborg: ProgrammingCyborg
) -> None:
    cyborg.named = frozenset({"another"})
    cyborg.asked.clear()
    assert not driver.node_is_available(HOST)
    assert driver.node_is_available("another")
    assert cyborg.asked == ["has_host"] * 2


def test_provider_is_available_asks_for_a_deployable_that_was_seen(
    driver: CyborgDriver, cyborg: ProgrammingCyborg
) -> None:
    gone = cyborg.listed.pop(0)
    driver.get_available_nodes(refresh=True)
    cyborg.asked.clear()
    assert not driver.provider_is_available(PROVIDERS[0], gone.name)
    cyborg.listed.append(gone)
    assert driver.provider_is_available(PROVIDERS[0], gone.name)
    assert cyborg.asked == ["find"] * 2


def test_provider_is_available_lists_anew_where_the_deployable_was_never_seen(
    driver: CyborgDriver, cyborg: ProgrammingCyborg
) -> None:
    cyborg.listed.append(deployable(3))
    cyborg.asked.clear()
    assert driver.provider_is_available(PROVIDERS[3], deployable(3).name)
    assert not driver.provider_is_available(PROVIDERS[2], deployable(2).name)
    assert cyborg.asked == ["deployables"] * 2
