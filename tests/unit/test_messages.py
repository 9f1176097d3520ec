"""The code writes the messages that the pages show.

A message is the text of a literal block that shows no command. The code has to write each of its
sentences. A code in brackets at the end has to be that of the message's exception class.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.lab.source_strings import VALUE, marked, strings
from wharfinger import exceptions

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = (
    "how-to/resolve-conflicts",
    "how-to/when-something-goes-wrong",
    "reference/driver-contract",
)
#: A literal block whose first line is no command, and no line of a plan.
_BLOCK: Final = re.compile(r"::\n\n(?P<indent> +)(?![$~+] )\S.*\n(?:(?P=indent).*\n|\n(?= ))*")
_CODE: Final = re.compile(r" \[(?P<code>[A-Z][a-z]\w+)\](?: |$)")
_SENTENCE: Final = re.compile(r"(?<=[.!?]) +(?=[A-Z`\0.])")
_WORD: Final = re.compile(r"[A-Za-z]{2,}")
#: Texts of other programs, in messages.
FOREIGN: Final = (
    "(HTTP 401)",
    "(char 1)",
    "An error.",
    "FileNotFoundError: [Errno 2] No such file or directory: '/etc/wharfinger/rack.json'",
    "KeyError: 'memory'",
    "Connection refused",
    "Policy does not allow placement:resource_providers:create to be performed",
    "Service Unavailable",
    "The request you have made requires authentication",
    "Unable to establish connection to",
    "database or disk is full",
    "file is not a database",
)


def _messages(page: str) -> Iterator[tuple[str, str]]:
    """Yield each message that a page shows in one line, and its code (empty if it has none)."""
    for block in _BLOCK.finditer((ROOT / "docs" / f"{page}.rst").read_text()):
        text = " ".join(block[0].removeprefix("::").split())
        *coded, rest = _CODE.split(text)
        yield from zip(coded[::2], coded[1::2], strict=True)
        if rest:
            yield rest, ""


@cache
def _sentences(words: int) -> re.Pattern[str]:
    """Return a pattern for the sentences of at least ``words`` words that the code writes."""
    sentences = {one.strip(" .") for text in strings() for one in (*_SENTENCE.split(text), text)}
    patterns = (
        re.sub("\0(?: \0)*", ".+?", re.escape(one).replace("\\ ", " "))
        for one in sentences
        if len(_WORD.findall(one)) >= words
    )
    return re.compile(rf"(?:.*: )?(?:{'|'.join(patterns)})\.*")


def _is_written(sentence: str) -> bool:
    """Return whether the code writes a sentence; only with "..." may it have fewer than 3 words."""
    return bool(_sentences(1 if "..." in sentence else 3).fullmatch(sentence))


@pytest.mark.parametrize("page", PAGES)
def test_sentences_of_messages_on_a_page_are_in_the_code(page: str) -> None:
    unknown = []
    for message, _code in _messages(page):
        text = message
        for foreign in FOREIGN:
            text = text.replace(foreign, "...")
        unknown += [
            one for one in _SENTENCE.split(text) if one.strip(" .") and not _is_written(one)
        ]

    assert unknown == []


@pytest.mark.parametrize("page", PAGES)
def test_messages_with_a_code_on_a_page_are_of_that_class(page: str) -> None:
    coded = [(message, code) for message, code in _messages(page) if code]

    assert coded
    for message, code in coded:
        template = re.escape(marked(getattr(exceptions, code).template))
        pattern = template.replace(re.escape(VALUE), ".+?")
        assert re.fullmatch(rf"(?:.*: )?{pattern}", message), f"{message} [{code}]"
