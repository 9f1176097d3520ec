"""How Sphinx builds this documentation."""

import sys
from importlib.metadata import version as installed_version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "Wharfinger"
author = "the authors of Wharfinger"
project_copyright = "the authors of Wharfinger"
release = version = installed_version("wharfinger")

extensions = [
    "sphinx.ext.autodoc",
    "object_tables",
    "command_tables",
    "conformance_tables",
    "exception_messages",
    "extra_spec_tables",
    "option_tables",
]
exclude_patterns = ["_build", "_ext"]
html_theme = "furo"
html_title = "Wharfinger"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True}

# The inventories of these projects are on the network, and the build uses no network.
nitpick_ignore_regex = [
    (r"py:.*", r"(collections|datetime|oslo_config|pathlib)\..*"),
]

# tox -e linkcheck follows all links to other sites, and needs a network.
linkcheck_timeout = 30
linkcheck_retries = 3
