"""The Placement of a run: the real service, in this process. It is empty when a rule begins."""

import threading
from collections.abc import Mapping
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from wharfinger.conformance.direct_adapter import DirectAdapter
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.conformance.placement_diff import Contents
from wharfinger.placement.embedded import EmbeddedPlacement
from wharfinger.placement.model import ProviderSummary
from wharfinger.providers import Inventory, Provider

#: Seconds between two checks of whether the server has to stop.
_PAUSE: Final = 0.05


class RunPlacement:
    """The embedded Placement, with the methods that the checks need.

    ``url`` is for backends in other processes that use Placement themselves. The server answers
    one request at a time.
    """

    def __init__(self, service: EmbeddedPlacement) -> None:
        self._service: Final = service
        self._lock: Final = threading.Lock()
        self._server: WSGIServer | None = None
        self._known: Final[dict[str, tuple[ProviderSummary, Provider]]] = {}
        self.client: Final = WritingClient(DirectAdapter(service), connections=4)

    @property
    def url(self) -> str:
        """The URL, on a free port of 127.0.0.1. The first access starts the server."""
        if self._server is None:
            self._server = make_server("127.0.0.1", 0, self._answer, _Server, _Quiet)
            threading.Thread(
                target=self._server.serve_forever, args=(_PAUSE,), name="placement", daemon=True
            ).start()
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """Stop the server, if it was started."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Any:
        # Each caller has all roles, as inside the process.
        roles = {"HTTP_X_AUTH_TOKEN": "admin", "HTTP_X_ROLES": "admin,member,reader,service"}
        with self._lock:
            return self._service.application({**environ, **roles}, start_response)

    def listed(self) -> list[ProviderSummary]:
        """Return the names, uuids and generations of all providers.

        A generation changes with each change of the provider and each new allocation.
        """
        return self.client.list_providers()

    def contents(self) -> Contents:
        """Return all providers by name, with inventories, traits and aggregates."""
        return {one.name: self._content(one) for one in self.listed()}

    def _content(self, one: ProviderSummary) -> Provider:
        if self._known.get(one.uuid, (None, None))[0] != one:
            provider = Provider(
                uuid=one.uuid,
                name=one.name,
                root_uuid=one.root_provider_uuid,
                parent_uuid=one.parent_provider_uuid,
                inventories=self.client.get_inventories(one.uuid).inventories,
                traits=self.client.get_traits(one.uuid).traits,
                aggregates=self.client.get_aggregates(one.uuid).aggregates,
            )
            self._known[one.uuid] = (one, provider)
        return self._known[one.uuid][1]

    def create(
        self,
        name: str,
        inventories: Mapping[str, Inventory],
        traits: frozenset[str] = frozenset(),
        *,
        parent: str | None = None,
        uuid: str,
    ) -> None:
        """Create a provider as another program would: below the one named ``parent``, or a root."""
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
        """Add a CUSTOM_ trait to a provider as another program would."""
        self.client.create_trait(trait)
        found = self.client.get_traits(uuid)
        self.client.set_traits(uuid, found.resource_provider_generation, {*found.traits, trait})

    def allocate(self, consumer: str, amounts: Mapping[str, Mapping[str, int]]) -> None:
        """Create the allocations of a new consumer: amounts by provider uuid and class."""
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
        """Return a consumer's allocated amounts by provider uuid and class."""
        held = self.client.get_allocations(consumer)["allocations"]
        return {uuid: dict(one["resources"]) for uuid, one in held.items()}

    def empty(self) -> None:
        """Delete all allocations and providers."""
        self._known.clear()  # a new provider with an old uuid begins with generation 0 again
        providers = self.client.list_providers()
        for one in providers:
            for consumer in self.client.get_provider_allocations(one.uuid):
                self.client.delete_allocations(consumer)
        while providers:
            parents = {one.parent_provider_uuid for one in providers}
            for one in providers:
                if one.uuid not in parents:
                    self.client.delete_provider(one.uuid)
            providers = [one for one in providers if one.uuid in parents]


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Do not log requests."""
