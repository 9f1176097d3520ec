"""Questions to a driver: whether it still has a node or device that its listing lacks.

A listing can be well formed and still lack nodes: a proxy, a filter or a limit may withhold them.
"""

import random
import time
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Final

from wharfinger.driver import ComputeDriver
from wharfinger.exceptions import PartialListing, WharfingerError
from wharfinger.placement.client import PlacementClient
from wharfinger.providers import Provider
from wharfinger.providers.provider_record import Record
from wharfinger.reconcile.driver_calls import guarded_bool
from wharfinger.reconcile.node_list import NodeList

_STILL_THERE: Final = (
    "kept: the listing lacks it, but the driver still has it when asked for it alone"
)
#: The number of names that a message about a partial listing shows.
_SOME: Final = 10
#: Seconds after which no further question is asked: a backend may let each one time out.
_PATIENCE: Final = 300.0
_NOT_ASKED: Final = (
    f"the driver has not been asked whether it is gone, since questions about others took "
    f"{_PATIENCE:g} s: kept until a later full cycle asks"
)


@dataclass(slots=True)
class Availability:
    """Questions to a driver about nodes and devices that a listing lacks.

    Each question is asked once: ``answers`` keeps the answers for the cycle. ``live`` are the
    providers in Placement, ``records`` our records of them, both by uuid. ``clock`` gives seconds:
    after some minutes no further question is asked.
    """

    driver: ComputeDriver
    client: PlacementClient
    nodes: NodeList
    live: Mapping[str, Provider]
    records: Mapping[str, Record]
    answers: dict[str, bool | WharfingerError] = field(kw_only=True)
    clock: Callable[[], float] = field(default=time.monotonic, kw_only=True)
    _still_there: set[str] = field(default_factory=set, init=False)

    @property
    def problems(self) -> tuple[PartialListing, ...]:
        """The problem of a partial listing; empty for a listing that is not partial."""
        names = sorted(self._still_there)
        if not names:
            return ()
        more = "" if len(names) <= _SOME else f" and {len(names) - _SOME} more"
        return (
            PartialListing(
                instance=self.driver.name,
                count=len(names),
                names=tuple(names),
                some=", ".join(names[:_SOME]) + more,
            ),
        )

    def keep(self, uuids: Iterable[str]) -> dict[str, str]:
        """Return the reasons to keep some of these providers, by uuid; all are in ``live``.

        The driver still has such a provider, or it gives no answer. The order is random, so that
        questions that time out do not prevent the same other questions in each cycle.
        """
        reasons: dict[str, str] = {}
        listed, due = self.nodes.listed, sorted(uuids)
        end = self.clock() + _PATIENCE
        for uuid in random.sample(due, len(due)):
            if self.clock() >= end:
                reasons[uuid] = _NOT_ASKED
                continue
            try:
                name = self._what_is_there(self.live[uuid], listed)
            except WharfingerError as error:
                reasons[uuid] = f"kept: the driver gives no answer whether it is gone: {error}"
                continue
            if name is not None:
                reasons[uuid] = _STILL_THERE
                self._still_there.add(name)
        return reasons

    def _what_is_there(self, provider: Provider, listed: Set[str]) -> str | None:
        """Return the name of the node or provider that the driver still has, or None.

        A child is gone with its node. A node is gone if another listed node has its name: the
        driver would answer for that one. Raises BackendError, PlacementError.
        """
        driver, root = self.driver, provider.root_uuid
        if root not in listed:
            node = self._node_name(root)
            if (
                node is not None
                and node not in self.nodes.roots
                and self._ask(f"node_is_available({node})", lambda: driver.node_is_available(node))
            ):
                return node
        if provider.uuid != root and self._ask(
            f"provider_is_available({provider.uuid}, {provider.name})",
            lambda: driver.provider_is_available(provider.uuid, provider.name),
        ):
            return provider.name
        return None

    def _node_name(self, root_uuid: str) -> str | None:
        """Return the node's name as the driver knows it; look up the root of another owner."""
        record = self.records.get(root_uuid)
        known = (record.applied if record else None) or self.live.get(root_uuid)
        if known is not None:
            return known.name
        return next((one.name for one in self.client.list_providers(uuid=root_uuid)), None)

    def _ask(self, operation: str, question: Callable[[], object]) -> bool:
        """Return the driver's answer; raises BackendError without one."""
        if operation not in self.answers:
            try:
                self.answers[operation] = guarded_bool(self.driver.name, operation, question)
            except WharfingerError as error:
                self.answers[operation] = error
        answer = self.answers[operation]
        if isinstance(answer, WharfingerError):
            raise answer
        return answer
