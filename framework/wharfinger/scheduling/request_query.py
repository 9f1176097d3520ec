"""Encode a request as the query of GET /allocation_candidates. Pure."""

from collections.abc import Iterator

from wharfinger.placement.query_features import Query
from wharfinger.scheduling.request import UNNUMBERED, GroupPolicy, RequestGroup, ResourceRequest


def encode(request: ResourceRequest) -> Query:
    """Return the query for a request."""
    return list(_pairs(request))


def _pairs(request: ResourceRequest) -> Iterator[tuple[str, str]]:
    for group in request.groups:
        yield from _group(group)
    if policy := _group_policy(request):
        yield "group_policy", policy
    for suffixes in request.same_subtree:
        yield "same_subtree", ",".join(sorted(suffixes))
    for value in request.root.values():
        yield "root_required", value
    if request.limit is not None:
        yield "limit", str(request.limit)


def _group_policy(request: ResourceRequest) -> GroupPolicy | None:
    # Otherwise, Placement 16 could answer with wrong amounts.
    several = len(request.groups) > 1
    suffixed = sum(group.suffix != UNNUMBERED for group in request.groups)
    return "none" if several and suffixed < 2 else request.group_policy


def _group(group: RequestGroup) -> Iterator[tuple[str, str]]:
    suffix = group.suffix
    if group.resources:
        amounts = (f"{kind}:{amount}" for kind, amount in sorted(group.resources.items()))
        yield f"resources{suffix}", ",".join(amounts)
    for value in group.traits.values():
        yield f"required{suffix}", value
    for aggregates in group.member_of:
        yield f"member_of{suffix}", f"in:{','.join(sorted(aggregates))}"
    if group.forbidden_aggregates:
        yield f"member_of{suffix}", f"!in:{','.join(sorted(group.forbidden_aggregates))}"
    if group.in_tree is not None:
        yield f"in_tree{suffix}", group.in_tree
