"""Adds the message of each exception to its description by autodoc."""

from typing import Any

from sphinx.application import Sphinx
from tables import markup


def add_message(app: Sphinx, what: str, name: str, obj: Any, *others: Any) -> None:
    """Add the template of an exception's message, whose fields are its attributes."""
    _options, lines = others
    if what == "exception" and "template" in vars(obj):
        lines += ["", "Message:", "", f"   {markup(obj.template)}", ""]


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect to autodoc."""
    app.connect("autodoc-process-docstring", add_message)
    return {"parallel_read_safe": True}
