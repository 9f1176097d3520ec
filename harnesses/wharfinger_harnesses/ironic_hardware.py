"""Ironic's hardware type and deploy interface `lab`: nodes that ``extra`` controls.

Loaded by ironic_service.py into the real Ironic. A node's ``extra["lab"]`` says what
its ``clean``, ``deploy`` and ``delete`` do:

``hold``
    stays in the middle of it (cleaning, deploying, deleting), until the node has a go;
``wait``
    waits as for a ramdisk (clean wait, wait call-back), until the node has a go; not for
    ``delete``;
``fail``
    fails.

Other steps end at once. A node's go is a file named for its uuid in the directory
`go` beside the configuration; what takes it removes it. ``extra`` can be changed at any time but
while Ironic works on the node.
"""

import time
from pathlib import Path
from typing import Any

from ironic.common import states
from ironic.conductor import periodics, utils
from ironic.conf import CONF
from ironic.drivers import base, fake_hardware
from ironic.drivers.modules import fake

#: Seconds between two looks for a go.
_PAUSE = 0.02
_WAITING = {
    states.CLEANWAIT: utils.notify_conductor_resume_clean,
    states.DEPLOYWAIT: utils.notify_conductor_resume_deploy,
}


def _go(node: Any) -> Path:
    return Path(CONF.state_path, "go", node.uuid)


def _has_go(node: Any) -> bool:
    return _go(node).exists()


def _do(task: Any, what: str, waiting: str | None = None) -> str | None:
    """Hold, wait or fail as the node's ``extra["lab"]`` orders; return the result of the step."""
    match task.node.extra.get("lab", {}).get(what):
        case "hold":
            while not _has_go(task.node):
                time.sleep(_PAUSE)
            _go(task.node).unlink()
        case "wait":
            return waiting
        case "fail":
            raise RuntimeError(f"the lab has {what} fail")
    return None


class LabDeploy(fake.FakeDeploy):  # type: ignore[misc]
    """Deployment and cleaning without hardware, as the node's ``extra["lab"]`` orders."""

    @base.clean_step(priority=10, abortable=True)  # type: ignore[untyped-decorator]
    def lab_clean(self, task: Any) -> str | None:
        """Clean the node, as its ``clean`` says."""
        return _do(task, "clean", states.CLEANWAIT)

    @base.deploy_step(priority=90)  # type: ignore[untyped-decorator]
    def lab_deploy(self, task: Any) -> str | None:
        """Deploy to the node, as its ``deploy`` says."""
        return _do(task, "deploy", states.DEPLOYWAIT)

    def tear_down(self, task: Any) -> str:
        """Take its instance down, as its ``delete`` says."""
        _do(task, "delete")
        return str(super().tear_down(task))

    @periodics.node_periodic(  # type: ignore[untyped-decorator]
        purpose="looking for a go",
        spacing=0.1,
        filters={"reserved": False, "provision_state_in": list(_WAITING)},
        # Runs before Ironic makes a task for the node: there may be thousands of nodes.
        predicate=_has_go,
    )
    def lab_resume(self, task: Any, _manager: Any, _context: Any) -> None:
        """Continue a waiting node that a test lets go on."""
        _go(task.node).unlink()
        _WAITING[task.node.provision_state](task)


class LabHardware(fake_hardware.FakeHardware):  # type: ignore[misc]
    """Ironic's own fake hardware, with the deployment above."""

    @property
    def supported_deploy_interfaces(self) -> list[type]:
        """Return the class above."""
        return [LabDeploy]
