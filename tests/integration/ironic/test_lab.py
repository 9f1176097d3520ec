"""Errors of the Ironic that the other tests use, and its start without configuration files."""

import sys
from uuid import uuid4

import pytest
import requests

from wharfinger_harnesses.daemons import LabError, PythonDaemon
from wharfinger_harnesses.ironic import Ironic


class WithoutConfiguration(PythonDaemon):
    """The Ironic program in an empty directory, without options for Python."""

    def _setUp(self) -> None:
        super()._setUp()
        self.start(sys.executable, str(Ironic.service_program), str(self.directory))


def test_error_of_ironic_is_raised_with_its_reason(ironic: Ironic) -> None:
    with pytest.raises(LabError, match=r"POST /v1/nodes: 400: .*interface"):
        ironic.create_node(None, deploy_interface="nosuch")

    uuid = ironic.create_node(None, owner=uuid4().hex, extra={"lab": {"clean": "fail"}})
    ironic.provision(uuid, "manage")
    ironic.wait_for(uuid, "manageable")
    ironic.provision(uuid, "provide")
    with pytest.raises(LabError, match=r"not available but clean failed(.|\n)*makes clean fail"):
        ironic.wait_for(uuid, "available")


def test_ironic_without_configuration_starts_and_keeps_the_terminal() -> None:
    with WithoutConfiguration() as program:
        port = int((program.directory / "port").read_text())
        answer = requests.get(f"http://127.0.0.1:{port}/v1/drivers", timeout=60)

        assert {driver["name"] for driver in answer.json()["drivers"]} == {"fake-hardware", "lab"}
        assert (program.directory / "log").read_text() == ""
        assert (program.directory / "ironic.log").read_text()
