"""How Sphinx builds this documentation."""

from importlib.metadata import version as installed_version

project = "Wharfinger"
author = "the authors of Wharfinger"
project_copyright = "the authors of Wharfinger"
release = version = installed_version("wharfinger")

extensions = ["sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
html_theme = "alabaster"
html_theme_options = {"description": "Hardware, published to OpenStack Placement"}

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": True}
