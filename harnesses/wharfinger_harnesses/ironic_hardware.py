"""Ironic's hardware type `lab`: fake nodes that ``extra["lab"]`` controls.

This field maps the steps ``clean``, ``deploy`` and ``delete`` to one of these values:

``hold``
    the step stops until a test lets it continue;
``wait``
    the step waits as for a ramdisk until a test lets it continue; not for ``delete``;
``fail``
    the step fails.

The file `go/UUID` lets a node continue.
"""

import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from ironic.common import states
from ironic.conductor import periodics, utils
from ironic.conf import CONF
from ironic.drivers import base, fake_hardware
from ironic.drivers.modules import fake

#: Seconds between two checks of whether the node may continue.
_PAUSE = 0.02
_WAITING = {
    states.CLEANWAIT: utils.notify_conductor_resume_clean,
    states.DEPLOYWAIT: utils.notify_conductor_resume_deploy,
}


def _go_file(node: Any) -> Path:
    return Path(CONF.state_path, "go", node.uuid)


def _may_continue(node: Any) -> bool:
    return _go_file(node).exists()


def _simulate_step(task: Any, what: str, waiting: str | None = None) -> str | None:
    match task.node.extra.get("lab", {}).get(what):
        case "hold":
            while not _may_continue(task.node):
                time.sleep(_PAUSE)
            _go_file(task.node).unlink()
        case "wait":
            return waiting
        case "fail":
            raise RuntimeError(f"extra['lab'] makes {what} fail")
    return None


# The task reads Ironic's database, so it is skipped while no node may continue.
def _only_with_go_files(task: Callable[..., object]) -> Callable[..., None]:
    @wraps(task)
    def run(*arguments: Any) -> None:
        if any(Path(CONF.state_path, "go").iterdir()):
            task(*arguments)

    return run


class LabDeploy(fake.FakeDeploy):  # type: ignore[misc]
    """Simulated deployment, cleaning and tear-down of nodes."""

    @base.clean_step(priority=10, abortable=True)  # type: ignore[untyped-decorator]
    def lab_clean(self, task: Any) -> str | None:
        """Simulate the cleaning of a node."""
        return _simulate_step(task, "clean", states.CLEANWAIT)

    @base.deploy_step(priority=90)  # type: ignore[untyped-decorator]
    def lab_deploy(self, task: Any) -> str | None:
        """Simulate the deployment to a node."""
        return _simulate_step(task, "deploy", states.DEPLOYWAIT)

    def tear_down(self, task: Any) -> str:
        """Simulate the deletion of a node's instance."""
        _simulate_step(task, "delete")
        return str(super().tear_down(task))

    @_only_with_go_files
    @periodics.node_periodic(  # type: ignore[untyped-decorator]
        purpose="looking for nodes that may continue",
        spacing=0.1,
        filters={"reserved": False, "provision_state_in": list(_WAITING)},
        # Runs before Ironic makes a task for the node: there may be thousands of nodes.
        predicate=_may_continue,
    )
    def lab_resume(self, task: Any, _manager: Any, _context: Any) -> None:
        """Continue the work on a waiting node."""
        _go_file(task.node).unlink()
        _WAITING[task.node.provision_state](task)


class LabHardware(fake_hardware.FakeHardware):  # type: ignore[misc]
    """Ironic's own fake hardware, with LabDeploy as its deploy interface."""

    @property
    def supported_deploy_interfaces(self) -> list[type]:
        """Return LabDeploy alone."""
        return [LabDeploy]
