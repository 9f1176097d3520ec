"""Tables of the versioned objects for Sphinx, made from the code when the pages are built.

``object-versions`` has what each version of each object brought, ``service-versions`` the same of
services, ``object-fields`` a section for each object with its fields. A field that its class does
not explain stops the build.
"""

from collections.abc import Iterable, Iterator
from inspect import getfile
from typing import Any

from docutils.nodes import Node
from object_rows import Unsaid, field_rows, is_list, objects, service_rows, summary, version_rows
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective
from tables import table


class ObjectVersions(SphinxDirective):
    """A row for each step of each object."""

    def run(self) -> list[Node]:
        rows = (
            (f"``{name}``", version, brought, _literals(fields))
            for name, version, brought, fields in version_rows()
        )
        return _parsed(self, table(("object", "version", "what it brought", "fields"), rows))


class ServiceVersions(SphinxDirective):
    """A row for each version of a service."""

    def run(self) -> list[Node]:
        return _parsed(self, table(("version", "what it brought"), service_rows()))


class ObjectFields(SphinxDirective):
    """A section for each object, with its fields; one for all lists."""

    def run(self) -> list[Node]:
        try:
            return _parsed(self, _sections())
        except Unsaid as error:
            raise ExtensionError(str(error)) from error


def _sections() -> Iterator[str]:
    for kind in objects():
        if not is_list(kind):
            yield from (kind.obj_name(), "~" * len(kind.obj_name()), "")
            yield from (*summary(kind).splitlines(), "")
            yield from table(
                ("field", "type", "None", "default", "meaning"),
                (
                    (f"``{row.name}``", row.type, row.nullable, _literals(row.default), row.meaning)
                    for row in field_rows(kind)
                ),
            )
    yield from ("Lists", "~~~~~", "")
    yield from table(
        ("list", "field", "type", "meaning"),
        (
            (f"``{kind.obj_name()}``", f"``{row.name}``", row.type, row.meaning)
            for kind in objects()
            if is_list(kind)
            for row in field_rows(kind)
        ),
    )


def _literals(names: str) -> str:
    return ", ".join(f"``{name}``" for name in names.split(", ")) if names else ""


def _parsed(directive: SphinxDirective, lines: Iterable[str]) -> list[Node]:
    for kind in objects():
        directive.env.note_dependency(getfile(kind))
    return directive.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the directives."""
    app.add_directive("object-versions", ObjectVersions)
    app.add_directive("service-versions", ServiceVersions)
    app.add_directive("object-fields", ObjectFields)
    return {"parallel_read_safe": True}
