"""Links, paths and commands in texts lead to something. Sphinx checks the links of the pages."""

import re
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Directories with texts.
_DIRECTORIES = (
    *("benchmarks", "docs", "drivers", "etc", "framework", "harnesses", "releasenotes", "tests"),
    "tools",
)
_TEXTS = {"", ".cfg", ".ini", ".md", ".py", ".rst", ".sh", ".toml", ".txt", ".yaml"}
#: Directories that builds make.
_BUILT = {"__pycache__", "_build", "build"}


def _texts(*suffixes: str) -> Iterator[tuple[Path, str]]:
    """Yield the files with text, with what they contain."""
    nested = (path for name in _DIRECTORIES for path in (ROOT / name).rglob("*"))
    for path in (*ROOT.glob("*"), *nested):
        is_built = _BUILT.intersection(path.parts) or path.parent.suffix == ".egg-info"
        if path.is_file() and path.suffix in suffixes and not is_built:
            yield path, path.read_text()


#: The links of a new package lead to files that its author makes.
_NEW_PACKAGE = ROOT / "framework" / "wharfinger" / "conformance" / "new_package"
MARKDOWN = {
    str(path.relative_to(ROOT)): text for path, text in _texts(".md") if path.parent != _NEW_PACKAGE
}
PAGES = {str(path.relative_to(ROOT)): text for path, text in _texts(".rst")}


def _found(pattern: str) -> set[Any]:
    """Return the matches of a pattern in Markdown files and on pages."""
    texts = [*MARKDOWN.values(), *PAGES.values()]
    return {found for text in texts for found in re.findall(pattern, text)}


# Links in Markdown files.

_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_EXTERNAL = re.compile(r"https?:")


def _anchors(text: str) -> set[str]:
    """Return the anchors of a Markdown file, as forges make them of headings."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", one).lower().replace(" ", "-") for one in headings}


@pytest.mark.parametrize("name", MARKDOWN)
def test_links_of_a_markdown_file_lead_to_files_and_headings(name: str) -> None:
    broken = []
    for link in _LINK.findall(_CODE.sub("", MARKDOWN[name])):
        path, _, anchor = link.partition("#")
        target = ((ROOT / name).parent / path).resolve() if path else ROOT / name
        if _EXTERNAL.match(link):
            continue
        if not target.exists() or (anchor and anchor not in _anchors(target.read_text())):
            broken.append(link)

    assert broken == []


def test_markdown_files_have_links_with_and_without_anchor() -> None:
    links = [link for text in MARKDOWN.values() for link in _LINK.findall(text)]

    assert len(links) > 15
    assert any("#" in link for link in links)


def test_external_links_of_markdown_files_are_on_a_page_that_linkcheck_reads() -> None:
    links = {link for text in MARKDOWN.values() for link in _LINK.findall(text)}
    pages = "\n".join(PAGES.values())

    assert [link for link in links if _EXTERNAL.match(link) and link not in pages] == []


# Names of modules, classes and functions.

_NAME = r"`(wharfinger\w*\.[\w.]+)`"
_FILE = re.compile(r"\.(?:conf|py)\b")


def test_dotted_names_that_texts_name_exist() -> None:
    groups = entry_points().groups | {"wharfinger.request_filters"}  # has no filter of ours
    names = [one for one in _found(_NAME) - groups if not _FILE.search(one)]

    assert len(names) > 10
    for name in names:
        resolve_name(name)


# Paths below the root, in any text.

_PATH = re.compile(
    rf"(?<![\w/.@~{{}}$-])(?:{'|'.join(_DIRECTORIES)})/(?!_build\b)[\w./-]*\w(?![*<{{])"
)


def test_paths_that_texts_name_exist() -> None:
    paths = {
        (str(file.relative_to(ROOT)), path)
        for file, text in _texts(*_TEXTS)
        for path in _PATH.findall(text)
    }

    assert len(paths) > 100
    assert sorted(one for one in paths if not (ROOT / one[1]).exists()) == []


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "tests/README.md"])
def test_paths_in_backquotes_for_contributors_exist(name: str) -> None:
    paths = re.findall(r"`([\w.-]+(?:/[\w.-]+)+)`", MARKDOWN[name])
    bases = (ROOT, ROOT / "framework" / "wharfinger", (ROOT / name).parent)

    assert paths
    assert [one for one in paths if not any((base / one).exists() for base in bases)] == []


# Commands of the repository.

#: Of tools/test, besides the directories of tests.
_PARTS = {"exhaustive", "coverage", "lint", "docs"}


def test_tests_that_texts_tell_to_run_exist() -> None:
    commands = _found(r"\btools/test ([\w/.]+)(?: -k (\w+))?")

    assert len(commands) > 5
    for path, word in commands:
        place = ROOT / path if "/" in path else ROOT / "tests" / path
        assert path in _PARTS or place.exists(), path
        texts = [file.read_text() for file in place.rglob("*.py")]
        found = not word or any(re.search(rf"def test_\w*{word}", text) for text in texts)
        assert found, f"{path} -k {word}"


def test_environments_of_tox_that_texts_name_exist() -> None:
    environments = set(re.findall(r"^\[testenv:(.+)\]$", (ROOT / "tox.ini").read_text(), re.M))

    names = _found(r"\btox -e ([\w-]+)")
    assert names
    assert names - environments == set()


def test_benchmarks_that_texts_name_exist() -> None:
    names = _found(r"-m benchmarks\.(\w+)")

    assert names
    assert [one for one in names if not (ROOT / "benchmarks" / f"{one}.py").exists()] == []
