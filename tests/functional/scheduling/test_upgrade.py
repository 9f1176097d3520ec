"""Candidates during an upgrade, host by host, from a release that does not tag providers.

Two hosts publish VGPUs for nova with real cycles; each host also has a VGPU of Cyborg. Each step of
the upgrade must offer the same VGPUs of nova for a flavor, and never a VGPU of Cyborg.
"""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import fixtures
import pytest

from tests.functional.scheduling.searching import (
    BEFORE,
    CACHE_TIME,
    CYBORG,
    NOVA,
    Searching,
)
from tests.lab import samples
from tests.lab.cycles import Publishing
from tests.lab.drivers import does_not_answer, with_children
from tests.lab.placement import PlacementFixture, lower
from tests.lab.samples import uuid
from wharfinger.objects import AGENT_BINARY, OWNER_TAG_VERSION, Service
from wharfinger.providers import Inventory
from wharfinger.scheduling.candidates import CandidateSearch
from wharfinger.scheduling.flavor_request import from_flavor
from wharfinger.scheduling.owner_tagging_gates import Gates
from wharfinger.tracker import service_record


class Host(fixtures.Fixture):
    """A host with a VGPU of nova and one of Cyborg, and the program that publishes the first."""

    def __init__(self, searching: Searching, name: str) -> None:
        super().__init__()
        self.name = name
        self.service = f"host-{name}"
        self.foreign = uuid(f"cyborg's below {name}")
        self._gpu = f"gpu-{name}"
        self._searching = searching
        self._client = searching.placement.client
        self._context = searching.kept.context

    def _setUp(self) -> None:
        self._publish_as("before")
        self._published = {
            one.name: one.uuid
            for name in (f"cn-{self.name}", self._gpu)
            for one in self._client.list_providers(name=name)
        }
        root = self._published[f"cn-{self.name}"]
        foreign = self._client.create_provider(self.foreign, f"cyborg-{self.name}", root)
        generation = self._client.set_traits(foreign.uuid, foreign.generation, [CYBORG])
        self._client.set_inventories(foreign.uuid, generation, {"VGPU": Inventory(total=4)})
        Service(
            self._context,
            host=self.service,
            binary=AGENT_BINARY,
            owners=[NOVA],
            version=BEFORE,
        ).create()
        self._strip()

    @property
    def own(self) -> str:
        """Return the uuid of the provider of nova's VGPUs."""
        return self._published[self._gpu]

    @property
    def traits(self) -> list[frozenset[str]]:
        """Return the traits of all providers that the host publishes for nova."""
        return [self._client.get_traits(uuid).traits for uuid in self._published.values()]

    @property
    def version(self) -> int:
        found = Service.get_by_host_and_binary(self._context, self.service, AGENT_BINARY)
        return found.version

    def _publish_as(self, state: str) -> None:
        """Publish with a new state directory of this name."""
        directory = self._searching.directory / f"{self.name}-{state}"
        self.publishing = self.useFixture(
            Publishing(self._searching.placement, directory, name=f"gpus-{self.name}")
        )
        self.publishing.driver.nodes[f"cn-{self.name}"] = with_children(
            {"VCPU": 8, "MEMORY_MB": 4096}, {self._gpu: {"VGPU": 4}}
        )
        assert not self.publishing.cycle.sync().problems

    def _strip(self) -> None:
        """Remove our traits, because the former release does not set them."""
        marks = self.publishing.publisher.traits
        for one in self._published.values():
            found = self._client.get_traits(one)
            self._client.set_traits(one, found.resource_provider_generation, found.traits - marks)

    def cycle(self) -> None:
        """Run a cycle of the current release, and report the service as ``sync`` does."""
        outcome = self.publishing.restarted().sync()
        service_record.report(self._context, self.service, {NOVA}, complete=not outcome.problems)

    def upgrade(self) -> None:
        """Run a cycle of the current release with the records of the former one."""
        self.cycle()

    def downgrade(self) -> None:
        """Downgrade to the former release: first the service's row, then the providers."""
        self._searching.kept.write("services", {"version": BEFORE}, host=self.service)
        self._strip()


class Asking:
    """Searches for a flavor by a long-running process with a cache, and by a new process."""

    def __init__(self, searching: Searching, hosts: dict[str, Host], specs: dict[str, str]) -> None:
        self._searching = searching
        self._hosts = hosts
        flavor = samples.flavor(None, vcpus=1, extra_specs=specs)
        flavor.obj_set_defaults()
        self._request = from_flavor(flavor)
        self._running = searching.search()

    def offered(self, search: CandidateSearch) -> set[str]:
        """Return the hosts whose VGPU of nova is offered; assert that none of Cyborg is offered."""
        taken = {
            provider
            for candidate in search.find(self._request).candidates
            for provider in candidate.allocations
        }
        assert not taken & {host.foreign for host in self._hosts.values()}
        return {name for name, host in self._hosts.items() if host.own in taken}

    def at_once(self) -> set[str]:
        """Return the hosts offered to the running process, which uses its cache."""
        return self.offered(self._running)

    def works(self) -> bool:
        """Return whether both processes are offered all hosts after the cache has expired."""
        self._searching.clock.advance(CACHE_TIME)
        everything = set(self._hosts)
        return (
            self.offered(self._running) == everything
            and self.offered(self._searching.search()) == everything
        )

    def gate(self) -> bool:
        return Gates(self._searching.kept.context, CACHE_TIME).is_on(NOVA)


@pytest.fixture
def newest() -> str:
    """The newest microversion that Placement has."""
    return "1.39"


@pytest.fixture
def spec() -> str:
    """The extra spec with which the flavor requests a VGPU."""
    return "resources:VGPU"


@pytest.fixture
def searching(
    placement: PlacementFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, newest: str
) -> Iterator[Searching]:
    lower(monkeypatch, newest)
    with Searching(placement, tmp_path) as fixture:
        yield fixture


@pytest.fixture
def hosts(searching: Searching) -> dict[str, Host]:
    """Both hosts, which run the former release."""
    return {name: searching.useFixture(Host(searching, name)) for name in "ab"}


@pytest.fixture
def asking(searching: Searching, hosts: dict[str, Host], spec: str) -> Asking:
    return Asking(searching, hosts, {spec: "1"})


@pytest.fixture
def changes(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """A function that returns the log lines about gates since its last call, shortened."""
    caplog.set_level(logging.INFO, logger="wharfinger.scheduling.owner_tagging_gates")

    def told() -> list[str]:
        lines = [
            f"{record.levelname} {record.getMessage().partition(':')[0]}"
            for record in caplog.records
            if record.name == "wharfinger.scheduling.owner_tagging_gates"
        ]
        caplog.clear()
        return lines

    return told


@pytest.mark.drawn(1)
@pytest.mark.parametrize("spec", ["resources:VGPU", "resources_GPU:VGPU"])
@pytest.mark.parametrize("newest", ["1.39", "1.33"])
def test_upgrade_host_by_host_offers_the_same_providers_at_each_step(
    hosts: dict[str, Host], asking: Asking
) -> None:
    # Both hosts run the former release.
    assert not any(NOVA in traits for host in hosts.values() for traits in host.traits)
    assert not asking.gate()
    assert asking.works()

    hosts["a"].upgrade()
    assert all(NOVA in traits for traits in hosts["a"].traits)
    assert [host.version for host in hosts.values()] == [OWNER_TAG_VERSION, BEFORE]
    assert asking.at_once() == {"a", "b"}
    assert not asking.gate()
    assert asking.works()

    hosts["b"].upgrade()
    assert all(NOVA in traits for host in hosts.values() for traits in host.traits)
    assert [host.version for host in hosts.values()] == [OWNER_TAG_VERSION] * 2
    assert asking.at_once() == {"a", "b"}
    assert asking.gate()
    assert asking.works()

    # Downgrade one host: its service row changes before its providers.
    hosts["b"].downgrade()
    assert asking.at_once() == {"a"}  # in the cache the gate is still on
    assert not asking.gate()
    assert asking.works()

    hosts["b"].upgrade()
    assert asking.at_once() == {"a", "b"}
    assert asking.gate()
    assert asking.works()


def test_host_of_the_former_release_may_join_again(
    searching: Searching,
    hosts: dict[str, Host],
    asking: Asking,
    changes: Callable[[], list[str]],
) -> None:
    for host in hosts.values():
        host.upgrade()
    assert asking.works()
    assert set(changes()) == {"INFO The gate of OWNER_NOVA is on"}

    hosts["c"] = searching.useFixture(Host(searching, "c"))
    assert asking.at_once() == {"a", "b"}  # in the cache the gate is still on
    searching.clock.advance(CACHE_TIME)
    assert asking.at_once() == {"a", "b", "c"}
    assert changes() == ["WARNING The gate of OWNER_NOVA is off"]
    assert asking.works()
    assert set(changes()) <= {
        "INFO The gate of OWNER_NOVA is off"
    }  # a new process logs the first state

    hosts["c"].upgrade()
    assert asking.at_once() == {"a", "b", "c"}
    searching.clock.advance(CACHE_TIME)
    assert asking.at_once() == {"a", "b", "c"}
    assert changes() == ["INFO The gate of OWNER_NOVA is on"]
    assert asking.works()


def test_host_that_fails_in_its_first_cycle_keeps_the_gate_off(
    hosts: dict[str, Host], asking: Asking
) -> None:
    hosts["a"].upgrade()
    driver = hosts["b"].publishing.driver
    published = driver.nodes[f"cn-{hosts['b'].name}"]
    for tagged in (False, True):
        # First the host's node fails, then another one.
        driver.nodes["cn-b"] = published if tagged else does_not_answer
        driver.nodes["other"] = does_not_answer

        hosts["b"].cycle()

        assert all((NOVA in traits) is tagged for traits in hosts["b"].traits)
        assert hosts["b"].version == BEFORE
        assert not asking.gate()
        assert asking.works()

    del driver.nodes["other"]
    hosts["b"].cycle()
    assert asking.gate()
    assert asking.works()

    # The gate stays on if a host fails after it has tagged everything once.
    driver.nodes["other"] = does_not_answer
    hosts["b"].cycle()
    assert asking.gate()
    assert asking.works()


def test_deleted_service_does_not_keep_the_gate_off(
    searching: Searching, hosts: dict[str, Host], asking: Asking
) -> None:
    hosts["a"].upgrade()
    assert not asking.gate()

    Service.get_by_host_and_binary(
        searching.kept.context, hosts["b"].service, AGENT_BINARY
    ).destroy()

    searching.clock.advance(CACHE_TIME)
    assert asking.gate()
    assert asking.at_once() == {"a"}
