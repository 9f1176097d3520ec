"""Refuses sentences that match tools/prose-patterns.toml: python -m tools.prose [FILE...].

It reads the docstrings, comments and messages of Python files, the paragraphs of pages, and release
notes. Without FILE, it reads all such files that git knows.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PATTERNS: Final = Path(__file__).with_name("prose-patterns.toml")
#: Strings with fewer words are names or values.
_MESSAGE: Final = 5
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'`(])")
#: The beginning of an item of a list.
_ITEM: Final = re.compile(r"^\s*(?:[-*]|\d+\.) (?:\|\n)?", re.MULTILINE)
#: Lines of a page that end a paragraph: code, tables, titles and directives.
_NO_PROSE: Final = ("    ", "\t", "+", "|", "=", "..", "$")


@dataclass(frozen=True)
class Pattern:
    """A pattern of bad sentences, what to write instead, and a sentence that it finds."""

    find: str
    instead: str
    example: str


def read_patterns() -> list[Pattern]:
    """Return the patterns of the file."""
    return [Pattern(**one) for one in tomllib.loads(PATTERNS.read_text())["pattern"]]


def faults(text: str, patterns: Iterable[Pattern]) -> Iterator[tuple[str, Pattern]]:
    """Yield the bad sentences of a text, with the patterns that find them."""
    for sentence in _SENTENCE.split(" ".join(text.split())):
        for pattern in patterns:
            if re.search(pattern.find, sentence):
                yield sentence, pattern


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the texts of a file, each with the number of its first line."""
    content = path.read_text()
    if path.suffix == ".yaml":
        yield from _in_paragraphs(1, content)
        return
    if path.suffix != ".py":
        yield from _paragraphs(content)
        return
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if len(node.value.split()) >= _MESSAGE:
                yield from _in_paragraphs(node.lineno, node.value)
        elif isinstance(node, ast.JoinedStr):
            yield (
                node.lineno,
                "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "X"
                    for part in node.values
                ),
            )
    yield from _comments(content)


def _in_paragraphs(line: int, text: str) -> Iterator[tuple[int, str]]:
    parts = (part for paragraph in text.split("\n\n") for part in _ITEM.split(paragraph))
    yield from ((line, part) for part in parts)


def _paragraphs(content: str) -> Iterator[tuple[int, str]]:
    first, lines, is_code = 1, list[str](), False
    for number, line in enumerate([*content.splitlines(), ""], 1):
        is_code ^= line.strip().startswith("```")
        if not is_code and line.strip("` ") and not line.startswith(_NO_PROSE):
            first = first if lines else number
            lines.append(line)
        elif lines:
            yield from _in_paragraphs(first, "\n".join(lines))
            lines = []


def _comments(content: str) -> Iterator[tuple[int, str]]:
    first, last, lines = 0, 0, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(content).readline):
        if token.type == tokenize.COMMENT:
            if lines and token.start[0] != last + 1:
                yield first, " ".join(lines)
                lines = []
            first = first if lines else token.start[0]
            last = token.start[0]
            lines.append(token.string.lstrip("#: "))
    if lines:
        yield first, " ".join(lines)


def main(names: Sequence[str]) -> int:
    """Print the bad sentences of files; return the exit code."""
    listing = ["git", "ls-files", "*.py", "*.rst", "*.md", "releasenotes/*.yaml"]
    files = names or subprocess.check_output(listing, text=True).splitlines()
    patterns, code = read_patterns(), 0
    for name in files:
        for line, text in texts(Path(name)):
            for sentence, pattern in faults(text, patterns):
                print(f"{name}:{line}: {sentence}\n    {pattern.instead}")
                code = 1
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
