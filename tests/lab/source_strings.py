"""Collects the strings in the code of the framework and the drivers, such as messages."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).resolve().parents[2]
#: The mark for a value in a string of the code.
VALUE: Final = "\0"


@cache
def strings() -> frozenset[str]:
    """Return the strings of the framework and the drivers, with marks for values."""
    files = [*_ROOT.glob("framework/**/*.py"), *_ROOT.glob("drivers/**/*.py")]
    return frozenset(text for file in files for text in _strings(ast.parse(file.read_text())))


def marked(template: str) -> str:
    """Return a template for str.format or logging, with marks for its values."""
    return re.sub(r"\{[\w.!:]+\}|%[sdrg]", VALUE, template)


def _strings(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else VALUE for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield marked(node.value)
