"""The two request filters: the conditions that they add, and the candidates that they drop."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from keystoneauth1.adapter import Adapter
from keystoneauth1.session import Session

from tests.lab.explained import CYBORG, NOVA, asking, wanted
from tests.lab.samples import service, uuid
from wharfinger.conf import parse
from wharfinger.exceptions import InvalidRequest, MicroversionUnsupported
from wharfinger.objects import OWNER_TAG_VERSION, Context, ServiceList, WharfingerObject
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.microversions import HIGHEST, Microversion
from wharfinger.placement.model import CandidateProvider
from wharfinger.placement.trait_conditions import NO_CONDITIONS, TraitConditions
from wharfinger.scheduling import RequestGroup
from wharfinger.scheduling.candidate import Candidate
from wharfinger.scheduling.provider_facts import SHARES
from wharfinger.scheduling.request_filters import RequestFilter, Surroundings
from wharfinger.scheduling.request_filters.compute_status import ComputeStatusFilter
from wharfinger.scheduling.request_filters.owner import OwnerFilter

ACME, DISABLED = "CUSTOM_OWNER_ACME", "COMPUTE_STATUS_DISABLED"
#: The last microversions without choices of traits ("in:"), without root traits, without mappings.
NO_CHOICE, NO_ROOT, NO_MAPPINGS = (Microversion(1, minor) for minor in (38, 34, 33))
BARE = RequestGroup(suffix="_A", traits=TraitConditions(required=frozenset(["CUSTOM_FAST"])))


class Server(PlacementClient):
    """A Placement that has these traits."""

    def __init__(self, traits: Iterable[str] = (), microversion: Microversion = HIGHEST) -> None:
        super().__init__(Adapter(Session()))
        self._microversion = microversion
        self.traits = frozenset(traits)

    def find_traits(self, prefix: str) -> frozenset[str]:
        return frozenset(one for one in self.traits if one.startswith(prefix))


@pytest.fixture
def tagging(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The owners whose services tag every provider; a test may change the list."""
    owners = [NOVA, CYBORG]

    class Keeper:
        def object_class_action_versions(self, *_: object) -> ServiceList:
            return ServiceList(
                objects=[service(None, version=OWNER_TAG_VERSION, owners=list(owners))]
            )

    monkeypatch.setattr(WharfingerObject, "indirection_api", Keeper())
    return owners


def surroundings(server: PlacementClient, untagged: str = "forbid") -> Surroundings:
    conf = parse([])
    conf.set_override("untagged", untagged, "scheduling")
    return Surroundings(conf, server, Context())


def candidate(mappings: dict[str, tuple[str, ...]], **traits: Iterable[str]) -> Candidate:
    """Return a candidate that takes a VCPU from each of these providers; cn is the root."""
    return Candidate(
        allocations={uuid(name): {"VCPU": 1} for name in traits if name != "cn"},
        mappings={suffix: tuple(map(uuid, names)) for suffix, names in mappings.items()},
        providers={
            uuid(name): CandidateProvider({}, frozenset(its), uuid("cn"))
            for name, its in traits.items()
        },
    )


def test_request_filter_without_methods_changes_and_drops_nothing() -> None:
    it, request = RequestFilter(surroundings(Server())), wanted(asking(VCPU=1))
    it.forget()

    assert it.apply(request) is request
    assert it.objection(request, candidate({}, cn=[DISABLED], gpu=[CYBORG])) is None


# The owner.

PROVIDERS: dict[str, tuple[str, ...]] = {
    "nova's": (NOVA,),
    "cyborg's": (CYBORG,),
    "of two": (NOVA, CYBORG),
    "untagged": ("CUSTOM_FAST",),
    "shared": (SHARES,),
    "cyborg's, shared": (CYBORG, SHARES),
}


@pytest.mark.parametrize(
    ("owner", "untagged", "is_on", "taken"),
    [
        (NOVA, "forbid", True, {"nova's", "shared"}),
        (NOVA, "forbid", False, {"nova's", "shared", "untagged"}),
        (NOVA, "allow", True, {"nova's", "shared", "untagged"}),
        (CYBORG, "forbid", True, {"cyborg's", "cyborg's, shared", "shared"}),
        (None, "forbid", True, {"untagged", "shared"}),
        (None, "forbid", False, {"untagged", "shared"}),
    ],
)
def test_owner_filter_drops_providers_that_the_group_may_not_use(
    owner: str | None, untagged: str, is_on: bool, taken: set[str], tagging: list[str]
) -> None:
    if not is_on:
        tagging.clear()
    it = OwnerFilter(surroundings(Server(), untagged))
    group = RequestGroup(resources={"VCPU": 1}, owner=owner)

    def objection(traits: tuple[str, ...]) -> str | None:
        return it.objection(wanted(group), candidate({"": ("one",)}, cn=(), one=traits))

    assert {name for name, its in PROVIDERS.items() if objection(its) is None} == taken
    assert {name for name, its in PROVIDERS.items() if it.may_take(group, frozenset(its))} == taken
    assert all(uuid("one") in (objection(its) or uuid("one")) for its in PROVIDERS.values())


@pytest.mark.parametrize(
    ("mappings", "is_good"),
    [
        ({"": ("cpu",), "_A": ("gpu",)}, True),
        ({"": ("gpu",), "_A": ("cpu",)}, False),
        ({"": ("cpu", "gpu"), "_A": ("gpu",)}, False),
        ({}, False),  # an old server returns no mappings, so each group may use each provider
    ],
)
def test_owner_filter_checks_each_group_at_its_providers(
    mappings: dict[str, tuple[str, ...]], is_good: bool, tagging: list[str]
) -> None:
    request = wanted(asking(VCPU=1), asking("_A", CYBORG, VCPU=1))
    given = candidate(mappings, cn=(), cpu=(NOVA,), gpu=(CYBORG,))

    reason = OwnerFilter(surroundings(Server())).objection(request, given)

    assert (reason is None) is is_good


def test_owner_filter_ignores_a_group_without_resources(tagging: list[str]) -> None:
    it = OwnerFilter(surroundings(Server([NOVA, CYBORG])))
    request = replace(
        wanted(asking("_B", VCPU=1)),
        groups=(BARE, asking("_B", VCPU=1)),
        group_policy="none",
        same_subtree=(frozenset(["_A", "_B"]),),
    )

    def objection(*taken: str) -> str | None:
        given = candidate({"_A": ("gpu",), "_B": taken}, cn=(), cpu=(NOVA,), gpu=(CYBORG,))
        return it.objection(request, given)

    assert it.apply(request).groups[0] == BARE
    assert objection("cpu") is None
    assert objection("gpu")


MANY = [f"CUSTOM_OWNER_{number}" for number in range(60)]


@pytest.mark.parametrize(
    ("known", "microversion", "required", "conditions"),
    [
        ([NOVA, CYBORG, ACME], HIGHEST, "", [f"in:{NOVA},{SHARES}", f"!{CYBORG},!{ACME}"]),
        ([NOVA, CYBORG], HIGHEST, "CUSTOM_X", ["CUSTOM_X", f"in:{NOVA},{SHARES}", f"!{CYBORG}"]),
        ([NOVA, CYBORG], HIGHEST, f"!{SHARES}", [NOVA, f"!{SHARES},!{CYBORG}"]),
        ([NOVA, CYBORG], NO_CHOICE, "", [f"!{CYBORG}"]),
        ([CYBORG], HIGHEST, "", [f"!{CYBORG}"]),
        ([NOVA, *MANY[1:]], HIGHEST, "", [f"in:{NOVA},{SHARES}", *(f"!{one}" for one in MANY[1:])]),
        ([NOVA, *MANY], HIGHEST, "", [f"in:{NOVA},{SHARES}"]),  # too many owners for a URL
    ],
    ids=str,
)
def test_owner_filter_requires_the_owner_and_forbids_the_others(
    known: list[str],
    microversion: Microversion,
    required: str,
    conditions: list[str],
    tagging: list[str],
) -> None:
    it = OwnerFilter(surroundings(Server(known, microversion)))

    [group] = it.apply(wanted(asking(required=required, VCPU=1))).groups

    assert group == replace(asking(VCPU=1), traits=TraitConditions.parse(conditions))


@pytest.mark.parametrize(("untagged", "owners"), [("allow", [NOVA]), ("forbid", [CYBORG])])
def test_owner_filter_that_allows_untagged_providers_requires_no_owner(
    untagged: str, owners: list[str], tagging: list[str]
) -> None:
    tagging[:] = owners
    it = OwnerFilter(surroundings(Server([NOVA, CYBORG]), untagged))

    [group] = it.apply(wanted(asking(VCPU=1))).groups

    assert group.traits == TraitConditions.parse([f"!{CYBORG}"])


def test_owner_filter_forbids_a_new_owner_until_its_cache_expires(
    tagging: list[str],
) -> None:
    server = Server([NOVA])
    it, request = OwnerFilter(surroundings(server)), wanted(asking(VCPU=1))

    def forbidden() -> frozenset[str]:
        return it.apply(request).groups[0].traits.forbidden

    assert forbidden() == set()
    server.traits |= {CYBORG}
    assert forbidden() == set()
    assert it.objection(request, candidate({"": ("gpu",)}, cn=(), gpu=(ACME,)))
    assert forbidden() == {ACME}
    it.forget()
    assert forbidden() == {CYBORG}


def test_owner_filter_refuses_two_owners_on_a_server_without_mappings(tagging: list[str]) -> None:
    it = OwnerFilter(surroundings(Server([NOVA, CYBORG], NO_MAPPINGS)))

    assert len(it.apply(wanted(asking(VCPU=1), asking("_A", VGPU=1))).groups) == 2
    with pytest.raises(MicroversionUnsupported, match=r"1\.34"):
        it.apply(wanted(asking(VCPU=1), asking("_A", CYBORG, VGPU=1)))


# Disabled services.


@pytest.mark.parametrize(("microversion", "is_told"), [(HIGHEST, True), (NO_ROOT, False)])
def test_compute_status_filter_forbids_the_trait_on_roots(
    microversion: Microversion, is_told: bool
) -> None:
    it = ComputeStatusFilter(surroundings(Server(microversion=microversion)))
    root = TraitConditions.parse(["CUSTOM_RACK"])
    more = TraitConditions.parse([f"!{DISABLED}"]) if is_told else NO_CONDITIONS

    narrowed = it.apply(wanted(asking(VCPU=1), root=root))

    assert narrowed == wanted(asking(VCPU=1), root=root & more)


def test_compute_status_filter_refuses_a_request_for_disabled_roots() -> None:
    request: Any = wanted(asking(VCPU=1), root=TraitConditions.parse([DISABLED]))

    with pytest.raises(InvalidRequest) as caught:
        ComputeStatusFilter(surroundings(Server())).apply(request)

    assert (caught.value.key, caught.value.value) == ("root_required", DISABLED)


@pytest.mark.parametrize(
    ("root", "child", "is_dropped"),
    [((DISABLED,), (), True), ((), (DISABLED,), False), ((), (), False)],
)
def test_compute_status_filter_drops_candidates_below_a_disabled_root(
    root: tuple[str, ...], child: tuple[str, ...], is_dropped: bool
) -> None:
    it = ComputeStatusFilter(surroundings(Server()))

    reason = it.objection(wanted(asking(VCPU=1)), candidate({}, cn=root, gpu=child))

    assert (uuid("cn") in (reason or "")) is is_dropped
