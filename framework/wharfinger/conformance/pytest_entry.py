"""The kit's plugin that every run of pytest loads."""

import warnings
from pathlib import Path
from typing import Final

import pytest

_KIT: Final = "wharfinger.conformance"
_DIRECTORY: Final = Path(__file__).resolve().parent


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Load the kit's other plugin if pytest was asked to run the kit."""
    named = early_config.known_args_namespace.file_or_dir
    if any(map(_is_the_kit, named)):
        manager = early_config.pluginmanager
        with warnings.catch_warnings():
            # The author of a driver cannot repair the deprecated calls of libraries.
            warnings.simplefilter("ignore", DeprecationWarning)
            manager.import_plugin("wharfinger.conformance.pytest_plugin")
        for name in ("cacheprovider", "stepwise"):
            if manager.has_plugin(name):
                manager.unregister(name=name)


def _is_the_kit(named: str) -> bool:
    place = named.partition("::")[0]
    if place == _KIT or place.startswith(f"{_KIT}."):
        return True
    path = Path(place)
    return path.exists() and path.resolve().is_relative_to(_DIRECTORY)
