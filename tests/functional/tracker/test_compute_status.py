"""A disabled service says so on its roots, and an enabled one takes it back."""

from typing import Any

import pytest

from tests.lab.cycles import HOST, Publishing, contents
from tests.lab.drivers import Edit, flat, with_children
from tests.lab.placement import PlacementFixture
from wharfinger.exceptions import BackendError
from wharfinger.objects import Service
from wharfinger.providers import ProviderTree
from wharfinger.providers.plan import SetTraits
from wharfinger.tracker import services

DISABLED = "COMPUTE_STATUS_DISABLED"
AGGREGATE = "0b6a5a0c-3f0e-4f0a-8f5e-6a3b9c1d2e4f"


@pytest.fixture
def service(publishing: Publishing) -> Service:
    """The service of the host that publishes a root with a child, and a flat one."""
    publishing.driver.nodes = {
        "cn": with_children({"VCPU": 8}, {"gpu": {"VGPU": 2}}),
        "metal": flat(CUSTOM_METAL=1),
    }
    assert not publishing.cycle.sync().problems
    services.report(publishing.context, HOST, ["OWNER_NOVA"], complete=True)
    return _service(publishing)


def _service(publishing: Publishing) -> Service:
    return Service.get_by_host_and_binary(publishing.context, HOST, services.BINARY)


def _set(service: Service, disabled: bool) -> None:
    service.disabled = disabled
    service.save()


def _disabled(placement: PlacementFixture) -> set[str]:
    return {name for name, one in contents(placement).items() if DISABLED in one["traits"]}


def test_its_roots_say_so_within_one_cycle(
    publishing: Publishing, placement: PlacementFixture, service: Service
) -> None:
    _set(service, disabled=True)

    outcome = publishing.cycle.sync()

    assert _disabled(placement) == {"cn", "metal"}
    assert {type(step) for step in outcome.steps} == {SetTraits}
    assert not publishing.cycle.sync().steps


def test_enabled_they_say_it_no_more_and_are_as_before(
    publishing: Publishing, placement: PlacementFixture, service: Service
) -> None:
    before = contents(placement)
    _set(service, disabled=True)
    publishing.cycle.sync()
    _set(_service(publishing), disabled=False)

    publishing.cycle.sync()

    assert contents(placement) == before
    assert not publishing.cycle.sync().steps


def test_a_process_that_starts_later_takes_it_back_too(
    publishing: Publishing, placement: PlacementFixture, service: Service
) -> None:
    _set(service, disabled=True)
    publishing.cycle.sync()
    _set(_service(publishing), disabled=False)

    publishing.restarted().sync()

    assert _disabled(placement) == set()


def test_a_dry_run_shows_it(publishing: Publishing, service: Service) -> None:
    _set(service, disabled=True)

    assert len(publishing.cycle.plan().steps) == 2


def test_what_another_put_there_stays(
    publishing: Publishing, placement: PlacementFixture, service: Service
) -> None:
    root = placement.client.list_providers(name="cn")[0]
    traits = placement.client.get_traits(root.uuid)
    placement.client.set_traits(
        root.uuid, traits.resource_provider_generation, {*traits.traits, DISABLED}
    )
    _set(service, disabled=True)
    publishing.cycle.sync()
    _set(_service(publishing), disabled=False)

    publishing.cycle.sync()

    assert _disabled(placement) == {"cn"}


def test_what_the_driver_says_stays(
    publishing: Publishing, placement: PlacementFixture, service: Service
) -> None:
    publishing.driver.nodes["metal"] = _with_traits(flat(CUSTOM_METAL=1), DISABLED)
    publishing.cycle.sync()
    assert _disabled(placement) == {"metal"}

    publishing.driver.nodes["metal"] = flat(CUSTOM_METAL=1)
    publishing.cycle.sync()

    assert _disabled(placement) == set()


def _with_traits(edit: Edit, *traits: str) -> Edit:
    def both(tree: ProviderTree, node: str, allocations: Any) -> None:
        edit(tree, node, allocations)
        tree.update_traits(node, traits)

    return both


def test_another_hosts_root_is_left_alone(
    publishing: Publishing, placement: PlacementFixture, service: Service
) -> None:
    """A driver that only has children below it says nothing of it."""
    publishing.driver.nodes = {"cn": with_children({"VCPU": 8}, {"gpu": {"VGPU": 2}})}
    other = placement.client.create_provider(
        "7d2f1b64-0f1c-4a34-9f5e-3d0c3a3f2c11", "others-root", None
    )

    def below(tree: ProviderTree, node: str, allocations: Any) -> None:
        if not tree.exists("ours"):
            tree.new_child("ours", node)
        tree.update_inventory("ours", {"FPGA": {"total": 1}})

    publishing.driver.nodes[other.name] = below
    _set(service, disabled=True)

    publishing.cycle.sync()

    assert _disabled(placement) == {"cn"}


def test_where_it_is_not_known_they_say_what_they_said(
    publishing: Publishing,
    placement: PlacementFixture,
    service: Service,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publishing.driver.nodes["metal"] = _with_traits(flat(CUSTOM_METAL=1), "HW_CPU_X86_AVX")
    _set(service, disabled=True)
    publishing.cycle.sync()
    unknown = _service(publishing)
    delattr(unknown, "_obj_disabled")
    monkeypatch.setattr(Service, "get_by_host_and_binary", lambda *_key: unknown)
    assert services.is_disabled(publishing.context, HOST) is None

    assert not publishing.cycle.sync().steps
    assert _disabled(placement) == {"cn", "metal"}


@pytest.mark.parametrize("order", [("nfs", "cn"), ("cn", "nfs")])
def test_a_root_that_shares_says_so_though_another_node_speaks_of_it(
    publishing: Publishing, placement: PlacementFixture, order: tuple[str, str]
) -> None:
    """Both ways, from a node that begins to speak of it while it says so."""
    speaks = False

    def shares(tree: ProviderTree, node: str, allocations: Any) -> None:
        tree.update_inventory(node, {"DISK_GB": {"total": 100}})
        tree.update_traits(node, ["MISC_SHARES_VIA_AGGREGATE"])
        tree.update_aggregates(node, [AGGREGATE])

    def uses(tree: ProviderTree, node: str, allocations: Any) -> None:
        tree.update_inventory(node, {"VCPU": {"total": 8}})
        tree.update_aggregates(node, [AGGREGATE])
        if speaks and tree.exists("nfs"):
            tree.update_aggregates("nfs", [AGGREGATE])

    edits = {"nfs": shares, "cn": uses}
    publishing.driver.nodes = {name: edits[name] for name in order}
    assert not publishing.cycle.sync().problems
    services.report(publishing.context, HOST, ["OWNER_NOVA"], complete=True)

    _set(_service(publishing), disabled=True)
    publishing.cycle.sync()
    assert _disabled(placement) == {"nfs", "cn"}
    speaks = True
    publishing.cycle.sync()
    assert _disabled(placement) == {"nfs", "cn"}
    _set(_service(publishing), disabled=False)
    publishing.cycle.sync()
    assert _disabled(placement) == set()
    assert not publishing.cycle.sync().steps


def test_a_host_whose_driver_fails_is_disabled_all_the_same(
    publishing: Publishing, placement: PlacementFixture, service: Service
) -> None:
    before = contents(placement)
    publishing.driver.fails = True
    placement.requests.clear()
    with pytest.raises(BackendError):
        publishing.cycle.sync()
    assert not placement.requests.seen

    _set(service, disabled=True)
    with pytest.raises(BackendError):
        publishing.cycle.sync()
    assert _disabled(placement) == {"cn", "metal"}
    placement.requests.clear()
    with pytest.raises(BackendError):
        publishing.restarted().sync()
    assert not placement.requests.seen

    # What it would say by itself is not known: it stays until the driver can be asked.
    _set(_service(publishing), disabled=False)
    with pytest.raises(BackendError):
        publishing.cycle.sync()
    assert _disabled(placement) == {"cn", "metal"}
    publishing.driver.fails = False
    publishing.cycle.sync()
    assert contents(placement) == before


def test_a_node_that_fails_is_disabled_beside_one_that_does_not(
    publishing: Publishing, placement: PlacementFixture, service: Service
) -> None:
    works = publishing.driver.nodes["cn"]

    def breaks(tree: ProviderTree, node: str, allocations: Any) -> None:
        raise RuntimeError("no answer")

    publishing.driver.nodes["cn"] = breaks
    _set(service, disabled=True)

    outcome = publishing.cycle.sync()

    assert [type(problem) for problem in outcome.problems] == [BackendError]
    assert len(outcome.steps) == 2
    assert _disabled(placement) == {"cn", "metal"}
    publishing.driver.nodes["cn"] = works
    assert not publishing.cycle.sync().steps


def test_a_reserved_root_stays_reserved_while_its_driver_fails(
    publishing: Publishing, placement: PlacementFixture, service: Service
) -> None:
    def cleaned(tree: ProviderTree, node: str, allocations: Any) -> None:
        flat(CUSTOM_METAL=1)(tree, node, allocations)
        tree.reserve(node, "cleaning")

    publishing.driver.nodes["metal"] = cleaned
    publishing.cycle.sync()
    publishing.driver.fails = True
    _set(service, disabled=True)
    with pytest.raises(BackendError):
        publishing.cycle.sync()
    assert contents(placement)["metal"]["inventories"] == {"CUSTOM_METAL": (1, 1)}

    publishing.driver.fails = False
    publishing.driver.nodes["metal"] = flat(CUSTOM_METAL=1)
    publishing.cycle.sync()

    assert contents(placement)["metal"]["inventories"] == {"CUSTOM_METAL": (1, 0)}
    assert _disabled(placement) == {"cn", "metal"}


def test_how_long_a_node_is_absent_is_not_forgotten(
    publishing: Publishing, placement: PlacementFixture, service: Service
) -> None:
    publishing.removal_delay = 3600
    cycle = publishing.restarted()
    publishing.driver.nodes = {"cn": publishing.driver.nodes["cn"]}
    cycle.sync()
    (metal,) = placement.client.list_providers(name="metal")
    since = publishing.memory.records[metal.uuid].absent_since
    assert since
    _set(service, disabled=True)

    cycle.sync()

    assert publishing.memory.records[metal.uuid].absent_since == since
    assert _disabled(placement) == {"cn"}
