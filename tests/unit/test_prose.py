"""Each pattern of bad sentences finds its example, and no sentence in plain English."""

from pathlib import Path

import pytest

from tools import prose

PATTERNS = prose.read_patterns()
GOOD = (
    "Fetch the allocations that a plan needs.",
    "Return whether the policy allows this many removals in one cycle.",
    "Return the database; raises StateError if there is none.",
    "What does the driver report?",
    "The trait of nova's root stays.",
)


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda one: one.find)
def test_pattern_finds_its_example(pattern: prose.Pattern) -> None:
    found = dict(prose.faults(f"It is good. {pattern.example}", [pattern]))

    assert found == {pattern.example: pattern}


@pytest.mark.parametrize("sentence", GOOD)
def test_plain_sentence_is_accepted(sentence: str) -> None:
    assert list(prose.faults(sentence, PATTERNS)) == []


[BAD] = (one.example for one in PATTERNS if one.example.startswith("Nothing"))


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("docstring.py", f'"""A job.\n\n{BAD}\n"""\n', 1),
        ("comment.py", f"x = 1\n# It is so.\n# {BAD}\n", 2),
        ("message.py", f'x = "a node. {BAD}"\n', 1),
        ("template.py", f'x = f"{{1}} node. {BAD}"\n', 1),
        ("page.rst", "Title\n=====\n\nA text.\n" + BAD.replace(" ", "\n"), 4),
        ("note.yaml", f"---\nfixes:\n  - |\n    {BAD}\n", 1),
        ("page.md", f"# Title\n\n- An item.\n- {BAD}\n", 3),
    ],
)
def test_file_with_a_bad_sentence_fails_with_its_line(
    name: str, text: str, line: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_text(text)

    assert prose.main([str(path)]) == 1

    assert capsys.readouterr().out.startswith(f"{path}:{line}: ")


def test_code_on_a_page_is_no_prose(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(f"A text.\n\n```\n{BAD}\n```\n\n    {BAD}\n")

    assert prose.main([str(path)]) == 0
