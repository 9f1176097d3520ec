"""Real nova 34 services in this process, with the Placement of nova's own fixtures over HTTP.

nova's fixtures change global variables of nova, Placement and oslo, so no other OpenStack service
can run in this process. The program wharfinger runs in a process of its own.
"""

# ruff: noqa: E402 - nova is configured before it is imported

import importlib.metadata
import io
import os
import threading
import time
import warnings
from collections.abc import Iterable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from uuid import uuid4
from wsgiref.simple_server import make_server

import fixtures

# nova reads this variable at its import. Its services then run in threads.
os.environ["OS_NOVA_DISABLE_EVENTLET_PATCHING"] = "true"

from nova import monkey_patch

# nova's commands refuse to run where eventlet is imported, as libraries of oslo do.
monkey_patch.patch = lambda backend="eventlet": None

from nova import context, objects
from nova.cmd import manage
from nova.tests.functional.integrated_helpers import ProviderUsageBaseTestCase
from oslo_utils.fixture import uuidsentinel
from placement import db_api, deploy

from tests.lab.placement import _QuietHandler, _ThreadingServer
from wharfinger.sqlite import allow_concurrent_writers


class _Services(ProviderUsageBaseTestCase):  # type: ignore[misc]
    """nova's API, scheduler and conductor, in a test case, which nova's fixtures require."""

    compute_driver = "fake.MediumFakeDriver"
    __test__ = False

    def runTest(self) -> None:  # noqa: N802 - unittest's name
        """Do nothing. unittest requires the method."""


class _Clock:
    """Replaces the module ``time`` in nova's Placement client, so that a test can pass minutes."""

    def __init__(self) -> None:
        self.now = time.time()

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Nova(fixtures.Fixture):
    """Runs nova's services; ``start_compute`` starts the nova-compute of a host.

    ``url`` is the URL of Placement.
    """

    def __init__(self, compute_driver: str = "fake.MediumFakeDriver") -> None:
        super().__init__()
        self._compute_driver = compute_driver

    def _setUp(self) -> None:
        self.useFixture(fixtures.MonkeyPatch("nova.conf.paths.state_path_def", _path))
        self._clock = _Clock()
        self.useFixture(fixtures.MonkeyPatch("nova.scheduler.client.report.time", self._clock))
        self.services = _Services()
        self.services.compute_driver = self._compute_driver
        self.addCleanup(self.services.doCleanups)
        self.services.setUp()
        # nova's models still use noload(), and nova's fixtures make SQLAlchemy's warnings errors.
        warnings.filterwarnings("ignore", message=".*noload")
        self.addCleanup(self.services.tearDown)
        self.api = self.services.api
        self.url = self._serve(self.services.placement.fixture.conf_fixture.conf)

    def _serve(self, conf: Any) -> str:
        """Serve Placement on a free port until the clean-up; return its URL."""
        allow_concurrent_writers(db_api.get_placement_engine())
        placement = deploy.loadapp(conf)

        def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
            environ.setdefault("HTTP_X_ROLES", "admin,member,reader,service")
            answer: Iterable[bytes] = placement(environ, start_response)
            return answer

        server = make_server("127.0.0.1", 0, application, _ThreadingServer, _QuietHandler)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return f"http://127.0.0.1:{server.server_port}"

    # nova-compute.

    def set_options(self, group: str, **options: Any) -> None:
        """Set options of nova in a group of its configuration."""
        self.services.flags(group=group, **options)

    def start_compute(self, host: str, uuid: str | None = None) -> None:
        """Start the nova-compute of a host. ``uuid`` gives its node another uuid than before."""
        if uuid is not None:
            self.useFixture(fixtures.MockPatchObject(uuidsentinel, f"node_{host}", uuid))
        self.services._start_compute(host)

    def stop_compute(self, host: str) -> None:
        """Stop the nova-compute of a host."""
        self.services.computes.pop(host).stop()

    def has_node(self, host: str, name: str) -> None:
        """Give the only node of a host's hypervisor another name."""
        self.services.computes[host].manager.driver._set_nodes([name])

    def run_periodics(self) -> None:
        """Run the periodic tasks of each nova-compute once."""
        self.services._run_periodics()

    def pass_minutes(self, count: int) -> None:
        """Set the clock ahead minute by minute, and run the periodic tasks after each minute."""
        for _ in range(count):
            self._clock.now += 60
            self.run_periodics()

    def refresh(self) -> None:
        """Let each nova-compute read its providers from Placement now, as it does every 300 s."""
        for compute in self.services.computes.values():
            compute.manager.reportclient.clear_provider_cache()
        self.run_periodics()

    # Actions of the operator and of users.

    def delete_service(self, host: str) -> None:
        """Delete the nova-compute service of a host, as ``openstack compute service delete``."""
        self.api.api_delete(f"/os-services/{self._service_id(host)}")

    def evacuate(self, server: str, host: str, target: str) -> None:
        """Evacuate a server to the host ``target`` from a host whose nova-compute is stopped."""
        self.api.put_service(self._service_id(host), {"forced_down": True})
        self.services._evacuate_server({"id": server}, expected_host=target)

    def _service_id(self, host: str) -> str:
        [service] = self.api.get_services(binary="nova-compute", host=host)
        return str(service["id"])

    def manage_placement(self, command: str, **options: Any) -> tuple[int, str]:
        """Run ``nova-manage placement COMMAND``; return its exit code and output."""
        out = io.StringIO()
        with redirect_stdout(out):
            code = getattr(manage.PlacementCommands(), command)(**options)
        return int(code), out.getvalue()

    def boot(
        self, extra_specs: dict[str, str], state: str = "ACTIVE", host: str | None = None
    ) -> str:
        """Boot a server with these extra specs, wait for its state, and return its uuid."""
        flavor = self.services._create_flavor(
            vcpu=1, memory_mb=512, disk=1, ephemeral=0, extra_spec=extra_specs
        )
        request = self.services._build_server(flavor_id=flavor, networks="none", host=host)
        server = self.api.post_server({"server": request})
        self.services._wait_for_state_change(server, state, max_retries=240)  # each 0.5 s
        return str(server["id"])

    def create_instance(self, host: str, node: str) -> str:
        """Create the row of an active instance on a node in nova's database; return its uuid."""
        cell = self.services.cell_mappings["cell1"]
        with context.target_cell(context.get_admin_context(), cell) as target:
            row = objects.ComputeNode.get_by_host_and_nodename(target, host, node)
            instance = objects.Instance(
                target,
                uuid=str(uuid4()),
                project_id="project",
                user_id="user",
                host=host,
                node=node,
                compute_id=row.id,
                vm_state="active",
                power_state=1,
                flavor=objects.Flavor.get_by_name(target, "m1.tiny"),
                system_metadata={},
            )
            instance.create()
        return str(instance.uuid)

    def delete(self, server: str) -> None:
        """Delete a server."""
        self.services._delete_server({"id": server})


def _path(*parts: str) -> str:
    """Return the path of a data file of nova, which is installed from a wheel."""
    for file in importlib.metadata.files("nova") or []:
        if parts and str(file).endswith(f"/{parts[0]}"):
            return str(Path(str(file.locate())).resolve())
    return str(Path("$state_path", *parts))
