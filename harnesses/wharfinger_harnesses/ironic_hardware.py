"""Ironic's hardware type and deploy interface `lab`: simulated nodes that ``extra`` controls.

``extra["lab"]`` of a node may have the keys ``clean``, ``deploy`` and ``delete``, for the step of
that name. Without a value, a step ends at once. The values are:

``hold``
    the step stops in the middle until a test lets it continue;
``wait``
    the step waits as for a ramdisk until a test lets it continue; not for ``delete``;
``fail``
    the step fails.

A test lets a node continue by a file with the node's uuid as its name in the directory `go`.
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


def _do(task: Any, what: str, waiting: str | None = None) -> str | None:
    """Stop, wait or fail as the node's ``extra["lab"]`` says for the step ``what``.

    Return ``waiting`` if the node has to wait, otherwise None. Raise RuntimeError to fail.
    """
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


def _with_go_files(task: Callable[..., object]) -> Callable[..., None]:
    """Skip a periodic task while there are no files in `go`: it reads Ironic's database."""

    @wraps(task)
    def run(*arguments: Any) -> None:
        if any(Path(CONF.state_path, "go").iterdir()):
            task(*arguments)

    return run


class LabDeploy(fake.FakeDeploy):  # type: ignore[misc]
    """Simulated deployment, cleaning and deletion, as the node's ``extra["lab"]`` says."""

    @base.clean_step(priority=10, abortable=True)  # type: ignore[untyped-decorator]
    def lab_clean(self, task: Any) -> str | None:
        """Simulate the cleaning of a node; return CLEANWAIT if it has to wait."""
        return _do(task, "clean", states.CLEANWAIT)

    @base.deploy_step(priority=90)  # type: ignore[untyped-decorator]
    def lab_deploy(self, task: Any) -> str | None:
        """Simulate the deployment to a node; return DEPLOYWAIT if it has to wait."""
        return _do(task, "deploy", states.DEPLOYWAIT)

    def tear_down(self, task: Any) -> str:
        """Simulate the deletion of a node's instance; return the state DELETED."""
        _do(task, "delete")
        return str(super().tear_down(task))

    @_with_go_files
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
