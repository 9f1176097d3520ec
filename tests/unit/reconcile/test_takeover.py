"""Takeovers, with the rows of other hosts given."""

from collections.abc import Iterable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.reconcile.states import child, published, root, state_of
from wharfinger.exceptions import ConcurrentSave, NodeTaken
from wharfinger.objects import (
    ComputeNode,
    Context,
    ProviderRecord,
    ProviderRecordList,
    ServiceList,
)
from wharfinger.providers import DesiredProvider, PublishingMode
from wharfinger.reconcile import takeover
from wharfinger.reconcile.record_store import RecordStore, to_object
from wharfinger.reconcile.takeover import Takeovers

OVERLAID = root("overlaid")
GPU = child("gpu", OVERLAID, traits=frozenset(["CUSTOM_WHARFINGER_GPUS"]))


def record_of_gpu(host: str) -> ProviderRecord:
    record = to_object(GPU.uuid, published(GPU)[GPU.uuid])
    record.host, record.driver_instance, record.revision = host, "gpus", 1
    return record


def takeovers(monkeypatch: pytest.MonkeyPatch, *hosts: str) -> Takeovers:
    """Return takeovers of a host; other hosts, which are up, have a record of the GPU."""
    records = [record_of_gpu(host) for host in hosts]

    def found(_context: Context, **filters: Any) -> Iterable[ProviderRecord]:
        return records if GPU.uuid in filters.get("provider_uuid", [GPU.uuid]) else []

    up = [SimpleNamespace(host=host, may_be_up=lambda _down_time: True) for host in hosts]
    monkeypatch.setattr(ProviderRecordList, "get_by_filters", found)
    monkeypatch.setattr(ServiceList, "get_by_filters", lambda _context, **_filters: up)
    return Takeovers(RecordStore(Context(), "here", "gpus"), timedelta(seconds=60))


def test_find_of_a_root_that_several_hosts_list_names_the_first_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = takeovers(monkeypatch, "b", "a", "c")
    overlaid = DesiredProvider(provider=OVERLAID, mode=PublishingMode.OVERLAY)
    state = state_of(
        OVERLAID, GPU, roots={"overlaid": OVERLAID.uuid}, desired={OVERLAID.uuid: overlaid}
    )

    [error] = found.find(state).problems

    assert isinstance(error, NodeTaken)
    assert (error.uuid, error.host) == (OVERLAID.uuid, "a")


def test_take_each_with_a_conflict_of_one_root_takes_the_others_in_few_transactions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context = Context()
    nodes = [
        ComputeNode(
            context,
            uuid=root(f"n{number}").uuid,
            host="far",
            driver_instance="gpus",
            hypervisor_hostname=f"n{number}",
            revision=1,
        )
        for number in range(32)
    ]
    saves: list[int] = []

    def transaction(_context: Context, **parts: Any) -> SimpleNamespace:
        def save() -> None:
            saves.append(len(parts["nodes"]))
            if parts["records"]:
                raise ConcurrentSave(kind="ProviderRecord", keys=[GPU.uuid])

        return SimpleNamespace(save=save)

    found = takeovers(monkeypatch, "far")
    monkeypatch.setattr(takeover, "Takeover", transaction)
    rows = {row.uuid: row for row in nodes}

    errors = found.take_each({**rows, OVERLAID.uuid: None}, {GPU.uuid: GPU})

    assert errors.keys() == {OVERLAID.uuid}
    assert len(saves) <= 13  # two for each halving, and the first
