"""Roots of a disabled service have the trait COMPUTE_STATUS_DISABLED."""

from typing import Any

import pytest

from tests.lab.cycles import HOST, Publishing, contents
from tests.lab.drivers import Edit, also, flat, with_children
from tests.lab.placement import PlacementFixture
from wharfinger.exceptions import BackendError, RemoteError
from wharfinger.objects import AGENT_BINARY, HostState, RecordBatch, Service
from wharfinger.providers import ProviderTree
from wharfinger.providers.plan import SetTraits
from wharfinger.tracker import service_record

DISABLED = "COMPUTE_STATUS_DISABLED"
AGGREGATE = "0b6a5a0c-3f0e-4f0a-8f5e-6a3b9c1d2e4f"


@pytest.fixture
def service(publishing: Publishing) -> Service:
    """The service of a host that publishes the root cn with a child, and the root metal."""
    publishing.driver.nodes = {
        "cn": with_children({"VCPU": 8}, {"gpu": {"VGPU": 2}}),
        "metal": flat(CUSTOM_METAL=1),
    }
    assert not publishing.cycle.sync().problems
    service_record.report(publishing.context, HOST, ["OWNER_NOVA"], complete=True)
    return _service(publishing)


def _service(publishing: Publishing) -> Service:
    return Service.get_by_host_and_binary(publishing.context, HOST, AGENT_BINARY)


def _set(service: Service, disabled: bool) -> None:
    service.disabled = disabled
    service.save()


def _disabled(placement: PlacementFixture) -> set[str]:
    return {name for name, one in contents(placement).items() if DISABLED in one["traits"]}


def test_disabled_service_marks_its_roots_until_it_is_enabled(
    publishing: Publishing, placement: PlacementFixture, service: Service
) -> None:
    before = contents(placement)
    for is_restarted in (False, True):
        _set(_service(publishing), disabled=True)
        assert len(publishing.cycle.plan().steps) == 2
        outcome = publishing.cycle.sync()

        assert _disabled(placement) == {"cn", "metal"}
        assert {type(step) for step in outcome.steps} == {SetTraits}
        assert not publishing.cycle.sync().steps

        _set(_service(publishing), disabled=False)
        enabling = publishing.restarted() if is_restarted else publishing.cycle
        enabling.sync()
        assert contents(placement) == before
        assert not enabling.sync().steps


def _with_traits(edit: Edit, *traits: str) -> Edit:
    def both(tree: ProviderTree, node: str, allocations: Any) -> None:
        edit(tree, node, allocations)
        tree.update_traits(node, traits)

    return both


def test_disabled_service_does_not_mark_the_root_of_another_host(
    publishing: Publishing, placement: PlacementFixture, service: Service
) -> None:
    """The driver publishes only children below the root."""
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


def test_unknown_service_state_keeps_the_trait(
    publishing: Publishing,
    placement: PlacementFixture,
    service: Service,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    get = HostState.get

    def get_unknown(*args: Any, **kwargs: Any) -> HostState:
        state = get(*args, **kwargs)
        state.service_disabled = None
        return state

    publishing.driver.nodes["metal"] = _with_traits(flat(CUSTOM_METAL=1), "HW_CPU_X86_AVX")
    _set(service, disabled=True)
    publishing.cycle.sync()
    monkeypatch.setattr(HostState, "get", get_unknown)

    assert not publishing.cycle.sync().steps
    assert _disabled(placement) == {"cn", "metal"}


@pytest.mark.drawn(1)
@pytest.mark.parametrize("order", [("nfs", "cn"), ("cn", "nfs")])
def test_disabled_service_marks_a_sharing_root_that_another_node_edits(
    publishing: Publishing, placement: PlacementFixture, order: tuple[str, str]
) -> None:
    """The second sync edits the root nfs also for node cn, in either order of the nodes."""
    edits_both = False

    def shares(tree: ProviderTree, node: str, allocations: Any) -> None:
        tree.update_inventory(node, {"DISK_GB": {"total": 100}})
        tree.update_traits(node, ["MISC_SHARES_VIA_AGGREGATE"])
        tree.update_aggregates(node, [AGGREGATE])

    def uses(tree: ProviderTree, node: str, allocations: Any) -> None:
        tree.update_inventory(node, {"VCPU": {"total": 8}})
        tree.update_aggregates(node, [AGGREGATE])
        if edits_both and tree.exists("nfs"):
            tree.update_aggregates("nfs", [AGGREGATE])

    edits = {"nfs": shares, "cn": uses}
    publishing.driver.nodes = {name: edits[name] for name in order}
    assert not publishing.cycle.sync().problems
    service_record.report(publishing.context, HOST, ["OWNER_NOVA"], complete=True)

    _set(_service(publishing), disabled=True)
    publishing.cycle.sync()
    assert _disabled(placement) == {"nfs", "cn"}
    edits_both = True
    publishing.cycle.sync()
    assert _disabled(placement) == {"nfs", "cn"}
    _set(_service(publishing), disabled=False)
    publishing.cycle.sync()
    assert _disabled(placement) == set()
    assert not publishing.cycle.sync().steps


def test_disabled_service_with_a_failing_driver_marks_its_roots(
    publishing: Publishing,
    placement: PlacementFixture,
    service: Service,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def is_away(*_: object) -> None:
        raise RemoteError(reason="it is away")

    publishing.driver.nodes["metal"] = also(lambda tree: tree.reserve("metal", "cleaning"))(
        flat(CUSTOM_METAL=1)
    )
    publishing.cycle.sync()
    before = contents(placement)
    assert before["metal"]["inventories"] == {"CUSTOM_METAL": (1, 1)}
    publishing.driver.fails = True
    placement.requests.clear()
    with pytest.raises(BackendError):
        publishing.cycle.sync()
    assert not placement.requests.seen

    _set(service, disabled=True)
    with monkeypatch.context() as patched, pytest.raises(BackendError):
        patched.setattr(RecordBatch, "save", is_away)
        publishing.cycle.sync()
    with pytest.raises(BackendError):
        publishing.cycle.sync()
    assert _disabled(placement) == {"cn", "metal"}
    assert contents(placement)["metal"]["inventories"] == before["metal"]["inventories"]
    placement.requests.clear()
    with pytest.raises(BackendError):
        publishing.restarted().sync()
    assert not placement.requests.seen

    # The driver's reservations are unknown until it answers: roots and inventories stay unchanged.
    _set(_service(publishing), disabled=False)
    with pytest.raises(BackendError):
        publishing.cycle.sync()
    assert _disabled(placement) == {"cn", "metal"}
    publishing.driver.fails = False
    publishing.cycle.sync()
    assert contents(placement) == before


def test_disabled_service_marks_a_failing_node_beside_a_working_one(
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


def test_failing_driver_does_not_reset_the_absence_of_a_node(
    publishing: Publishing, placement: PlacementFixture, service: Service
) -> None:
    publishing.removal_delay = 3600
    cycle = publishing.restarted()
    publishing.driver.nodes = {"cn": publishing.driver.nodes["cn"]}
    cycle.sync()
    (metal,) = placement.client.list_providers(name="metal")
    absence = publishing.store.records[metal.uuid].absence
    assert absence
    _set(service, disabled=True)

    cycle.sync()

    assert publishing.store.records[metal.uuid].absence == absence
    assert _disabled(placement) == {"cn"}
