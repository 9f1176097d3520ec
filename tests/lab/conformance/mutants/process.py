"""Mutants of what a driver does to its process (WHF-81.)."""

import os

from tests.lab.conformance.honest import DevicesDriver
from tests.lab.conformance.mutants import mutant
from wharfinger.objects import Service


@mutant("WHF-811")
class ChangesTheDirectory(DevicesDriver):
    """It changes to its own directory when it is connected."""

    def init_host(self, service: Service) -> None:
        os.chdir("/")
        super().init_host(service)
