"""Faults of one tree in a fleet, and owner traits that another client adds before our write."""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest

from tests.lab.cycles import Publishing, allocate, contents
from tests.lab.drivers import Edit, also, flat, moves_vgpus, with_children, with_gpu_below
from tests.lab.faults import BAD_REQUEST, FAULTS, Interceptor, Request, Where
from tests.lab.moments import Moment, Moments
from tests.lab.placement import PlacementFixture, adapter_to
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.driver import Allocations
from wharfinger.exceptions import (
    ConcurrentUpdate,
    OwnershipConflict,
    PermissionRefused,
    PlacementError,
    UnexpectedAnswer,
)
from wharfinger.placement.embedded import EmbeddedPlacement
from wharfinger.providers import ProviderTree

pytestmark = pytest.mark.usefixtures("no_waiting")

ACME = "CUSTOM_OWNER_ACME"
FLEET = [f"node-{number}" for number in range(6)]
#: The node whose requests fail: one of the fleet, or a new one.
VICTIM, NEW = "node-3", "node-6"


class Intercepted(PlacementFixture):
    """An empty Placement whose new clients reach it through an interceptor."""

    def __init__(self, service: EmbeddedPlacement, interceptor: Interceptor) -> None:
        super().__init__(service)
        self.interceptor = interceptor

    def new_client(self) -> WritingClient:
        """A client over HTTP."""
        return WritingClient(adapter_to(self.interceptor.url), connections=4)


@dataclass(frozen=True)
class Published:
    """A driver instance that has published six nodes, and a snapshot of that state."""

    publishing: Publishing
    interceptor: Interceptor
    moments: Moments
    moment: Moment


@pytest.fixture(scope="module")
def published(
    where: str, placement_service: EmbeddedPlacement, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Published]:
    state_path = tmp_path_factory.mktemp("state")
    with (
        Interceptor(placement_service.application) as interceptor,
        Intercepted(placement_service, interceptor) as placement,
        Publishing(placement, state_path) as publishing,
    ):
        publishing.driver.nodes |= {name: flat(CUSTOM_GOLD=1) for name in FLEET}
        assert not publishing.cycle.sync().problems
        moments = Moments(state_path)
        yield Published(publishing, interceptor, moments, moments.take())


@pytest.fixture
def fleet(placement: PlacementFixture, published: Published) -> Publishing:
    """The published driver instance, set back to its snapshot, behind a request interceptor."""
    published.interceptor.expect()
    published.moments.go_back(published.moment)
    fleet = published.publishing
    fleet.driver.nodes = {name: flat(CUSTOM_GOLD=1) for name in FLEET}
    fleet.restarted()
    return fleet


@pytest.fixture
def interceptor(published: Published) -> Interceptor:
    return published.interceptor


# One tree of many.

FAULTS_OF_ONE = {
    "400": (BAD_REQUEST, PlacementError, 400),
    "409 always": (FAULTS["409 always"], ConcurrentUpdate, 409),
    "500": (FAULTS["500"], PlacementError, 500),
    "nonsense": (replace(FAULTS["nonsense when done"], carried_out=()), UnexpectedAnswer, 200),
}


def _is_read(request: Request, victim: str) -> bool:
    return request.method == "GET" and f"/{victim}/" in request.path


def _is_creation(request: Request, victim: str) -> bool:
    return str(request) == "POST /resource_providers" and f'"{NEW}"' in request.body


def _is_of_traits(request: Request, victim: str) -> bool:
    return str(request) == f"PUT /resource_providers/{victim}/traits"


def _is_of_inventories(request: Request, victim: str) -> bool:
    if str(request) == "POST /reshaper":
        return victim in request.body
    return str(request) == f"PUT /resource_providers/{victim}/inventories"


REQUESTS: dict[str, Callable[[Request, str], bool]] = {
    "read": _is_read,
    "create": _is_creation,
    "traits": _is_of_traits,
    "inventories": _is_of_inventories,
}


@pytest.mark.drawn(4)
@pytest.mark.parametrize("name", FAULTS_OF_ONE)
@pytest.mark.parametrize("kind", REQUESTS)
def test_fault_of_one_tree_leaves_the_others_alone(
    placement: PlacementFixture, fleet: Publishing, interceptor: Interceptor, kind: str, name: str
) -> None:
    fault, error, status = FAULTS_OF_ONE[name]
    victim = NEW if kind == "create" else VICTIM
    known = uuid_of(placement, VICTIM)
    change_fleet(fleet)
    if kind == "create":
        fleet.driver.nodes[NEW] = fleet.driver.nodes[VICTIM]
    if kind == "read":
        add_trait(placement.client, known, "CUSTOM_OPERATORS")
    interceptor.expect(at(kind, known), replace(fault, persistent=True))

    outcome = fleet.cycle.sync()

    struck = interceptor.struck
    interceptor.expect()
    assert 1 <= struck <= 20
    (problem,) = outcome.problems
    assert type(problem) is error
    assert problem.status == status
    found = contents(placement)
    for node in set(FLEET) - {victim}:
        assert found[node]["inventories"] == {"CUSTOM_GOLD": (2, 0)}
        assert "HW_CPU_X86_AVX" in found[node]["traits"]
    assert not fleet.cycle.sync().problems
    now = placement.client.get_inventories(uuid_of(placement, victim)).inventories
    assert now["CUSTOM_GOLD"].total == 2
    assert not fleet.cycle.sync().steps
    assert victim in str(problem) or known in str(problem)


def test_permanent_conflict_ends_after_five_attempts(
    placement: PlacementFixture, fleet: Publishing, interceptor: Interceptor
) -> None:
    victim = uuid_of(placement, VICTIM)
    change_fleet(fleet)
    interceptor.expect(at("traits", victim), FAULTS["409 always"])

    outcome = fleet.cycle.sync()

    seen = list(interceptor.seen)
    interceptor.expect()
    assert [type(problem) for problem in outcome.problems] == [ConcurrentUpdate]
    lists = [request for request in seen if request.startswith("GET /resource_providers?required")]
    assert len(lists) == 5
    # Nothing is written twice.
    others = [request for request in seen if request.startswith("PUT") and victim not in request]
    assert len(others) == len(set(others))


def test_reshape_without_service_role_is_refused_with_its_reason(
    placement: PlacementFixture,
    fleet: Publishing,
    interceptor: Interceptor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet.driver.nodes["cn"] = flat(VCPU=8, VGPU=4)
    fleet.cycle.sync()
    allocate(placement, str(uuid.uuid4()), cn={"VGPU": 1})
    before = contents(placement)
    fleet.driver.nodes["cn"] = moves_vgpus
    monkeypatch.setattr(interceptor, "roles", ("admin",))

    (problem,) = fleet.cycle.sync().problems

    assert isinstance(problem, PermissionRefused)
    assert "POST /reshaper (cn): 403" in str(problem)
    assert "it needs the service role" in str(problem)
    found = contents(placement)
    assert found["cn"] == before["cn"]
    assert found["gpu"]["inventories"] == {}


def at(kind: str, victim: str) -> Where:
    """Return a predicate for requests of this kind about this provider."""
    return lambda request: REQUESTS[kind](request, victim)


def uuid_of(placement: PlacementFixture, name: str) -> str:
    (found,) = placement.client.list_providers(name=name)
    return found.uuid


def change_fleet(fleet: Publishing) -> None:
    for name in FLEET:
        fleet.driver.nodes[name] = _faster


def _faster(tree: ProviderTree, node: str, allocations: Allocations | None) -> None:
    flat(CUSTOM_GOLD=2)(tree, node, allocations)
    tree.add_traits(node, "HW_CPU_X86_AVX")


def add_trait(client: WritingClient, provider: str, trait: str) -> None:
    """Add a trait to a provider as another client."""
    client.create_trait(trait)
    found = client.get_traits(provider)
    client.set_traits(provider, found.resource_provider_generation, found.traits | {trait})


# Another owner's trait, added between our read and our write.

HOST = with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}})


def _renamed(publishing: Publishing, placement: PlacementFixture) -> None:
    found = contents(placement)
    placement.client.update_provider(found["gpu"]["uuid"], "renamed", found["cn"]["uuid"])


def _moved(publishing: Publishing, placement: PlacementFixture) -> None:
    publishing.driver.nodes["cn"] = with_gpu_below("card")
    publishing.cycle.sync()
    publishing.driver.nodes["cn"] = with_gpu_below("cn")


def _gone(publishing: Publishing, placement: PlacementFixture) -> None:
    publishing.driver.nodes["cn"] = with_children({"VCPU": 8}, {})
    publishing.cycle.sync()


def _becomes(edit: Edit) -> Callable[[Publishing, PlacementFixture], None]:
    def change(publishing: Publishing, placement: PlacementFixture) -> None:
        publishing.driver.nodes["cn"] = edit

    return change


CHANGES: dict[str, Callable[[Publishing, PlacementFixture], None]] = {
    "create": _becomes(with_children({"VCPU": 8}, {"gpu": {"VGPU": 4}, "new": {"VGPU": 1}})),
    "traits": _becomes(also(lambda tree: tree.add_traits("gpu", "HW_GPU_API_VULKAN"))(HOST)),
    "inventories": _becomes(with_children({"VCPU": 8}, {"gpu": {"VGPU": 5}})),
    "inventories of two": _becomes(with_children({"VCPU": 9}, {"gpu": {"VGPU": 5}})),
    "aggregates": _becomes(
        also(lambda tree: tree.update_aggregates("gpu", {str(uuid.UUID(int=7))}))(HOST)
    ),
    "rename": _renamed,
    "move": _moved,
    "delete": _gone,
}


@pytest.mark.parametrize("kind", CHANGES)
def test_provider_that_gets_an_owner_trait_between_our_read_and_write_is_not_written(
    publishing: Publishing, placement: PlacementFixture, kind: str
) -> None:
    publishing.driver.nodes["cn"] = HOST
    publishing.cycle.sync()
    CHANGES[kind](publishing, placement)
    steps = publishing.cycle.plan().steps
    victim = next(step.uuid for step in steps if step.name in ("new", "gpu"))
    state_after = takes_over_when_touched(placement, victim)

    outcome = publishing.cycle.sync()

    assert [provider_state(placement, victim)] == state_after
    if kind == "inventories of two":
        assert contents(placement)["cn"]["inventories"] == {"VCPU": (9, 0)}
    if kind == "delete":
        (waiting,) = outcome.pending
        assert (waiting.uuid, ACME in waiting.reason) == (victim, True)
    else:
        (problem,) = outcome.problems
        assert isinstance(problem, OwnershipConflict)
        assert (problem.uuid, problem.other) == (victim, ACME)
    for _ in range(2):
        assert not publishing.restarted().sync().steps
        assert [provider_state(placement, victim)] == state_after


def takes_over_when_touched(placement: PlacementFixture, provider: str) -> list[object]:
    """Let another client add an owner trait to a provider before our next request about it.

    The returned list then gets the state of the provider after that write.
    """
    state_after: list[object] = []

    def take_over() -> None:
        add_trait(placement.new_client(), provider, ACME)
        state_after.append(provider_state(placement, provider))

    placement.adapter.once_before(
        lambda method, path: provider in path or path == "/reshaper", take_over
    )
    return state_after


def provider_state(placement: PlacementFixture, provider: str) -> object:
    """Return a provider's name, parent, traits, aggregates and inventories, with generations."""
    client = placement.new_client()
    return (
        client.list_providers(uuid=provider),
        client.get_traits(provider),
        client.get_aggregates(provider),
        client.get_inventories(provider),
    )
