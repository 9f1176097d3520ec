"""The module of a driver that changes its process when it is imported."""

import sys

from tests.lab.conformance.honest import MachinesDriver

sys.setswitchinterval(0.004)


class ChangesAtImport(MachinesDriver):
    """A driver without a defect of its own."""
