"""Candidates in an answer of Placement, which are checked and may be refused."""

from typing import Any

import msgspec
import pytest

from tests.lab.samples import uuid
from wharfinger.exceptions import UnexpectedAnswer
from wharfinger.placement import model
from wharfinger.scheduling import RequestGroup, ResourceRequest
from wharfinger.scheduling.candidate import Candidate, from_answer, sum_amounts

NOVA = "OWNER_NOVA"
BOTH = ResourceRequest(
    groups=(
        RequestGroup(resources={"VCPU": 1}, owner=NOVA),
        RequestGroup(suffix="_GPU", resources={"VGPU": 1}, owner=NOVA),
    )
)
TAKEN = {"cn": {"VCPU": 1}, "gpu": {"VGPU": 1}}
MAPPED = {"": ["cn"], "_GPU": ["gpu"]}


def answer(
    allocations: dict[str, dict[str, int]],
    mappings: dict[str, list[str]] | None = None,
    providers: tuple[str, ...] = ("cn", "gpu"),
) -> model.AllocationCandidates:
    """Return an answer of Placement with one candidate; the provider gpu is below cn."""
    request: dict[str, Any] = {
        "allocations": {uuid(name): {"resources": it} for name, it in allocations.items()}
    }
    if mappings is not None:
        request["mappings"] = {
            suffix: [uuid(name) for name in names] for suffix, names in mappings.items()
        }
    summary: dict[str, Any] = {
        "resources": {},
        "traits": [NOVA],
        "root_provider_uuid": uuid("cn"),
        "parent_provider_uuid": None,
    }
    return msgspec.convert(
        {
            "allocation_requests": [request],
            "provider_summaries": {uuid(name): summary for name in providers},
        },
        model.AllocationCandidates,
    )


@pytest.mark.parametrize("mappings", [None, MAPPED])
def test_from_answer_with_consistent_answer_returns_the_candidate(
    mappings: dict[str, list[str]] | None,
) -> None:
    [found] = from_answer(BOTH, answer(TAKEN, mappings), has_mappings=mappings is not None)

    assert found.allocations == {uuid(name): amounts for name, amounts in TAKEN.items()}
    everything = {uuid("cn"), uuid("gpu")}
    assert set(found.sources("_GPU")) == ({uuid("gpu")} if mappings else everything)
    assert set(found.sources("")) == ({uuid("cn")} if mappings else everything)


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(answer(TAKEN, providers=("cn",)), id="no summary of what is taken from"),
        pytest.param(answer(TAKEN, providers=("gpu",)), id="no summary of the root"),
        pytest.param(
            answer({"gpu": {"VGPU": 1}}, {"": ["gpu"], "_GPU": ["gpu"]}, ("gpu",)),
            id="no summary of a root that gives nothing",
        ),
        pytest.param(
            answer(TAKEN, {"": ["cn"], "_GPU": ["gpu", "another"]}),
            id="no summary of what is mapped",
        ),
        pytest.param(answer(TAKEN, {"": ["cn", "gpu"]}), id="nothing of a group"),
        pytest.param(answer(TAKEN, {"_GPU": ["cn", "gpu"]}), id="none of the unnumbered group"),
        pytest.param(answer(TAKEN, {"": ["cn"], "_GPU": ["cn"]}), id="for no group"),
        pytest.param(answer(TAKEN, {"": [], "_GPU": []}), id="for no group at all"),
        pytest.param(
            answer(TAKEN, {"": ["cn"], "_GPU": ["cn"], "_MORE": ["gpu"]}),
            id="for a group that is not asked for",
        ),
    ],
)
def test_from_answer_with_inconsistent_answer_is_refused(bad: model.AllocationCandidates) -> None:
    with pytest.raises(UnexpectedAnswer) as caught:
        from_answer(BOTH, bad, has_mappings=bool(bad.allocation_requests[0].mappings))

    assert caught.value.request == "GET /allocation_candidates"
    assert "a provider without a provider summary, or its mappings do not" in caught.value.detail
    assert uuid("gpu") in caught.value.detail


def test_from_answer_with_other_amounts_than_requested_is_refused() -> None:
    bad = answer({"cn": {"VCPU": 1}, "gpu": {"VGPU": 2}}, MAPPED)

    with pytest.raises(UnexpectedAnswer, match=r"'VGPU': 2.*'VGPU': 1.* is requested"):
        from_answer(BOTH, bad, has_mappings=True)


@pytest.mark.parametrize("has_mappings", [True, False])
def test_from_answer_with_mappings_of_a_server_without_them_is_refused(has_mappings: bool) -> None:
    bad = answer(TAKEN, None if has_mappings else MAPPED)

    with pytest.raises(UnexpectedAnswer):
        from_answer(BOTH, bad, has_mappings=has_mappings)


def test_is_isolated_counts_groups_with_suffixes_only() -> None:
    def candidate(**mappings: str) -> Candidate:
        return Candidate(
            allocations={},
            mappings={name.removeprefix("u"): (one,) for name, one in mappings.items()},
            providers={},
        )

    assert candidate(u="a", _1="a", _2="b").is_isolated()
    assert not candidate(u="b", _1="a", _2="a").is_isolated()


def test_amounts_are_added_up_by_class() -> None:
    taken = {"cn": {"VCPU": 2, "MEMORY_MB": 512}, "numa": {"VCPU": 1}}
    assert sum_amounts(taken.values()) == {"VCPU": 3, "MEMORY_MB": 512}
    assert sum_amounts([]) == {}
