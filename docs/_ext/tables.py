"""Tables as reStructuredText."""

from collections.abc import Iterable, Iterator, Sequence

Row = Sequence[str]


def table(head: Row, rows: Iterable[Row]) -> Iterator[str]:
    """The lines of a table with a head."""
    yield from (".. list-table::", "   :header-rows: 1", "")
    for row in (head, *rows):
        for number, cell in enumerate(row):
            yield f"   {' ' if number else '*'} - {cell}"
    yield ""
