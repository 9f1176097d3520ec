"""Drivers with one defect each. Each module has the defects of one kind."""

from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from tests.lab.outsiders.right import harness_of
from tests.lab.outsiders.running import Registry

wrong: Final = Registry(harness_of)

for _module in iter_modules(__path__, f"{__name__}."):
    import_module(_module.name)
