"""Random orders of writes by owners, reasons of drivers, reservations, cycles and restarts.

A model computes what Placement must show after each cycle.
"""

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.lab import placement as lab
from tests.lab.cycles import Publishing
from tests.lab.drawing import Draw
from tests.lab.placement import PlacementFixture
from tests.lab.reserving import (
    ReservingDriver,
    drives,
    figures,
    is_full,
    lose_records,
    makes,
    node,
    overlaid,
    summary,
    writes,
)
from wharfinger.driver import Allocations
from wharfinger.providers import ProviderTree
from wharfinger.reconcile.cycle_result import CycleResult
from wharfinger.reconcile.reserve_and_release import Reservations

#: Node names by provider: our child gpu, and the root card of another owner.
NODES = {"gpu": "cn", "card": "card"}


class World:
    """The driver, Placement, and a model of what Placement must show.

    ``own`` has the inventories without reservations, and ``foreign`` the reservations of other
    programs. ``reasons`` has the driver's current reasons, ``seen`` those in the last snapshot.
    """

    def __init__(self, publishing: Publishing, placement: PlacementFixture) -> None:
        self.publishing, self.placement = publishing, placement
        self.driver = ReservingDriver()
        drives(publishing, self.driver)
        self.own = {"gpu": {"VGPU": (4, 1), "FPGA": (2, 0)}, "card": {"FPGA": (3, 2)}}
        self.foreign: set[tuple[str, str]] = set()
        self.reasons: dict[str, set[str]] = {name: set() for name in NODES}
        self.seen = self.reasons
        self.holders: dict[str, set[str]] = {name: set() for name in NODES}
        self.has_listing = False
        makes(placement, "card", **self.own["card"])
        self.driver.nodes |= {"cn": self._host, "card": overlaid}
        self.sync()

    def _host(self, tree: ProviderTree, name: str, allocations: Allocations | None) -> None:
        node({"VCPU": (8, 0)}, gpu=self.own["gpu"])(tree, name, allocations)

    # Cycles.

    def sync(self) -> None:
        self.seen = {name: set(reasons) for name, reasons in self.reasons.items()}
        self.has_listing = True
        self._cycle(self.publishing.cycle.sync)

    def drift(self) -> None:
        if self.has_listing:
            self._cycle(self.publishing.cycle.drift)
        else:
            self.sync()

    def restart(self) -> None:
        self.publishing.restarted()
        self.has_listing = False

    def delete_records(self) -> None:
        """Delete the records: a full reservation of a driver then counts as another program's.

        The exceptions are providers whose inventory a stored reservation has, and providers that
        their owner has written since.
        """
        for name in NODES:
            if self.seen[name] and not self.holders[name]:
                self.foreign |= {
                    (name, kind)
                    for kind, (total, reserved) in figures(self.placement, name).items()
                    if reserved == total
                }
        lose_records(self.publishing)
        self.sync()

    def _cycle(self, cycle: Callable[[], CycleResult]) -> None:
        outcome = cycle()
        assert not outcome.problems
        assert self.foreign == {(one.name, kind) for one in outcome.foreign for kind in one.classes}
        for name, own in self.own.items():
            assert figures(self.placement, name) == {
                kind: (total, total if self._is_reserved(name, kind) else figure)
                for kind, (total, figure) in own.items()
            }

    def _is_reserved(self, name: str, kind: str) -> bool:
        return bool((name, kind) in self.foreign or self.holders[name] or self.seen[name])

    # Owners.

    def driver_says(self, total: int, figure: int) -> None:
        self.own["gpu"]["VGPU"] = total, min(figure, total - 1)
        self.sync()

    def owner_writes(self, total: int, figure: int) -> None:
        self.own["card"] = {"FPGA": (total, min(figure, total - 1))}
        self.foreign.discard(("card", "FPGA"))
        writes(self.placement, "card", **self.own["card"])

    def other_program_reserves(self, name: str) -> None:
        self.drift()
        if not self.holders[name] and not self.seen[name]:
            self.foreign |= {(name, kind) for kind in self.own[name]}
            full = {kind: (total, total) for kind, (total, _) in self.own[name].items()}
            writes(self.placement, name, **full)

    def other_program_lowers(self, name: str) -> None:
        found = dict(figures(self.placement, name))
        for kind, (total, _reserved) in list(found.items()):
            if (name, kind) in self.foreign:
                found[kind] = total, min(1, total - 1)
                if name == "card":
                    self.own[name] = {kind: found[kind]}
                self.foreign.discard((name, kind))
        writes(self.placement, name, **found)

    # Holders.

    def reason(self, name: str, reason: str) -> None:
        self.reasons[name] ^= {reason}
        self.driver.says(NODES[name], name, *sorted(self.reasons[name]))

    def hold(self, name: str, holder: str) -> None:
        provider = summary(self.placement, name)
        holds = Reservations(self.publishing.client, self.publishing.context)
        if holder in self.holders[name]:
            holds.release(provider, holder)
        else:
            holds.reserve(provider, holder=holder, reason="why")
            assert is_full(self.placement, name)
        self.holders[name] ^= {holder}


_NAME = st.sampled_from(sorted(NODES))
_FIGURES = st.tuples(st.integers(1, 6), st.integers(0, 5))
_ACTS = st.one_of(
    st.tuples(st.sampled_from(["sync", "drift", "drift", "restart", "delete_records"])),
    st.tuples(st.sampled_from(["driver_says", "owner_writes"]), _FIGURES).map(
        lambda act: (act[0], *act[1])
    ),
    st.tuples(st.sampled_from(["other_program_reserves", "other_program_lowers"]), _NAME),
    st.tuples(st.just("reason"), _NAME, st.sampled_from(["cleaning", "maintenance"])),
    st.tuples(st.just("hold"), _NAME, st.sampled_from(["ann", "bob", "job"])),
)


def test_placement_after_random_acts_matches_the_model(
    placement: PlacementFixture, tmp_path_factory: pytest.TempPathFactory, draw: Draw
) -> None:
    @draw.examples(40, some=2)
    @given(acts=st.lists(_ACTS, min_size=8, max_size=20))
    @example(
        acts=[
            ("reason", "card", "cleaning"),
            ("sync",),
            ("owner_writes", 1, 0),
            ("delete_records",),
        ]
    )
    @example(
        acts=[
            ("other_program_reserves", "card"),
            ("hold", "card", "ann"),
            ("other_program_lowers", "card"),
            ("delete_records",),
        ]
    )
    @example(
        acts=[
            ("hold", "card", "ann"),
            ("owner_writes", 3, 0),
            ("hold", "card", "bob"),
            ("delete_records",),
        ]
    )
    @example(acts=[("owner_writes", 4, 0), ("hold", "card", "ann"), ("owner_writes", 5, 4)])
    @example(
        acts=[
            ("hold", "gpu", "ann"),
            ("sync",),
            ("hold", "gpu", "ann"),
            ("other_program_reserves", "gpu"),
        ]
    )
    def after_any_acts(acts: list[tuple[str | int, ...]]) -> None:
        lab.empty()
        with Publishing(placement, tmp_path_factory.mktemp("state")) as publishing:
            world = World(publishing, placement)
            for name, *arguments in acts:
                getattr(world, str(name))(*arguments)
            world.drift()
            world.reasons = {name: set() for name in NODES}
            for provider, its in NODES.items():
                world.driver.says(its, provider)
                for holder in sorted(world.holders[provider]):
                    world.hold(provider, holder)
            world.sync()
            assert not publishing.cycle.sync().steps

    after_any_acts()
