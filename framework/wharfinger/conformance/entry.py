"""What every run of pytest loads: nothing more, unless this kit is asked for.

So our options are in nobody's way.
"""

from collections.abc import Sequence

import pytest

_KIT = ("wharfinger.conformance", "wharfinger/conformance")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, args: Sequence[str]) -> None:
    """Load the kit's plugin if one of the arguments is the kit."""
    if any(kit in argument for argument in args for kit in _KIT):
        early_config.pluginmanager.import_plugin("wharfinger.conformance.plugin")
        # They would leave a directory behind where this is run.
        for name in ("cacheprovider", "stepwise"):
            early_config.pluginmanager.unregister(name=name)
