"""A fixture that runs a real Ironic for tests."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from wharfinger_harnesses.daemons import TIMEOUT, LabError
from wharfinger_harnesses.ironic_rows import Rows
from wharfinger_harnesses.openstack import PAUSE, OpenStackService, Options


class Ironic(OpenStackService):
    """Runs Ironic's conductor and API, and sends requests with the newest microversion.

    Most methods raise LabError if Ironic answers with an error.
    """

    name = "ironic"
    service_program = Path(__file__).with_name("ironic_service.py")
    host = "ironic"
    rows: Rows

    def __init__(self, options: Options | None = None) -> None:
        super().__init__(options or {})
        self.headers["X-OpenStack-Ironic-API-Version"] = "latest"

    def _setUp(self) -> None:
        super()._setUp()
        self.rows = Rows(self._engine)
        self.serve()

    def create_node(
        self,
        name: str | None,
        *,
        resource_class: str | None = "baremetal.gold",
        extra: Mapping[str, Any] | None = None,
        owner: str | None = None,
        **fields: Any,
    ) -> str:
        """Enroll a simulated node; return its uuid."""
        body = {
            "driver": "lab",
            "name": name,
            "resource_class": resource_class,
            "extra": extra or {},
            **fields,
        }
        uuid = str(self._succeed("POST", "/v1/nodes", body)["uuid"])
        if owner is not None:
            # Only a request with a project or system scope may create a node with an owner.
            self.update_node(uuid, owner=owner)
        return uuid

    def node(self, uuid: str) -> dict[str, Any]:
        """Return a node."""
        described: dict[str, Any] = self._succeed("GET", f"/v1/nodes/{uuid}")
        return described

    def update_node(self, uuid: str, **fields: Any) -> None:
        """Set these fields of a node."""
        changes = [
            {"op": "add", "path": f"/{name}", "value": value} for name, value in fields.items()
        ]
        self._succeed("PATCH", f"/v1/nodes/{uuid}", changes)

    def set_traits(self, uuid: str, *traits: str) -> None:
        """Replace the traits of a node."""
        self._succeed("PUT", f"/v1/nodes/{uuid}/traits", {"traits": traits})

    def provision(self, uuid: str, target: str, **body: Any) -> None:
        """Request a change of a node's provision state."""
        path = f"/v1/nodes/{uuid}/states/provision"
        self._succeed("PUT", path, {"target": target, **body})

    def make_available(self, *uuids: str) -> None:
        """Let Ironic clean enrolled nodes, and wait until they are available."""
        for uuid in uuids:
            self.provision(uuid, "manage")
        for uuid in uuids:
            self.wait_for(uuid, "manageable")
            self._succeed("PUT", f"/v1/nodes/{uuid}/states/power", {"target": "power off"})
        for uuid in uuids:
            self._wait(uuid, "power off", lambda node: node["power_state"] == "power off")
            self.provision(uuid, "provide")
        for uuid in uuids:
            self.wait_for(uuid, "available")

    def deploy(self, uuid: str, instance_uuid: str) -> None:
        """Begin to deploy an available node for an instance."""
        self.update_node(uuid, instance_uuid=instance_uuid)
        self.provision(uuid, "active")

    def set_maintenance(self, uuid: str, reason: str) -> None:
        """Put a node into maintenance."""
        self._succeed("PUT", f"/v1/nodes/{uuid}/maintenance", {"reason": reason})

    def end_maintenance(self, uuid: str) -> None:
        """Take a node out of maintenance."""
        self._succeed("DELETE", f"/v1/nodes/{uuid}/maintenance")

    def delete_node(self, uuid: str) -> None:
        """Remove a node from Ironic."""
        self._succeed("DELETE", f"/v1/nodes/{uuid}")

    def go(self, uuid: str) -> None:
        """Let a waiting node continue, now or when it waits next."""
        (self.directory / "go" / uuid).touch()

    def clear_goes(self) -> None:
        """Cancel each ``go`` that no node has used yet."""
        for go in (self.directory / "go").iterdir():
            go.unlink()

    def wait_for(self, uuid: str, state: str) -> dict[str, Any]:
        """Wait until a node is in this provision state; return the node.

        Raises LabError if the node does not reach the state.
        """

        def arrived(node: Mapping[str, Any]) -> bool:
            settled = state.endswith("ing") or node["reservation"] is None
            return bool(node["provision_state"] == state and settled)

        return self._wait(uuid, state, arrived)

    def _wait(
        self, uuid: str, what: str, arrived: Callable[[Mapping[str, Any]], bool]
    ) -> dict[str, Any]:
        deadline = time.monotonic() + TIMEOUT
        while not arrived(node := self.node(uuid)):
            failed = node["provision_state"].endswith(("error", "failed"))
            if (failed and node["reservation"] is None) or time.monotonic() > deadline:
                raise LabError(
                    f"node {uuid} is not {what} but {node['provision_state']}, locked by "
                    f"{node['reservation']}: {node['last_error']}"
                )
            time.sleep(PAUSE)
        return node

    def insert_nodes(self, count: int, **columns: Any) -> list[str]:
        """Insert copies of the oldest node into the database; return the new uuids.

        A value of ``columns`` may be a function of the copy's index.
        """
        first = self.rows.read()
        if first is None:
            raise LabError("there is no node to copy")
        uuids = [str(uuid4()) for _ in range(count)]
        self.rows.write(
            first,
            [
                {"name": f"node-{uuid}", **_values(columns, index), "uuid": uuid}
                for index, uuid in enumerate(uuids)
            ],
        )
        return uuids


def _values(columns: Mapping[str, Any], index: int) -> dict[str, Any]:
    return {name: value(index) if callable(value) else value for name, value in columns.items()}
