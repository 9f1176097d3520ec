"""The real Placement service of a run, in this process."""

import threading
from collections import defaultdict
from collections.abc import Mapping
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from sqlalchemy import Connection, text

from wharfinger.conformance.direct_adapter import DirectAdapter
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.conformance.placement_diff import Contents
from wharfinger.placement.embedded import EmbeddedPlacement
from wharfinger.placement.model import ProviderSummary
from wharfinger.providers import Inventory, Provider

#: Seconds between two checks of whether the server has to stop.
_PAUSE: Final = 0.05
_PROVIDERS: Final = (
    "SELECT own.id, own.uuid, own.name, root.uuid, parent.uuid FROM resource_providers own"
    " JOIN resource_providers root ON root.id = own.root_provider_id"
    " LEFT JOIN resource_providers parent ON parent.id = own.parent_provider_id"
)
_FIGURES: Final = ("total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio")
_INVENTORIES: Final = (
    f"SELECT resource_provider_id, name, {', '.join(_FIGURES)} FROM inventories"
    " JOIN resource_classes ON resource_classes.id = resource_class_id"
)
_TRAITS: Final = (
    "SELECT resource_provider_id, name FROM resource_provider_traits"
    " JOIN traits ON traits.id = trait_id"
)
_AGGREGATES: Final = (
    "SELECT resource_provider_id, uuid FROM resource_provider_aggregates"
    " JOIN placement_aggregates ON placement_aggregates.id = aggregate_id"
)
#: The tables of providers and allocations.
_TABLES: Final = (
    *("allocations", "consumers", "inventories", "resource_provider_aggregates"),
    *("resource_provider_traits", "resource_providers"),
)


class RunPlacement:
    """The embedded Placement of a run."""

    def __init__(self, service: EmbeddedPlacement) -> None:
        self._service: Final = service
        self._lock: Final = threading.Lock()
        self._server: WSGIServer | None = None
        self.client: Final = WritingClient(DirectAdapter(service), connections=4)

    @property
    def url(self) -> str:
        """The URL of Placement for other processes."""
        if self._server is None:
            self._server = make_server("127.0.0.1", 0, self._answer, _Server, _Quiet)
            threading.Thread(
                target=self._server.serve_forever, args=(_PAUSE,), name="placement", daemon=True
            ).start()
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """Stop the HTTP server, if it runs."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Any:
        # Each caller has all roles, as inside the process.
        roles = {"HTTP_X_AUTH_TOKEN": "admin", "HTTP_X_ROLES": "admin,member,reader,service"}
        with self._lock:
            return self._service.application({**environ, **roles}, start_response)

    def listed(self) -> list[ProviderSummary]:
        """Return a summary of each provider."""
        return self.client.list_providers()

    def contents(self) -> Contents:
        """Return all providers by name."""
        with self._service.engine.connect() as connection:
            inventories = _rows(connection, _INVENTORIES)
            traits = _rows(connection, _TRAITS)
            aggregates = _rows(connection, _AGGREGATES)
            return {
                name: Provider(
                    uuid=uuid,
                    name=name,
                    root_uuid=root,
                    parent_uuid=parent,
                    inventories={
                        kind: Inventory(**dict(zip(_FIGURES, figures, strict=True)))
                        for kind, *figures in inventories[key]
                    },
                    traits=frozenset(trait for (trait,) in traits[key]),
                    aggregates=frozenset(aggregate for (aggregate,) in aggregates[key]),
                )
                for key, uuid, name, root, parent in connection.execute(text(_PROVIDERS))
            }

    def create(
        self,
        name: str,
        inventories: Mapping[str, Inventory],
        traits: frozenset[str] = frozenset(),
        *,
        parent: str | None = None,
        uuid: str,
    ) -> None:
        """Create a provider, and the custom traits and resource classes that it needs.

        ``parent`` is the name of the parent provider.
        """
        above = None if parent is None else self.client.list_providers(name=parent)[0].uuid
        made = self.client.create_provider(uuid, name, above)
        for trait in sorted(traits):
            if trait.startswith("CUSTOM_"):
                self.client.create_trait(trait)
        for kind in sorted(inventories):
            if kind.startswith("CUSTOM_"):
                self.client.create_resource_class(kind)
        generation = self.client.set_inventories(uuid, made.generation, inventories)
        self.client.set_traits(uuid, generation, traits)

    def add_trait(self, uuid: str, trait: str) -> None:
        """Add a CUSTOM_ trait to a provider."""
        self.client.create_trait(trait)
        found = self.client.get_traits(uuid)
        self.client.set_traits(uuid, found.resource_provider_generation, {*found.traits, trait})

    def allocate(self, consumer: str, amounts: Mapping[str, Mapping[str, int]]) -> None:
        """Create a consumer's allocations, by provider uuid and resource class."""
        self.client.set_allocations(
            {
                consumer: {
                    "allocations": {uuid: {"resources": use} for uuid, use in amounts.items()},
                    "project_id": "conformance",
                    "user_id": "conformance",
                    "consumer_generation": None,
                    "consumer_type": "INSTANCE",
                }
            }
        )

    def allocated(self, consumer: str) -> dict[str, dict[str, int]]:
        """Return a consumer's allocations, by provider uuid and resource class."""
        held = self.client.get_allocations(consumer)["allocations"]
        return {uuid: dict(one["resources"]) for uuid, one in held.items()}

    def empty(self) -> None:
        """Delete all allocations and providers."""
        with self._service.engine.begin() as connection:
            for table in _TABLES:
                connection.execute(text(f"DELETE FROM {table}"))


def _rows(connection: Connection, query: str) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = defaultdict(list)
    for key, *values in connection.execute(text(query)):
        found[key].append(values)
    return found


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass
