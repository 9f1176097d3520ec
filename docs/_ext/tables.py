"""Tables as reStructuredText."""

import re
from collections.abc import Iterable, Iterator, Sequence

Row = Sequence[str]


def table(head: Row, rows: Iterable[Row]) -> Iterator[str]:
    """The lines of a table with a head."""
    yield from (".. list-table::", "   :header-rows: 1", "")
    for row in (head, *rows):
        for number, cell in enumerate(row):
            yield f"   {' ' if number else '*'} - {cell}"
    yield ""


def markup(text: str) -> str:
    """Return a text with its literals in double backquotes, and nothing else as markup."""
    parts = " ".join(text.split()).split("`")
    parts[::2] = [re.sub(r"([*_|])", r"\\\1", part) for part in parts[::2]]
    return "``".join(parts)
