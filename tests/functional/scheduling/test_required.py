"""Conditions on traits mean the same to Wharfinger and to Placement, in each place of a request.

One root has a child GPU for each set of three traits. The GPUs on offer show the meaning of a
condition. tests/unit/placement/test_trait_conditions.py tests the syntax, and the tables
``placement/gabbits/required-*.yaml`` test Placement itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.functional.scheduling.hosts import DXVA, FAST, GPUS, VULKAN, publish_gpus
from tests.lab.placement import PlacementFixture, lower
from tests.lab.samples import uuid
from wharfinger.exceptions import InvalidRequest, MicroversionUnsupported, PlacementError
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.query_features import Query
from wharfinger.placement.trait_conditions import TraitConditions
from wharfinger.scheduling import RequestGroup, ResourceRequest
from wharfinger.scheduling.request_query import encode

A, B, C = VULKAN, DXVA, FAST
BY_UUID = {uuid(name): traits for name, traits in GPUS.items()}

Sets = set[frozenset[str]]


@pytest.fixture
def host(placement: PlacementFixture) -> PlacementFixture:
    publish_gpus(placement.client)
    return placement


@dataclass(frozen=True)
class Place:
    """A place for conditions: a list of providers (None), or the group with this suffix."""

    suffix: str | None

    def plainly(self, client: PlacementClient, values: Sequence[str]) -> Sets:
        """Return what Placement finds for conditions in the syntax of its API."""
        if self.suffix is None:
            found = client.list_providers(required=tuple(values), in_tree=uuid("cn"))
            return {BY_UUID[provider.uuid] for provider in found if provider.name != "cn"}
        required = ((f"required{self.suffix}", value) for value in values)
        return _asked(client, [(f"resources{self.suffix}", "VGPU:1"), *required])

    def find(self, client: PlacementClient, values: Sequence[str]) -> Sets:
        """Return what is found for conditions that Wharfinger parses and encodes."""
        traits = TraitConditions.parse(values)
        if self.suffix is None:
            return self.plainly(client, traits.values())
        group = RequestGroup(suffix=self.suffix, resources={"VGPU": 1}, traits=traits)
        return _asked(client, encode(ResourceRequest(groups=(group,))))


def _asked(client: PlacementClient, query: Query) -> Sets:
    answer = client.get_allocation_candidates(query)
    return {BY_UUID[gpu] for one in answer.allocation_requests for gpu in one.allocations}


PLACES = {
    "of providers": Place(None),
    "of the unnumbered group": Place(""),
    "of a granular group": Place("_GPU"),
}
everywhere = pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)

_ITEMS = st.one_of(
    st.sampled_from([sign + trait for sign in ("", "!") for trait in (A, B, C)]),
    st.sampled_from(["", "!", f" {A} ", f"! {B}", "CUSTOM_NOBODYS", A.lower(), f"in:{A}"]),
)
_VALUES = st.builds(
    lambda prefix, items: prefix + ",".join(items),
    st.sampled_from(["", "", "in:", "in:", "!in:", "IN:"]),
    st.lists(_ITEMS, min_size=1, max_size=3),
)


def test_conditions_are_refused_or_mean_the_same_as_in_placement(
    host: PlacementFixture,
) -> None:
    @settings(max_examples=60)
    @given(values=st.lists(_VALUES, min_size=1, max_size=3))
    @example(values=[f"in:{A},!{B}"])
    @example(values=[f"in:{A},{B}", f"!{A},!{B}"])
    @example(values=[f"in: {A} , {B}", f" !{A}"])
    def check(values: list[str]) -> None:
        for name, place in PLACES.items():
            plain = _or_refused(place.plainly, host, values)
            ours = _or_refused(place.find, host, values)

            # Contradicting conditions match no provider; only Placement's list of providers accepts
            # them.
            contradiction = plain == set() and ours is None and name == "of providers"
            assert plain == ours or contradiction, name

    check()


def _or_refused(
    ask: Callable[[PlacementClient, Sequence[str]], Sets],
    host: PlacementFixture,
    values: Sequence[str],
) -> Sets | None:
    try:
        return ask(host.client, values)
    except (InvalidRequest, PlacementError):
        return None


def test_several_exclamation_marks_are_refused_though_placement_accepts_them(
    host: PlacementFixture,
) -> None:
    place = PLACES["of providers"]
    assert place.plainly(host.client, [f"!!{A}"]) == place.find(host.client, [f"!{A}"])

    with pytest.raises(InvalidRequest, match=f"'!{A}' cannot be a trait"):
        TraitConditions.parse([f"!!{A}"])


@everywhere
def test_server_without_choices_of_traits_gets_all_other_conditions_in_one_parameter(
    host: PlacementFixture, monkeypatch: pytest.MonkeyPatch, place: Place
) -> None:
    lower(monkeypatch, "1.38")
    host.requests.clear()
    older = host.new_client()
    told = r"needs microversion 1\.39, the server has 1\.38"
    for values in ([f"in:{A},{B}"], [C, f"in:{A},{B}"]):
        with pytest.raises(MicroversionUnsupported, match=told):
            place.find(older, values)
    with pytest.raises(MicroversionUnsupported, match=told):
        place.plainly(older, [A, B])
    assert not host.requests

    assert place.find(older, [f"in:{A}", B]) == {frozenset({A, B}), frozenset({A, B, C})}
    assert place.find(older, [f"!{A}", f"!{B}", f"in:{C}"]) == {frozenset({C})}
    assert len(host.requests) == 2
