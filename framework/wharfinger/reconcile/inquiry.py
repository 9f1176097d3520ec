"""What a plan has to know of Placement besides the trees, asked for one by one."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from wharfinger.driver import Allocations
from wharfinger.exceptions import (
    NotFound,
    PermissionRefused,
    PlacementError,
    PlacementUnavailable,
)
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.reader import FEW, PlacementReader
from wharfinger.providers import Provider
from wharfinger.reconcile.desire import Answers


class Inquiry:
    """Look-ups for one plan, made of ``answers`` and of what Placement has, ``live``.

    One that fails leaves its tree as it is, and the others go on. Each raises PlacementUnavailable,
    PermissionRefused where the next would fare no better, NotFound where somebody deleted what was
    just read: all is read again then.
    """

    def __init__(
        self,
        client: PlacementClient,
        reader: PlacementReader,
        answers: Answers,
        live: Mapping[str, Provider],
    ) -> None:
        self._client: Final = client
        self._reader: Final = reader
        self._answers: Final = answers
        self._live: Final = live

    def unseen_parents(self, uuids: Iterable[str]) -> frozenset[str]:
        """In the trees of these providers, what has children that were not listed."""
        found: frozenset[str] = frozenset()
        for root in sorted({self._live[uuid].root_uuid for uuid in uuids}):
            with self._confined(root):
                found |= self._reader.unseen_parents(root, self._live.keys())
        return found

    def allocated(self, uuids: Iterable[str]) -> frozenset[str]:
        """Those of the providers that have allocations."""
        found: set[str] = set()
        for uuid in uuids:
            with self._confined(self._live[uuid].root_uuid):
                if self._client.get_provider_allocations(uuid):
                    found.add(uuid)
        return frozenset(found)

    def elsewhere(self, looked_up: Iterable[str]) -> dict[str, Provider]:
        """Other providers that have the names of what is to be created or renamed.

        Those ``looked_up`` by name already are in ``live`` if they are there.
        """
        new = {
            wanted.provider.name: wanted.provider.root_uuid
            for uuid, wanted in self._answers.desired.items()
            if wanted.stated
            and (uuid not in self._live or self._live[uuid].name != wanted.provider.name)
        }
        if not new:
            return {}
        here = {provider.name: provider for provider in self._live.values()}
        unknown = new.keys() - set(looked_up) - here.keys()
        found = {name: here[name] for name in new.keys() & here.keys()}
        if len(unknown) > FEW:
            return found | self._reader.elsewhere(unknown)
        for name in sorted(unknown):
            with self._confined(new[name]):
                found |= self._reader.elsewhere([name])
        return found

    @contextmanager
    def _confined(self, root_uuid: str) -> Iterator[None]:
        """Have a look-up that fails leave its tree as it is, and the others go on."""
        try:
            yield
        except (PlacementUnavailable, PermissionRefused, NotFound):
            raise
        except PlacementError as error:
            self._answers.failed.add(root_uuid)
            self._answers.problems.append(error)


def allocations_of(client: PlacementClient, uuids: Iterable[str]) -> Allocations:
    """The allocations of all consumers that have some of these providers, as a driver edits them.

    Raises PlacementError.
    """
    wanted = set(uuids)
    consumers = {
        consumer for uuid in sorted(wanted) for consumer in client.get_provider_allocations(uuid)
    }
    allocations = {
        consumer: _without_generations(client.get_allocations(consumer))
        for consumer in sorted(consumers)
    }
    # One that has gone since has nothing here any more.
    return {
        consumer: its
        for consumer, its in allocations.items()
        if not wanted.isdisjoint(its["allocations"])
    }


def _without_generations(allocations: Mapping[str, Any]) -> dict[str, Any]:
    """A consumer's allocations as they are sent: the providers' generations are not."""
    amounts = {
        uuid: {"resources": part["resources"]} for uuid, part in allocations["allocations"].items()
    }
    return {**allocations, "allocations": amounts}
