"""Reports as Markdown and as a badge are well-formed with any text of a driver or backend."""

import re
from typing import Any
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from wharfinger.conformance import badge, report
from wharfinger.conformance.overall_verdict import Word
from wharfinger.exceptions import printable

MARKS = r"|*_`<>[]&~$\/-+#"
TEXTS = st.text() | st.text(alphabet=f"a {MARKS}\n\r\t\x1b")
WORDS = st.sampled_from(list(Word))
#: Splits a row into cells at each bar that is not escaped.
BAR = re.compile(r"(?<!\\)(?:\\\\)*\|")


@given(TEXTS, TEXTS, TEXTS)
def test_tables_are_well_formed_for_any_text(found: str, reason: str, name: str) -> None:
    lines = report.as_markdown(_facts(found, reason, name)).splitlines()

    tables = [line for line in lines if line.startswith("|")]
    assert len(tables) == 8 + 3 + 3  # each table also has a heading row and a line below it
    assert {len(BAR.findall(line)) for line in tables} == {3, 5}
    assert [line for line in lines if line.startswith("#")][1:] == ["## Capabilities", "## MUST"]


@given(TEXTS)
def test_text_is_shown_as_written_and_makes_no_markup(text: str) -> None:
    cell = _row(text).removeprefix("| WHF-101 | core | failed | ").removesuffix(" |")
    assert re.sub(r"\\(\W|_)", r"\1", cell) == printable(text)
    assert not set("*`<>[]&~$|\\") & set(re.sub(r"\\.", "", cell))


def test_underscore_within_a_word_is_not_escaped() -> None:
    assert _row("CUSTOM_CARD_UNIT: total 3").endswith("| CUSTOM_CARD_UNIT: total 3 |")
    assert _row("__init__ of <Driver>").endswith(r"| \_\_init\_\_ of \<Driver\> |")


@given(TEXTS, WORDS, WORDS)
def test_badge_is_xml_with_the_verdicts(name: str, core: Word, extended: Word) -> None:
    facts = _facts("", "", printable(name))
    facts["verdicts"] = {"core": core, "extended": extended}

    drawn = ElementTree.fromstring(badge.as_svg(facts))

    space = "{http://www.w3.org/2000/svg}"
    assert [one.text for one in drawn.iter(f"{space}text")] == [
        "wharfinger",
        f"core {core.lower()}",
        f"extended {extended.lower()}",
    ]
    assert drawn.attrib["aria-label"] == drawn.findtext(f"{space}title")
    assert (drawn.attrib["aria-label"]).startswith(f"{printable(name)}: core ")
    widths = [int(one.attrib["width"]) for one in drawn.iter(f"{space}rect")]
    assert sum(widths) == int(drawn.attrib["width"])


def _row(found: str) -> str:
    *_, row = report.as_markdown(_facts(found, "", "")).splitlines()
    return row


def _facts(found: str, reason: str, name: str) -> dict[str, Any]:
    """Return the facts for a report on a driver, which contain these texts."""
    return {
        "kit": "1.0",
        "wharfinger": "0.1",
        "python": "3.11.7",
        "driver": {"name": name, "class": "cards:Driver", "distribution": "cards 1"},
        "asked": {
            "profile": "core",
            "backend": "no harness",
            "known_failures": {},
            "seed": 1,
            "examples": 10,
        },
        "capabilities": {"reshape": {"supported": False, "reason": reason}},
        "verdicts": {"core": "FAILED", "extended": "NOT ASKED"},
        "unproven": {"core": 0, "extended": 0},
        "rules": [
            {
                "id": "WHF-101",
                "level": "MUST",
                "profile": "core",
                "since": "0.1",
                "status": "failed",
                "found": found,
                "expected": "",
            }
        ],
    }
