"""Counts in explanations agree with the contents of Placement.

The real Placement has random trees of providers (forests). The tests compare each count with one
that is computed provider by provider, and the candidates with Placement's own answer.
"""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.functional.scheduling import funnels
from tests.functional.scheduling.searching import asked
from tests.lab import forests, samples
from tests.lab import placement as lab
from tests.lab.brute_force import (
    UNNUMBERED,
    Providers,
    candidates,
    owner_rule,
)
from tests.lab.drawing import Draw
from tests.lab.forests import Stock
from tests.lab.objects import KeptInFile
from tests.lab.placement import PlacementFixture
from tests.lab.samples import service
from wharfinger.conf import parse
from wharfinger.exceptions import MicroversionUnsupported
from wharfinger.objects import OWNER_TAG_VERSION, ProviderRecordList
from wharfinger.placement.embedded import EmbeddedPlacement
from wharfinger.placement.trait_conditions import TraitConditions
from wharfinger.providers import Inventory
from wharfinger.providers.provider import Provider, encode
from wharfinger.scheduling import (
    RequestGroup,
    ResourceRequest,
    explainer,
    fact_collector,
    provider_inventories,
)
from wharfinger.scheduling.explainer import Explaining
from wharfinger.scheduling.explanation import Explanation, Held, Misfit, Reason, Short, Step
from wharfinger.scheduling.provider_details import UNSAID
from wharfinger.scheduling.request_filters import Surroundings, loader

FORESTS = int(os.environ.get("WHARFINGER_FORESTS") or 0)
SHORT_VERSION = 40
REQUESTS_OF_EACH = 4

NOVA, CYBORG, ACME, NEWBORN = forests.OWNERS
FAST = "CUSTOM_FAST"
DISABLED = "COMPUTE_STATUS_DISABLED"
#: The uuids of all providers that a forest may have.
EVERYBODY = {forests.Provider(number, None, frozenset(), {}).uuid for number in range(200)}
#: More providers than the explainer reads one by one.
MANY = 3 * provider_inventories.LOOKED_AT
SINCE = datetime(2031, 5, 1, 12, tzinfo=UTC)


@dataclass(frozen=True, repr=False)
class World:
    """A Placement with a forest, in which the gates of nova and ACME are on."""

    placement: PlacementFixture
    kept: KeptInFile

    def get(self, path: str) -> Any:
        answer = self.placement.adapter.request(path, "GET", microversion="1.39", raise_exc=False)
        assert answer.status_code == 200, f"{path}: {answer.text}"
        return answer.json()

    def explain(
        self, request: ResourceRequest, untagged: str = "forbid", *names: str
    ) -> Explanation:
        """Return the explanation with these filters, by default the owner filter."""
        conf = parse([])
        conf.set_override("untagged", untagged, "scheduling")
        client = self.placement.new_client()
        surroundings = Surroundings(conf, client, self.kept.context)
        filters = loader.load(names or ("owner",), surroundings)
        return Explaining(client, filters, self.kept.context).explain(request)

    def requests_for(self, request: ResourceRequest) -> tuple[Explanation, int]:
        """Return the explanation and the number of its requests."""
        self.placement.requests.clear()
        told = self.explain(request)
        return told, len(self.placement.requests)

    def publish(self, *providers: forests.Provider) -> None:
        forests.empty()
        forests.publish(providers)

    def remembers(
        self,
        *providers: forests.Provider,
        reasons: tuple[str, ...] = (),
        generation: int = 1,
        host: str = "host-a",
    ) -> None:
        """Store records of providers, with these reasons of the driver to reserve them.

        An unchanged provider has generation 1.
        """
        since = dict.fromkeys(reasons, SINCE.timestamp())
        records = [
            samples.record(
                provider_uuid=one.uuid,
                live=encode(replace(_as_seen(one), generation=generation)),
                applied=None,
                reservations=list(reasons),
                reserved_since=since,
            )
            for one in providers
        ]
        listed = ProviderRecordList(objects=records)
        ProviderRecordList.replace(
            self.kept.context,
            host,
            "metal",
            listed,
            EVERYBODY - {one.uuid for one in providers},
        )


@pytest.fixture(scope="module")
def world(
    placement_service: EmbeddedPlacement, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    with PlacementFixture(placement_service) as placement:
        kept = placement.useFixture(KeptInFile(tmp_path_factory.mktemp("objects")))
        yield World(placement, kept)
        forests.empty()


@pytest.fixture(autouse=True)
def new(world: World) -> Iterator[None]:
    """Give the world a database that has only services."""
    with world.kept.in_use():
        owners = [NOVA, ACME]
        service(world.kept.context, owners=owners, version=OWNER_TAG_VERSION).create()
        yield


def test_counts_of_random_requests_match_placement(world: World, draw: Draw) -> None:
    ends: Counter[str] = Counter()

    @settings(
        max_examples=FORESTS or draw.number(SHORT_VERSION, some=3),
        derandomize=not FORESTS,
        database=None,
        deadline=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def in_any_forest(data: st.DataObject) -> None:
        ends.update(_explained_in_a_forest(world, data))

    in_any_forest()
    print(dict(ends))
    # The test proves little if all explanations end at the same step.
    assert {"found", "owner"} <= ends.keys()


def _explained_in_a_forest(world: World, data: st.DataObject) -> Iterator[str]:
    """Explain requests in a random forest; yield the step at which each explanation ended."""
    forest = data.draw(forests.forests(), "forest")
    untagged = data.draw(st.sampled_from(("forbid", "allow")), "untagged")
    rule = owner_rule(
        untagged_allowed=untagged == "allow", gate_of=lambda owner: owner in (NOVA, ACME)
    )
    forests.empty()
    forests.publish(forest)
    remembered = [one for one in forest if data.draw(st.booleans(), "is remembered")]
    if data.draw(st.booleans(), "has changed since"):
        world.remembers(*map(_otherwise, remembered), generation=0)
    else:
        world.remembers(*remembered)
    providers = Providers.read(world.get)
    for _ in range(REQUESTS_OF_EACH):
        request = data.draw(forests.requests(forest), "request")
        if len(request.groups.keys() - {UNNUMBERED}) > 1 and data.draw(st.booleans(), "isolate"):
            request = replace(request, group_policy="isolate")

        told = world.explain(asked(request), untagged)

        assert [counts(part) for part in told.parts] == [
            funnels.of_part(providers, *part, rule) for part in funnels.parts(request)
        ]
        there = {str(stage.step): stage.count for stage in told.trees}
        expected = funnels.of_trees(providers, request, rule)
        # If a step leaves no tree, the explanation has no further steps.
        assert there == {step: expected[step] for step in list(expected)[: len(there)]}
        assert not any(list(expected.values())[len(there) :])
        assert told.candidates == len(candidates(providers, request, rule))
        yield _end(told)


def _end(told: Explanation) -> str:
    if told.candidates:
        return "found"
    for part in told.parts:
        if not part.survivors:
            return next(str(stage.step) for stage in part.stages if not stage.count)
    return str(told.trees[-1].step)


def counts(part: Any) -> funnels.Counts:
    return {str(stage.step): stage.count for stage in part.stages}


# Fleets, and their requests.


def host(number: int, *traits: str, parent: int | None = None, **stocks: Stock) -> forests.Provider:
    return forests.Provider(number, parent, frozenset((NOVA, *traits)), stocks)


def gpus(count: int, **stock: int) -> list[forests.Provider]:
    return [host(number, VGPU=Stock(**{"total": 4, **stock})) for number in range(count)]


def _otherwise(one: forests.Provider) -> forests.Provider:
    """Return the provider with its free classes reserved, and its reserved classes free."""
    stocks = {
        kind: replace(its, reserved=0 if its.reserved else its.total)
        for kind, its in one.inventories.items()
    }
    return replace(one, inventories=stocks)


def _as_seen(one: forests.Provider) -> Provider:
    """Return a provider as its driver instance recorded it."""
    inventories = {
        kind: Inventory(
            total=its.total, reserved=its.reserved, max_unit=its.max_unit, step_size=its.step_size
        )
        for kind, its in one.inventories.items()
    }
    return Provider(
        uuid=one.uuid,
        name=f"provider {one.number}",
        root_uuid=one.uuid,
        generation=1,
        inventories=inventories,
        traits=one.traits,
    )


def one_gpu(amount: int = 1, required: str = "", suffix: str = "") -> ResourceRequest:
    traits = TraitConditions.parse([required] if required else [])
    group = RequestGroup(suffix=suffix, resources={"VGPU": amount}, traits=traits, owner=NOVA)
    return ResourceRequest(groups=(group,))


def left(told: Explanation) -> funnels.Counts:
    """Return the number of providers left at each step of the explanation's only part."""
    [part] = told.parts
    return counts(part)


def reasons(told: Explanation) -> list[list[Reason]]:
    """Return the reasons of each nearest miss in the explanation's only part."""
    [part] = told.parts
    return [[it for its in one.reasons.values() for it in its] for one in part.misses]


def test_explanation_of_many_providers_takes_no_more_requests_than_of_ten(world: World) -> None:
    for stock in ({}, {"used": 4}, {"used": 3}, {"reserved": 4}, {"max_unit": 1}, {"step_size": 3}):
        taken = []
        for count in (10, 2 * provider_inventories.LOOKED_AT):
            fleet = gpus(count, **stock)
            world.publish(*fleet)
            world.remembers(*fleet)
            told, requests = world.requests_for(one_gpu(2))
            assert left(told)["class"] == count
            assert told.parts[0].not_looked_at == 0
            taken.append(requests)

        assert taken[0] == taken[1], stock
        # The explainer also reads the inventories of five misses, with up to two requests each.
        assert taken[0] <= 25, stock


def test_explanation_requests_one_list_per_condition(world: World) -> None:
    group = RequestGroup(
        resources={"VGPU": 2},
        traits=TraitConditions.parse(["in:CUSTOM_FAST,CUSTOM_GOLD", "!HW_GPU_API_VULKAN"]),
        member_of=(frozenset([forests.AGGREGATES[0]]),),
        owner=NOVA,
    )
    world.publish(*gpus(3))
    [acme, newborn] = [one for one in sorted(forests.OWNERS) if one.startswith("CUSTOM_")]

    world.requests_for(ResourceRequest(groups=(group,)))

    seen = [one.removeprefix("GET /") for one in world.placement.requests.seen]
    assert seen[:2] == ["traits?name=startswith:OWNER_", "traits?name=startswith:CUSTOM_OWNER_"]
    assert seen[2].startswith("allocation_candidates?resources=VGPU:2&required=")
    assert seen[3:] == [
        "resource_providers",
        "resource_providers?required=in:CUSTOM_FAST,CUSTOM_GOLD",
        "resource_providers?required=HW_GPU_API_VULKAN",
        "resource_providers?required=MISC_SHARES_VIA_AGGREGATE",
        f"resource_providers?member_of=in:{forests.AGGREGATES[0]}",
        *seen[:2],
        f"resource_providers?required={acme}",
        f"resource_providers?required={newborn}",
        "resource_providers?required=OWNER_CYBORG",
        "resource_providers?required=OWNER_NOVA",
        "allocation_candidates?resources=VGPU:2",
        "allocation_candidates?resources=VGPU:1",
    ]


def test_unrecorded_fleet_is_read_up_to_the_limit(world: World) -> None:
    world.publish(*gpus(MANY, reserved=4))

    told, requests = world.requests_for(one_gpu())

    assert left(told)["class"] == provider_inventories.LOOKED_AT
    assert told.parts[0].not_looked_at == MANY - provider_inventories.LOOKED_AT
    assert requests < provider_inventories.LOOKED_AT + 20
    assert reasons(told)[0] == [Held("VGPU", ())]


USED_UP, RESERVED = ({"used": 4}, {"reserved": 4})


@pytest.mark.parametrize(("seen", "now"), [(RESERVED, USED_UP), ({}, RESERVED), ({}, USED_UP)])
def test_provider_changed_since_its_record_is_read(
    world: World, seen: dict[str, int], now: dict[str, int]
) -> None:
    world.remembers(*gpus(12, **seen), generation=0)
    world.publish(*gpus(12, **now))

    told = world.explain(one_gpu())

    reserved = 0 if now == USED_UP else 12
    assert (left(told)["not_reserved"], left(told)["not_used_up"]) == (12 - reserved, 0)
    assert told.parts[0].last_seen == 0
    [some] = {type(reason) for one in reasons(told) for reason in one}
    assert some is (Held if reserved else Short)


def test_changed_fleet_beyond_the_limit_counts_as_recorded(
    world: World,
) -> None:
    world.remembers(*gpus(MANY), generation=0)
    world.publish(*gpus(MANY, used=4))

    told, requests = world.requests_for(one_gpu())

    assert (left(told)["class"], left(told)["not_reserved"]) == (MANY, MANY)
    assert left(told)["not_used_up"] == told.parts[0].not_looked_at == 0
    assert told.parts[0].last_seen == MANY - provider_inventories.LOOKED_AT
    assert requests < provider_inventories.LOOKED_AT + 30


def test_fleet_with_records_of_two_hosts_counts_as_last_recorded(world: World) -> None:
    world.publish(*gpus(MANY, reserved=4))
    world.remembers(*gpus(MANY, reserved=4))
    world.remembers(*gpus(MANY), generation=0, host="host-b")

    told = world.explain(one_gpu())

    assert (left(told)["class"], left(told)["not_reserved"]) == (MANY, 0)
    assert told.parts[0].last_seen == 0


def test_unit_limits_of_candidates_are_read_from_records(world: World) -> None:
    """Placement's summaries of candidates do not have unit limits."""
    fleet = gpus(20, used=2, max_unit=2)
    world.publish(*fleet)
    world.remembers(*fleet)

    told = world.explain(one_gpu(3))

    # The step size is two, so even four free units do not fit a request for three.
    [short] = [stage for stage in told.parts[0].stages if stage.step is Step.ENOUGH]
    assert (short.count, short.alone) == (0, 0)


@pytest.mark.parametrize(
    ("fleet", "having"),
    [
        ({"VCPU": Stock(8)}, 0),
        ({"VGPU": Stock(4, reserved=4), "VGPU_DISPLAY_HEAD": Stock(4)}, MANY),
    ],
    ids=str,
)
def test_fleet_with_another_class_in_common_takes_few_requests(
    world: World, fleet: dict[str, Any], having: int
) -> None:
    world.publish(*(host(number, **fleet) for number in range(MANY)))

    told, requests = world.requests_for(one_gpu())

    assert (left(told)["class"], left(told)["not_reserved"]) == (having, 0)
    assert told.parts[0].not_looked_at == 0
    assert requests < 20


def test_trees_without_free_units_are_found_from_candidates_for_the_other_class(
    world: World,
) -> None:
    hosts = [host(number, VCPU=Stock(8)) for number in range(0, 100, 2)]
    theirs = [host(one.number + 1, parent=one.number, VGPU=Stock(4, used=4)) for one in hosts]
    world.publish(*(one for pair in zip(hosts, theirs, strict=True) for one in pair))
    group = RequestGroup(resources={"VGPU": 1, "VCPU": 1}, owner=NOVA)

    told, requests = world.requests_for(ResourceRequest(groups=(group,)))

    cpu, gpu = map(counts, told.parts)
    assert (cpu["fitting"], gpu["class"], gpu["not_reserved"], gpu["not_used_up"]) == (
        50,
        50,
        50,
        0,
    )
    assert requests < 20


# Reservations and their holders.


def test_provider_whose_reservation_ends_soon_counts_as_used_up(world: World) -> None:
    [node] = gpus(1, total=1, used=1)
    world.publish(node)
    world.remembers(
        replace(node, inventories={"VGPU": Stock(1, reserved=1)}), reasons=("loud",), generation=0
    )

    assert reasons(world.explain(one_gpu())) == [[Short("VGPU", 1, 1, 1)]]


def test_reserved_providers_are_listed_with_the_reasons_of_drivers_and_operators(
    world: World,
) -> None:
    cleaned, loud, theirs = gpus(3, reserved=4)
    world.publish(cleaned, loud, theirs, host(3, VGPU=Stock(4, used=4)))

    def holdings() -> dict[str, tuple[int, object, object]]:
        """Return, by reason: the number of providers, and the first holder and time."""
        told = world.explain(one_gpu())
        assert left(told)["not_reserved"] == 1
        return {
            one.reason: (
                one.providers,
                one.first and one.first.holder,
                one.first and one.first.since,
            )
            for one in told.parts[0].holdings
        }

    world.remembers(cleaned, reasons=("cleaning",))
    by_driver = holdings()
    # The record does not have the operator's reservation yet.
    world.remembers(replace(loud, inventories={"VGPU": Stock(4)}))
    samples.reservation(
        world.kept.context, provider_uuid=loud.uuid, reason="loud", holder="operator", since=SINCE
    ).create()
    by_operator = holdings()

    assert by_driver["cleaning"] == (1, "driver metal on host-a", SINCE)
    assert by_operator["loud"] == (1, "operator", SINCE)
    assert by_driver[""][0] == by_operator[""][0] == 2


@pytest.mark.parametrize("live", ["readable", "{", '{"uuid": 1}', None])
def test_reservation_without_a_reason_is_the_drivers_if_its_record_is_readable(
    world: World, live: str | None
) -> None:
    [gpu] = gpus(1, reserved=4)
    world.publish(gpu)
    seen = encode(_as_seen(gpu))
    record = (
        samples.record(provider_uuid=gpu.uuid, live=seen, applied=seen)
        if live == "readable"
        else samples.record(provider_uuid=gpu.uuid, live=live, applied="[]")
    )
    listed = ProviderRecordList(objects=[record])
    ProviderRecordList.replace(world.kept.context, "host-a", "metal", listed, [])

    told = world.explain(one_gpu())

    [holding] = told.parts[0].holdings
    if live == "readable":
        assert holding.first is not None
        assert (holding.reason, holding.first.holder) == (UNSAID, "driver metal on host-a")
    else:
        assert reasons(told) == [[Held("VGPU", ())]]


def test_figures_of_the_nearest_misses_are_read(world: World) -> None:
    world.publish(
        *gpus(3, max_unit=1),
        host(3, VGPU=Stock(4, step_size=3)),
        host(4, VGPU=Stock(4, used=3)),
    )

    told = world.explain(one_gpu(2))

    assert sorted(map(str, reasons(told))) == sorted(
        map(
            str,
            [
                *[[Misfit("VGPU", 2, "max_unit", 1)]] * 3,
                [Misfit("VGPU", 2, "step_size", 3)],
                [Short("VGPU", 2, 4, 3)],
            ],
        )
    )


# Filters, limits, and servers.


def test_disabled_service_drops_the_root(world: World) -> None:
    disabled = host(0, VGPU=Stock(4))
    world.publish(disabled)
    client = world.placement.client
    now = client.get_traits(disabled.uuid)
    client.set_traits(disabled.uuid, now.resource_provider_generation, {*now.traits, DISABLED})

    told = world.explain(one_gpu(), "forbid", "owner", "compute_status")

    assert left(told)["fitting"] == 1
    assert {str(one.step): one.count for one in told.trees} == {"all": 1, "root": 0, "parts": 0}
    assert told.candidates == 0
    assert world.explain(one_gpu()).candidates == 1


def test_explanation_without_owner_filter_has_no_owner_step(world: World) -> None:
    world.publish(replace(host(0, VGPU=Stock(4)), traits=frozenset([CYBORG])))

    told = world.explain(one_gpu(), "forbid", "compute_status")

    assert "owner" not in left(told)
    assert told.candidates == 1


def test_explanation_counts_as_many_candidates_as_a_list(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.publish(*gpus(20))

    assert world.explain(replace(one_gpu(), limit=7)).candidates == 7
    assert world.explain(replace(one_gpu(), limit=70)).candidates == 20
    monkeypatch.setattr(explainer, "MOST", 5)
    last = world.explain(replace(one_gpu(), limit=3)).trees[-1]
    assert (last.candidates, last.is_all) == (5, False)


def test_explanation_counts_dropped_candidates(world: World) -> None:
    children = [
        forests.Provider(1, 0, frozenset([NOVA]), {"VGPU": Stock(4)}),
        forests.Provider(2, 0, frozenset(), {"VGPU": Stock(4)}),
    ]
    world.publish(host(0, VCPU=Stock(4)), *children)
    group = RequestGroup(resources={"VGPU": 1, "VCPU": 1}, owner=NOVA)

    told = world.explain(ResourceRequest(groups=(group,)))

    assert (told.candidates, told.dropped) == (1, {"owner": 1})
    assert told.trees[-1].dropped == {"owner": 1}


@pytest.mark.parametrize(
    ("stock", "amount", "when"),
    [
        ({"used": 4}, 1, "inventories"),
        ({"used": 4}, 1, "usages"),
        ({"max_unit": 1}, 2, "inventories"),
    ],
)
def test_provider_that_vanishes_meanwhile_is_not_counted(
    world: World, stock: dict[str, int], amount: int, when: str
) -> None:
    [gpu] = gpus(1, **stock)
    world.publish(gpu)

    struck = world.placement.adapter.once_before(
        lambda method, path: path == f"/resource_providers/{gpu.uuid}/{when}", forests.empty
    )
    told = world.explain(one_gpu(amount))

    assert struck
    assert left(told)["all"] == 0


def test_sharing_provider_that_vanishes_meanwhile_no_longer_shares(world: World) -> None:
    traits = frozenset([NOVA, forests.SHARES])
    disk = forests.Provider(0, None, traits, {"DISK_GB": Stock(4)}, frozenset(forests.AGGREGATES))
    world.publish(disk)
    group = RequestGroup(resources={"DISK_GB": 1}, owner=NOVA)

    world.placement.adapter.once_before(
        lambda method, path: path.endswith("/aggregates"), forests.empty
    )

    assert left(world.explain(ResourceRequest(groups=(group,))))["fitting"] == 1


def test_sharing_providers_beyond_the_limit_are_counted_as_unread(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fact_collector, "_SHARING", 2)
    traits = frozenset([NOVA, forests.SHARES])
    world.publish(
        *(forests.Provider(number, None, traits, {"DISK_GB": Stock(4)}) for number in range(5))
    )
    group = RequestGroup(resources={"DISK_GB": 1}, owner=NOVA)

    assert world.explain(ResourceRequest(groups=(group,))).not_looked_at == 3


@pytest.mark.parametrize("newest", ["1.29", "1.38"])
def test_older_server_gets_only_requests_that_it_supports(
    world: World, monkeypatch: pytest.MonkeyPatch, newest: str
) -> None:
    lab.lower(monkeypatch, newest)
    world.publish(*gpus(3), host(3, FAST, VGPU=Stock(4, used=4)))

    told = world.explain(one_gpu(required="!CUSTOM_GOLD"), "forbid", "owner", "compute_status")

    assert (told.candidates, left(told)["not_used_up"]) == (3, 3)


def test_request_beyond_an_older_server_is_refused_as_in_a_list(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.publish(*gpus(1))
    for newest, request in (
        ("1.38", one_gpu(required="in:CUSTOM_FAST,CUSTOM_GOLD")),
        ("1.35", replace(one_gpu(suffix="_A"), same_subtree=(frozenset(["_A"]),))),
        ("1.34", replace(one_gpu(), root=TraitConditions.parse([FAST]))),
        ("1.28", one_gpu()),
    ):
        lab.lower(monkeypatch, newest)
        with pytest.raises(MicroversionUnsupported, match=newest):
            world.explain(request)
