"""Questions to a driver about what its listing lacks, and the meaning of its answers."""

from typing import Final, cast

import pytest

from tests.lab.drivers import ScriptedDriver
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.model import ProviderSummary
from wharfinger.providers import Provider, names
from wharfinger.providers.record import Record
from wharfinger.reconcile.availability import Availability
from wharfinger.reconcile.node_list import NodeListing
from wharfinger.tracker.node import Node

HOST: Final = names.root_uuid("cn")
GPU: Final = names.child_uuid(HOST, "gpu")
ROOT: Final = Provider(uuid=HOST, name="cn", root_uuid=HOST)
CHILD: Final = Provider(uuid=GPU, name="gpu", root_uuid=HOST, parent_uuid=HOST)
LIVE: Final = {HOST: ROOT, GPU: CHILD}


class AskedDriver(ScriptedDriver):
    """A driver with its answers by name; without an answer, its backend is away."""

    def __init__(self, **answers: object) -> None:
        super().__init__()
        self.answers = answers
        self.asked: list[str] = []

    def node_is_available(self, nodename: str) -> bool:
        return self._answer(nodename)

    def provider_is_available(self, provider_uuid: str, name: str) -> bool:
        return self._answer(name)

    def _answer(self, name: str) -> bool:
        self.asked.append(name)
        if name not in self.answers:
            raise ConnectionError("the backend is away")
        answer: bool = self.answers[name]  # type: ignore[assignment]
        return answer


class Roots:
    """A Placement that knows another owner's root."""

    def list_providers(self, uuid: str) -> list[ProviderSummary]:
        return [ProviderSummary(uuid, "theirs", 1, uuid, None)] if uuid == HOST else []


def about(
    driver: AskedDriver,
    listing: NodeListing | None = None,
    live: dict[str, Provider] = LIVE,
    records: dict[str, Record] | None = None,
) -> Availability:
    client = cast(PlacementClient, Roots())
    return Availability(driver, client, listing or NodeListing(), live, records or {})


@pytest.mark.parametrize("answer", [None, 1, "no", ConnectionError])
def test_keep_without_a_true_or_false_keeps_the_node_and_gives_the_reason(answer: object) -> None:
    driver = AskedDriver() if answer is ConnectionError else AskedDriver(cn=answer)
    asked = about(driver)

    reasons = asked.keep([HOST])

    assert "node_is_available(cn) failed: " in reasons[HOST]
    assert asked.problems == ()


def test_keep_of_a_node_that_is_still_there_keeps_its_devices_and_asks_once() -> None:
    driver = AskedDriver(cn=True)
    asked = about(driver)

    assert asked.keep([HOST, GPU]).keys() == {HOST, GPU}
    assert driver.asked == ["cn"]
    (problem,) = asked.problems
    assert (problem.instance, problem.count, problem.names) == ("scripted", 1, ("cn",))


def test_keep_of_a_node_that_is_gone_asks_for_its_devices_too() -> None:
    driver = AskedDriver(cn=False, gpu=False)
    assert about(driver).keep([HOST, GPU]) == {}
    assert sorted(driver.asked) == ["cn", "gpu"]


@pytest.mark.parametrize("is_there", [True, False])
def test_keep_of_a_device_of_a_listed_node_asks_for_the_device_alone(is_there: bool) -> None:
    driver = AskedDriver(gpu=is_there)
    asked = about(driver, NodeListing(nodes=[Node("cn", HOST)]))

    assert bool(asked.keep([GPU])) == is_there
    assert driver.asked == ["gpu"]
    assert [one.names for one in asked.problems] == ([("gpu",)] if is_there else [])


def test_keep_of_a_device_of_a_renamed_node_does_not_ask_for_the_former_name() -> None:
    driver = AskedDriver(gpu=False)
    record = Record(applied=Provider(uuid=HOST, name="before", root_uuid=HOST))
    asked = about(driver, NodeListing(nodes=[Node("cn", HOST)]), records={HOST: record})

    assert asked.keep([GPU]) == {}
    assert driver.asked == ["gpu"]


def test_keep_where_another_node_has_the_name_asks_nothing_of_the_node() -> None:
    namesake = NodeListing(nodes=[Node("cn", names.root_uuid("another"))])
    driver = AskedDriver()
    assert about(driver, namesake).keep([HOST]) == {}
    assert driver.asked == []


def test_keep_asks_for_the_name_under_which_the_node_was_published() -> None:
    driver = AskedDriver(before=True)
    record = Record(applied=Provider(uuid=HOST, name="before", root_uuid=HOST))
    about(driver, records={HOST: record}).keep([HOST])
    assert driver.asked == ["before"]


def test_keep_below_another_owners_root_looks_its_name_up() -> None:
    driver = AskedDriver(theirs=True)
    asked = about(driver, live={GPU: CHILD})

    assert asked.keep([GPU]).keys() == {GPU}
    assert driver.asked == ["theirs"]


def test_problems_of_many_nodes_name_ten_and_count_the_others() -> None:
    uuids = {names.root_uuid(f"cn-{number:02}"): f"cn-{number:02}" for number in range(12)}
    live = {uuid: Provider(uuid=uuid, name=name, root_uuid=uuid) for uuid, name in uuids.items()}
    asked = about(AskedDriver(**dict.fromkeys(uuids.values(), True)), live=live)

    asked.keep(uuids)

    (problem,) = asked.problems
    assert problem.count == 12
    assert problem.names == tuple(sorted(uuids.values()))
    assert "cn-09 and 2 more" in str(problem)
    assert "cn-10" not in str(problem)
