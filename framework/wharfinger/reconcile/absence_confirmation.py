"""Ask the driver about providers that its listing lacks."""

import random
import time
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from typing import Final

from wharfinger.driver import ComputeDriver
from wharfinger.exceptions import PartialListing, WharfingerError
from wharfinger.placement.client import PlacementClient
from wharfinger.providers import Provider
from wharfinger.reconcile.cycle_state import CycleState
from wharfinger.reconcile.driver_calls import guarded_bool

_STILL_THERE: Final = (
    "kept: the driver's list lacks this provider or its node, but the driver reports that it is "
    "still there"
)
#: The number of names that a message about a partial listing shows.
_SOME: Final = 10
#: Seconds after which no further question is asked: each question to a backend may time out.
_PATIENCE: Final = 300.0
_NOT_ASKED: Final = (
    f"kept until a later full cycle asks the driver whether this provider is gone: this cycle "
    f"has already spent {_PATIENCE:g} s on such questions"
)


@dataclass(slots=True)
class Availability:
    """Asks a driver whether providers that its listing lacks still exist."""

    driver: ComputeDriver
    client: PlacementClient
    state: CycleState
    #: All answers of the cycle. No question is asked twice.
    answers: dict[str, bool | WharfingerError]
    clock: Callable[[], float] = time.monotonic

    def keep(self, uuids: Iterable[str]) -> tuple[dict[str, str], list[PartialListing]]:
        """Return the reasons to keep absent providers, by uuid, and problems to report."""
        reasons: dict[str, str] = {}
        found: set[str] = set()
        listed, due = self.state.every_node.listed, sorted(uuids)
        end = self.clock() + _PATIENCE
        # In random order: questions that time out must not prevent the same others each cycle.
        for uuid in random.sample(due, len(due)):
            if self.clock() >= end:
                reasons[uuid] = _NOT_ASKED
                continue
            try:
                name = self._name_if_available(self.state.live[uuid], listed)
            except WharfingerError as error:
                reasons[uuid] = f"kept: it is unknown whether the driver still has it: {error}"
                continue
            if name is not None:
                reasons[uuid] = _STILL_THERE
                found.add(name)
        names = sorted(found)
        more = "" if len(names) <= _SOME else f" and {len(names) - _SOME} more"
        problem = PartialListing(
            instance=self.driver.name,
            count=len(names),
            names=tuple(names),
            some=", ".join(names[:_SOME]) + more,
        )
        return reasons, [problem] if names else []

    def _name_if_available(self, provider: Provider, listed: Set[str]) -> str | None:
        driver, root = self.driver, provider.root_uuid
        if root not in listed:
            node = self._node_name(root)
            if (
                node is not None
                # The driver would answer for the listed node of this name.
                and node not in self.state.every_node.roots
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
        known = self.state.record(root_uuid).applied or self.state.live.get(root_uuid)
        if known is not None:
            return known.name
        return next((one.name for one in self.client.list_providers(uuid=root_uuid)), None)

    def _ask(self, operation: str, question: Callable[[], object]) -> bool:
        if operation not in self.answers:
            try:
                self.answers[operation] = guarded_bool(self.driver.name, operation, question)
            except WharfingerError as error:
                self.answers[operation] = error
        answer = self.answers[operation]
        if isinstance(answer, WharfingerError):
            raise answer
        return answer
