"""The driver's methods, with a Cyborg whose answers a test sets."""

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
    """A Cyborg that also accepts images to program, and records them."""

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
    """The Cyborg to which every driver instance connects."""
    cyborg = ProgrammingCyborg(deployable(0), deployable(1))

    def connect(*_: object) -> ProgrammingCyborg:
        return cyborg

    monkeypatch.setattr(Cyborg, "connect", connect)
    return cyborg


@pytest.fixture
def publish(request: pytest.FixtureRequest) -> str:
    """The value of the option ``publish``."""
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
    """A driver with a first snapshot."""
    unconnected.init_host(service(None))
    unconnected.get_available_nodes(refresh=True)
    return unconnected


def tree(*numbers: int, host: str = HOST, **others: str) -> ProviderTree:
    """Return a host's tree in Placement with providers of these deployables and other providers."""
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
    """Return the publishing mode of each provider that the driver has edited, by uuid."""
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
#: Calls of the driver about a provider for which Cyborg has no deployable.
OF_A_PROVIDER: dict[str, Callable[[CyborgDriver], object]] = {
    "program": lambda driver: driver.program(PROVIDERS[3], IMAGE),
    "function": lambda driver: driver.current_function(PROVIDERS[3]),
    "scope": lambda driver: driver.programming_scope(PROVIDERS[3]),
    "trait": lambda driver: driver.function_trait(PROVIDERS[3], "loop"),
}


# Loading.


def test_driver_is_loaded_and_passes_the_check() -> None:
    assert loader.load("cyborg") is CyborgDriver
    assert loader.check("cyborg") == []
    assert CyborgDriver.default_owner == "OWNER_CYBORG"


@pytest.mark.parametrize("question", [*OF_ALL, *OF_A_PROVIDER])
def test_driver_before_init_host_raises_at_each_question(
    unconnected: CyborgDriver, question: str
) -> None:
    with pytest.raises(BackendError, match="the driver instance is not connected"):
        (OF_ALL | OF_A_PROVIDER)[question](unconnected)


def test_nodes_are_the_hosts_of_the_last_snapshot(
    driver: CyborgDriver, cyborg: ProgrammingCyborg
) -> None:
    cyborg.named = frozenset({"b", "a", HOST})
    assert driver.get_available_nodes() == [HOST]
    assert driver.get_available_nodes(refresh=True) == ["a", "b", HOST]
    assert driver.get_available_nodes() == ["a", "b", HOST]


# Overlays of Cyborg's providers.


def test_providers_of_cyborg_are_overlaid_and_others_left_alone(
    driver: CyborgDriver,
) -> None:
    edited = tree(0, 1, other="a GPU")
    before = {one.provider.uuid: one.provider for one in edited.desired()}
    asked(driver, edited)
    assert stated(edited) == {PROVIDERS[0]: OVERLAY, PROVIDERS[1]: OVERLAY}
    assert {one.provider.uuid: one.provider for one in edited.desired()} == before
    assert driver.get_problems() == []


def test_unpublished_deployable_is_reported_and_skipped(
    driver: CyborgDriver, cyborg: ProgrammingCyborg
) -> None:
    unpublished = deployable(1, rp_uuid=None)
    cyborg.listed = [deployable(0), unpublished]
    driver.get_available_nodes(refresh=True)
    # A provider with the deployable's name is not overlaid: Cyborg does not name its uuid.
    edited = asked(driver, tree(0, of_that_name="x"))
    assert stated(edited) == {PROVIDERS[0]: OVERLAY}
    [problem] = driver.get_problems()
    assert unpublished.name in problem
    assert unpublished.uuid in problem
    assert "not published it yet" in problem


def test_missing_provider_is_reported_after_all_hosts_were_read(
    driver: CyborgDriver, cyborg: ProgrammingCyborg
) -> None:
    cyborg.named = frozenset({HOST, "other"})
    driver.get_available_nodes(refresh=True)
    asked(driver, tree(0))
    assert driver.get_problems() == [], "it may be the other host's"
    asked(driver, tree(host="other"), "other")
    [problem] = driver.get_problems()
    assert PROVIDERS[1] in problem
    assert "the provider is gone" in problem

    driver.get_available_nodes(refresh=True)
    assert driver.get_problems() == [], "no host has been read since"


@MODES
def test_published_deployables_cause_no_problems(driver: CyborgDriver) -> None:
    asked(driver, tree(0, 1))
    assert driver.get_problems() == []


# Publication by the driver.


@IN_OWN_MODE
def test_each_deployable_is_a_child_of_its_hosts_root(
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
def test_provider_without_a_deployable_is_removed(driver: CyborgDriver) -> None:
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
def test_unpublishable_deployable_is_reported_and_its_provider_unchanged(
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
def test_deployables_are_below_their_hosts_and_unknown_hosts_reported(
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
def test_deployable_that_loses_its_host_stays_published(
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


# Deployables that are being bound.


@MODES
def test_all_parts_of_a_device_are_reserved_during_a_binding(
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
def test_change_is_reported_for_its_host(driver: CyborgDriver, cyborg: ProgrammingCyborg) -> None:
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

    # A new deployable changes all hosts, because its host is unknown.
    cyborg.listed.append(deployable(2))
    driver._connected().refresh()
    changed, mark = driver.changed_nodes(mark)
    assert changed == {HOST, "other"}


# Programming.


def test_function_that_cyborg_reports_after_a_job_is_refused(
    driver: CyborgDriver, cyborg: ProgrammingCyborg
) -> None:
    listed = attributes(("rc", "FPGA"), ("trait0", FUNCTION))
    cyborg.listed = [deployable(0, attributes_list=listed), deployable(1, attributes_list=listed)]
    assert driver.current_function(PROVIDERS[0]) == "LOOP"

    driver.program(PROVIDERS[0], IMAGE, "other")

    assert cyborg.programmed == [(deployable(0).uuid, IMAGE)]
    with pytest.raises(BackendError, match="does not report whether"):
        driver.current_function(PROVIDERS[0])
    assert driver.current_function(PROVIDERS[1]) == "LOOP"


def test_function_that_cyborg_reports_after_a_failed_job_is_refused(
    driver: CyborgDriver, cyborg: ProgrammingCyborg
) -> None:
    cyborg.fails["program"] = BackendError(driver="fpga", operation="programming", reason="late")
    with pytest.raises(BackendError, match="late"):
        driver.program(PROVIDERS[0], IMAGE)
    with pytest.raises(BackendError, match="does not report whether"):
        driver.current_function(PROVIDERS[0])


def test_function_that_cyborg_reports_for_all_parts_after_a_job_is_refused(
    driver: CyborgDriver, cyborg: ProgrammingCyborg
) -> None:
    listed = attributes(("rc", "FPGA"), ("trait0", FUNCTION))
    cyborg.listed = [deployable(number, device_id=0, attributes_list=listed) for number in range(2)]
    driver.get_available_nodes(refresh=True)
    driver.program(PROVIDERS[0], IMAGE)
    with pytest.raises(BackendError, match="does not report whether"):
        driver.current_function(PROVIDERS[1])


@pytest.mark.parametrize(
    ("listed", "told"),
    [
        (attributes(("rc", "FPGA")), "Cyborg reports no function"),
        (attributes(("rc", "FPGA"), ("trait0", "lower")), "lower"),
        ("nonsense", "not understood"),
    ],
)
def test_function_without_a_trait_is_unknown(
    driver: CyborgDriver, cyborg: ProgrammingCyborg, listed: str, told: str
) -> None:
    cyborg.listed = [deployable(0, attributes_list=listed)]
    with pytest.raises(BackendError, match=told):
        driver.current_function(PROVIDERS[0])


def test_programming_scope_has_all_parts_of_a_device(
    driver: CyborgDriver, cyborg: ProgrammingCyborg
) -> None:
    cyborg.listed = [deployable(0), deployable(1, device_id=0), deployable(2)]
    driver.get_available_nodes(refresh=True)
    assert sorted(driver.programming_scope(PROVIDERS[0])) == sorted(PROVIDERS[:2])
    assert driver.programming_scope(PROVIDERS[2]) == [PROVIDERS[2]]


def test_function_trait_has_the_name_that_cyborgs_drivers_use(driver: CyborgDriver) -> None:
    assert driver.function_trait(PROVIDERS[0], "loop") == FUNCTION


@pytest.mark.parametrize("question", OF_A_PROVIDER)
def test_unknown_deployable_is_an_error(
    driver: CyborgDriver, cyborg: ProgrammingCyborg, question: str
) -> None:
    with pytest.raises(BackendError, match=PROVIDERS[3]):
        OF_A_PROVIDER[question](driver)
    assert not cyborg.programmed


# Calls about one host or deployable.


def test_node_is_available_asks_cyborg_and_not_the_snapshot(
    driver: CyborgDriver, cyborg: ProgrammingCyborg
) -> None:
    cyborg.named = frozenset({"another"})
    cyborg.asked.clear()
    assert not driver.node_is_available(HOST)
    assert driver.node_is_available("another")
    assert cyborg.asked == ["has_host"] * 2


def test_provider_is_available_asks_for_a_deployable_of_the_snapshot(
    driver: CyborgDriver, cyborg: ProgrammingCyborg
) -> None:
    gone = cyborg.listed.pop(0)
    driver.get_available_nodes(refresh=True)
    cyborg.asked.clear()
    assert not driver.provider_is_available(PROVIDERS[0], gone.name)
    cyborg.listed.append(gone)
    assert driver.provider_is_available(PROVIDERS[0], gone.name)
    assert cyborg.asked == ["find"] * 2


def test_provider_is_available_lists_again_for_an_unknown_deployable(
    driver: CyborgDriver, cyborg: ProgrammingCyborg
) -> None:
    cyborg.listed.append(deployable(3))
    cyborg.asked.clear()
    assert driver.provider_is_available(PROVIDERS[3], deployable(3).name)
    assert not driver.provider_is_available(PROVIDERS[2], deployable(2).name)
    assert cyborg.asked == ["deployables"] * 2
