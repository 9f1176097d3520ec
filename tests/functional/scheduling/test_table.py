"""What it takes to keep owners apart: what plain queries give, and what ours do.

Each row is a query for the host of ``hosts``, once as it stands, and once as a request of ours
with the owner filter. What is written down is who gives a GPU, or a disk, in each candidate.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest

from tests.functional.scheduling.hosts import publish_owners
from tests.lab.cycles import make_state
from tests.lab.objects import KeptInFile
from tests.lab.placement import PlacementFixture
from tests.lab.samples import service, uuid
from wharfinger.conf import load
from wharfinger.exceptions import InvalidRequest, PlacementError
from wharfinger.objects import OWNER_TAG_VERSION, Context
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.embedded import EmbeddedPlacement
from wharfinger.placement.trait_conditions import TraitConditions
from wharfinger.providers import ownership
from wharfinger.scheduling import RequestGroup, ResourceRequest
from wharfinger.scheduling.candidates import Candidates, CandidateSearch
from wharfinger.scheduling.filters import Surroundings
from wharfinger.scheduling.filters.owner import OwnerFilter

NOVA, CYBORG, ACME = "OWNER_NOVA", "OWNER_CYBORG", "CUSTOM_OWNER_ACME"
DEVICES = ("n", "y", "a", "u", "s")


@dataclass(frozen=True)
class Row:
    query: str
    plainly: list[str]
    with_owner: list[str]


TABLE = {
    "nothing said": Row("resources=VCPU:1,VGPU:1", ["n", "y", "a", "u"], ["n"]),
    "the root required, as nova 34 does": Row(
        "resources=VCPU:1,VGPU:1&root_required=OWNER_NOVA", ["n", "y", "a", "u"], ["n"]
    ),
    "the owner required": Row(
        "resources=VCPU:1,VGPU:1&required=OWNER_NOVA", ["n", "y", "a", "u"], ["n"]
    ),
    "the owner required, all others forbidden": Row(
        "resources=VCPU:1,VGPU:1&required=OWNER_NOVA,!OWNER_CYBORG,!CUSTOM_OWNER_ACME",
        ["n", "u"],
        ["n"],
    ),
    "the same with a shared disk": Row(
        "resources=VCPU:1,VGPU:1,DISK_GB:1&required=OWNER_NOVA,!OWNER_CYBORG,!CUSTOM_OWNER_ACME",
        ["n s", "u s"],
        ["n s"],
    ),
    "the same with a trait that n alone has": Row(
        "resources=VCPU:1,VGPU:1&required=OWNER_NOVA,CUSTOM_FAST,!OWNER_CYBORG,!CUSTOM_OWNER_ACME",
        ["n"],
        ["n"],
    ),
    "VGPU in a group of its own": Row(
        "resources=VCPU:1,DISK_GB:1&resources_V=VGPU:1&required=OWNER_NOVA&required_V=OWNER_NOVA",
        ["n s"],
        ["n s"],
    ),
    "VGPU alone": Row("resources=VGPU:1&required=OWNER_NOVA", ["n"], ["n"]),
    "two owners, each in a group of its own": Row(
        "resources_N=VGPU:1&required_N=OWNER_NOVA"
        "&resources_Y=VGPU:1&required_Y=OWNER_CYBORG&group_policy=none",
        ["n y"],
        ["n y"],
    ),
}

#: What plain Placement gives for two owners in one group; for the others, how it refuses them.
REFUSED = {
    "two owners to choose from": (
        "resources=VCPU:1&resources_B=VGPU:1"
        "&required_B=in:OWNER_NOVA,CUSTOM_OWNER_ACME&required_B=!OWNER_CYBORG",
        ["n", "a"],
        r"required of group _B = 'CUSTOM_OWNER_ACME,OWNER_NOVA': a provider has one owner",
    ),
    "two granular groups without a policy": (
        "resources_A=VGPU:1&resources_B=VGPU:1",
        r"400.*\"group_policy\" parameter is required",
        r"group_policy = '': there are groups _A, _B: say whether",
    ),
    "a trait of a group without resources": (
        "resources_A=VGPU:1&required=OWNER_NOVA",
        r"400.*Resourceless suffixed group",
        r"resources = '': the group without a suffix asks for nothing",
    ),
}


@dataclass(frozen=True)
class Host:
    """The host, to be asked for resources in one way and in the other.

    The answer is who gives a GPU, or a disk, in each candidate.
    """

    placement: PlacementClient
    objects: Context
    configuration: Path

    def plainly(self, query: str) -> list[str]:
        """What Placement answers."""
        answer = self.placement.get_allocation_candidates(parse_qsl(query))
        return _givers(one.allocations for one in answer.allocation_requests)

    def find(self, request: ResourceRequest, option: str = "") -> list[str]:
        """What we find, with an option of ours or without one."""
        return _givers(one.allocations for one in self._search(request, option).candidates)

    def dropped(self, request: ResourceRequest) -> int:
        """How many candidates Placement answers that we drop."""
        return sum(self._search(request).dropped.values())

    def _search(self, request: ResourceRequest, option: str = "") -> Candidates:
        self.configuration.write_text(f"[scheduling]\n{option}\n")
        conf = load([str(self.configuration)])
        owner = OwnerFilter(Surroundings(conf, self.placement, self.objects))
        return CandidateSearch(self.placement, {"owner": owner}).find(request)

    def has_services(self, *services: tuple[list[str], int]) -> None:
        """Services that publish for these owners, and their versions."""
        for number, (owners, version) in enumerate(services):
            service(self.objects, number, owners=owners, version=version).create()


@pytest.fixture(scope="module")
def published(placement_service: EmbeddedPlacement) -> Iterator[PlacementClient]:
    """The host in Placement; all tests here only ask."""
    with PlacementFixture(placement_service) as placement:
        publish_owners(placement.client)
        yield placement.client


@pytest.fixture
def host(published: PlacementClient, tmp_path: Path) -> Iterator[Host]:
    make_state(tmp_path)
    with KeptInFile(tmp_path) as kept:
        yield Host(published, kept.context, tmp_path / "wharfinger.conf")


@pytest.fixture
def gates(host: Host) -> None:
    """All owners' services tag everything."""
    host.has_services(([NOVA, CYBORG, ACME], OWNER_TAG_VERSION))


@pytest.mark.parametrize("row", TABLE.values(), ids=TABLE)
def test_a_plain_query_gives(host: Host, row: Row) -> None:
    assert host.plainly(row.query) == row.plainly


@pytest.mark.usefixtures("gates")
@pytest.mark.parametrize("row", TABLE.values(), ids=TABLE)
def test_a_request_of_ours_gives(host: Host, row: Row) -> None:
    assert host.find(asked(row.query, NOVA)) == row.with_owner


@pytest.mark.usefixtures("gates")
@pytest.mark.parametrize("row", TABLE.values(), ids=TABLE)
def test_a_request_of_ours_for_one_candidate_gives(host: Host, row: Row) -> None:
    request = replace(asked(row.query, NOVA), limit=1)

    assert host.find(request) == row.with_owner


@pytest.mark.usefixtures("gates")
def test_of_what_placement_can_be_told_it_answers_nothing_that_we_drop(host: Host) -> None:
    together, apart = "resources=VCPU:1,VGPU:1", "resources=VCPU:1&resources_V=VGPU:1"

    # The untagged GPU, beside a root with the tag.
    assert host.dropped(asked(together, NOVA)) == 1
    assert host.dropped(asked(apart, NOVA)) == 0
    assert host.dropped(asked("resources=VGPU:1", NOVA)) == 0


@pytest.mark.parametrize(("query", "answer", "refusal"), REFUSED.values(), ids=REFUSED)
def test_we_refuse(host: Host, query: str, answer: list[str] | str, refusal: str) -> None:
    if isinstance(answer, str):
        with pytest.raises(PlacementError, match=answer):
            host.plainly(query)
    else:
        assert host.plainly(query) == answer

    with pytest.raises(InvalidRequest, match=refusal):
        asked(query, NOVA)


# Who asks.


@pytest.mark.usefixtures("gates")
@pytest.mark.parametrize(("owner", "gpu"), [(NOVA, "n"), (CYBORG, "y"), (ACME, "a"), (None, "u")])
def test_each_owner_is_given_its_own_and_nobody_what_is_nobodys(
    host: Host, owner: str | None, gpu: str
) -> None:
    assert host.find(asked("resources=VGPU:1", owner)) == [gpu]
    assert host.find(asked("resources=VGPU:1,DISK_GB:1", owner)) == [f"{gpu} s"]


@pytest.mark.usefixtures("gates")
@pytest.mark.parametrize("owner", [CYBORG, ACME, None])
def test_who_does_not_own_the_host_has_no_processor_of_it(host: Host, owner: str | None) -> None:
    assert host.plainly("resources=VCPU:1,VGPU:1") == ["n", "y", "a", "u"]
    assert host.find(asked("resources=VCPU:1,VGPU:1", owner)) == []


@pytest.mark.usefixtures("gates")
@pytest.mark.parametrize(
    ("owner", "gpus"), [(NOVA, ["n", "u"]), (CYBORG, ["y", "u"]), (ACME, ["a", "u"]), (None, ["u"])]
)
def test_what_is_untagged_is_anybodys_where_that_is_allowed(
    host: Host, owner: str | None, gpus: list[str]
) -> None:
    request = asked("resources=VGPU:1", owner)

    assert host.find(request, "untagged = allow") == gpus


@pytest.mark.parametrize(
    ("owner", "gpus"), [(NOVA, ["n"]), (CYBORG, ["y", "u"]), (ACME, ["a", "u"]), (None, ["u"])]
)
def test_what_is_untagged_is_theirs_whose_services_do_not_tag_yet(
    host: Host, owner: str | None, gpus: list[str]
) -> None:
    # Nobody publishes for ACME.
    current, former = OWNER_TAG_VERSION, OWNER_TAG_VERSION - 1
    host.has_services(([NOVA], current), ([CYBORG], current), ([CYBORG], former))

    assert host.find(asked("resources=VGPU:1", owner)) == gpus


def asked(query: str, owner: str | None) -> ResourceRequest:
    """The same as a request of ours; groups that name no owner have this one."""
    said = parse_qsl(query)
    whole = dict(said)
    return ResourceRequest(
        groups=tuple(
            _group(suffix, said, owner)
            for suffix in dict.fromkeys(_suffix(key) for key, _value in said)
            if suffix is not None
        ),
        group_policy=whole.get("group_policy"),  # type: ignore[arg-type]
        root=TraitConditions.parse([whole["root_required"]] if "root_required" in whole else []),
    )


def _suffix(key: str) -> str | None:
    """The suffix of the group that a key is of; None where it is of the whole."""
    if key in ("group_policy", "root_required"):
        return None
    return key.removeprefix("resources").removeprefix("required")


def _group(suffix: str, said: list[tuple[str, str]], owner: str | None) -> RequestGroup:
    traits = TraitConditions.parse([value for key, value in said if key == f"required{suffix}"])
    amounts = dict(said).get(f"resources{suffix}", "")
    return RequestGroup(
        suffix=suffix,
        resources={
            kind: int(amount)
            for kind, amount in (one.split(":") for one in amounts.split(",") if one)
        },
        traits=traits,
        owner=None if ownership.owners(traits.wanted) else owner,
    )


def _givers(candidates: Iterable[Mapping[str, Any]]) -> list[str]:
    given = [[name for name in DEVICES if uuid(name) in allocations] for allocations in candidates]
    return [" ".join(names) for names in sorted(given, key=lambda names: DEVICES.index(names[0]))]
