"""Tables of extra specs for Sphinx, from the data that translates requests.

The directive ``extra-specs`` shows one table: ``translated``, ``without-meaning`` or ``refused``.
"""

from collections.abc import Iterator
from inspect import getfile
from typing import Any

from docutils.nodes import Node
from extra_spec_rows import HEADS, rows
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from tables import table

from wharfinger.scheduling import known_extra_specs


class ExtraSpecs(SphinxDirective):
    """Table with a row for each extra spec, or for several with the same meaning."""

    required_arguments = 1

    def run(self) -> list[Node]:
        self.env.note_dependency(getfile(known_extra_specs))
        return self.parse_text_to_nodes("\n".join(self._lines()))

    def _lines(self) -> Iterator[str]:
        name = self.arguments[0]
        yield from table(HEADS[name], rows(name))


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the directive."""
    app.add_directive("extra-specs", ExtraSpecs)
    return {"parallel_read_safe": True}
