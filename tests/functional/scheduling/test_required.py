"""Conditions on traits, in each place where they may stand: what we make of them is what they say.

Below one root there is a GPU for each set of three traits, so that which GPUs are offered tells
all about a condition. Placement's own words are in the tables beside the tests of its client,
``required-*.yaml``.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.functional.scheduling.hosts import DXVA, FAST, GPUS, VULKAN, publish_gpus
from tests.lab.placement import PlacementFixture, lower
from tests.lab.samples import uuid
from wharfinger.exceptions import InvalidRequest, MicroversionUnsupported, PlacementError
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.embedded import EmbeddedPlacement
from wharfinger.placement.query import Query
from wharfinger.placement.trait_conditions import TraitConditions
from wharfinger.scheduling import RequestGroup, ResourceRequest
from wharfinger.scheduling.encoding import encode

A, B, C = VULKAN, DXVA, FAST
SETS = set(GPUS.values())
BY_UUID = {uuid(name): traits for name, traits in GPUS.items()}

Sets = set[frozenset[str]]


@pytest.fixture(scope="module")
def host(placement_service: EmbeddedPlacement) -> Iterator[PlacementFixture]:
    """The GPUs in Placement; all tests here only ask."""
    with PlacementFixture(placement_service) as placement:
        publish_gpus(placement.client)
        yield placement


@dataclass(frozen=True)
class Place:
    """Where conditions may stand; None: in a list of providers, else in the group of a suffix."""

    suffix: str | None

    def plainly(self, client: PlacementClient, values: Sequence[str]) -> Sets:
        """What Placement finds for values as the API has them."""
        if self.suffix is None:
            found = client.list_providers(required=tuple(values), in_tree=uuid("cn"))
            return {BY_UUID[provider.uuid] for provider in found if provider.name != "cn"}
        required = ((f"required{self.suffix}", value) for value in values)
        return _asked(client, [(f"resources{self.suffix}", "VGPU:1"), *required])

    def find(self, client: PlacementClient, values: Sequence[str]) -> Sets:
        """What is found for what we make of such values."""
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

MEANT: dict[str, tuple[list[str], Callable[[frozenset[str]], bool]]] = {
    "nothing": ([], lambda its: True),
    "one": ([A], lambda its: A in its),
    "both": ([f"{A},{B}"], lambda its: {A, B} <= its),
    "not one": ([f"!{A}"], lambda its: A not in its),
    "one and not another": ([f"{A},!{B}"], lambda its: A in its and B not in its),
    "any of one": ([f"in:{A}"], lambda its: A in its),
    "any of two": ([f"in:{A},{B}"], lambda its: bool({A, B} & its)),
    "any of three": ([f"in:{A},{B},{C}"], bool),
    "any of two, and one": ([f"in:{A},{B}", C], lambda its: bool({A, B} & its) and C in its),
    "any of two, not one": ([f"!{C}", f"in:{A},{B}"], lambda its: its in ({A}, {B}, {A, B})),
    "any of two, not one of them": (
        [f"in:{A},{B}", f"!{A}"],
        lambda its: B in its and A not in its,
    ),
    "any of two, twice": (
        [f"in:{A},{B}", f"in:{B},{C}"],
        lambda its: B in its or {A, C} <= its,
    ),
    "any of two, three times": (
        [f"in:{A},{B}", f"in:{B},{C}", f"in:{A},{C}"],
        lambda its: len(its) > 1,
    ),
    "all at once": ([f"in:{A},{B}", C, f"!{A}"], lambda its: its == {B, C}),
}


@everywhere
@pytest.mark.parametrize(("values", "is_meant"), MEANT.values(), ids=MEANT)
def test_what_is_said_is_what_is_found(
    host: PlacementFixture,
    place: Place,
    values: list[str],
    is_meant: Callable[[frozenset[str]], bool],
) -> None:
    assert place.find(host.client, values) == set(filter(is_meant, SETS))


# Whatever somebody writes.

_ITEMS = st.one_of(
    st.sampled_from([sign + trait for sign in ("", "!") for trait in (A, B, C)]),
    st.sampled_from(["", "!", f" {A} ", f"! {B}", "CUSTOM_NOBODYS", A.lower(), f"in:{A}"]),
)
_VALUES = st.builds(
    lambda prefix, items: prefix + ",".join(items),
    st.sampled_from(["", "", "in:", "in:", "!in:", "IN:"]),
    st.lists(_ITEMS, min_size=1, max_size=3),
)


@settings(deadline=None, max_examples=100)
@given(values=st.lists(_VALUES, min_size=1, max_size=3))
@example(values=[f"in:{A},!{B}"])
@example(values=[f"in:{A},{B}", f"!{A},!{B}"])
@example(values=[f"in: {A} , {B}", f" !{A}"])
def test_what_placement_refuses_is_refused_and_all_else_means_the_same(
    host: PlacementFixture, values: list[str]
) -> None:
    for name, place in PLACES.items():
        plain = _or_refused(place.plainly, host, values)
        ours = _or_refused(place.find, host, values)

        # What contradicts itself is nobody's, which Placement does not say of providers.
        contradiction = plain == set() and ours is None and name == "of providers"
        assert plain == ours or contradiction, name


def _or_refused(
    ask: Callable[[PlacementClient, Sequence[str]], Sets],
    host: PlacementFixture,
    values: Sequence[str],
) -> Sets | None:
    try:
        return ask(host.client, values)
    except (InvalidRequest, PlacementError):
        return None


def test_several_exclamation_marks_are_refused_though_placement_takes_them(
    host: PlacementFixture,
) -> None:
    place = PLACES["of providers"]
    assert place.plainly(host.client, [f"!!{A}"]) == place.find(host.client, [f"!{A}"])

    with pytest.raises(InvalidRequest, match=f"'!{A}' cannot be a trait"):
        TraitConditions.parse([f"!!{A}"])


# A server without any-traits.


@pytest.fixture
def older(host: PlacementFixture, monkeypatch: pytest.MonkeyPatch) -> PlacementClient:
    """A client of a server that knows nothing after 1.38."""
    lower(monkeypatch, "1.38")
    host.requests.clear()
    return host.new_client()


@everywhere
@pytest.mark.parametrize("values", [[f"in:{A},{B}"], [f"in:{A},{B}", C], [C, f"in:{A},{B}"]])
def test_it_is_asked_for_no_choice_between_traits(
    host: PlacementFixture,
    older: PlacementClient,
    place: Place,
    values: list[str],
) -> None:
    with pytest.raises(
        MicroversionUnsupported, match=r"needs microversion 1\.39, the server has 1\.38"
    ):
        place.find(older, values)

    assert not host.requests


@everywhere
def test_it_is_not_asked_twice_in_one_request(
    host: PlacementFixture,
    older: PlacementClient,
    place: Place,
) -> None:
    with pytest.raises(MicroversionUnsupported, match=r"needs microversion 1\.39"):
        place.plainly(older, [A, B])

    assert not host.requests


WITHOUT_CHOICE: dict[str, tuple[list[str], Sets]] = {
    "two": ([A, B], {frozenset({A, B}), frozenset({A, B, C})}),
    "one and not another": ([A, f"!{B}"], {frozenset({A}), frozenset({A, C})}),
    "any of one, and another": ([f"in:{A}", B], {frozenset({A, B}), frozenset({A, B, C})}),
    "neither, and any of one": ([f"!{A}", f"!{B}", f"in:{C}"], {frozenset({C})}),
}


@everywhere
@pytest.mark.parametrize(("values", "meant"), WITHOUT_CHOICE.values(), ids=WITHOUT_CHOICE)
def test_all_else_it_is_asked_for_in_one_condition(
    host: PlacementFixture, older: PlacementClient, place: Place, values: list[str], meant: Sets
) -> None:
    assert place.find(older, values) == meant
    assert len(host.requests) == 1
