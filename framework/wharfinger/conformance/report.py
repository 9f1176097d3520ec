"""The report of a run, as JSON and as Markdown."""

import json
import platform
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import entry_points, version
from typing import Any, Final

from wharfinger.conformance.overall_verdict import Verdict
from wharfinger.conformance.rule_runner import Result, Status
from wharfinger.conformance.rules import VERSION, Level, Rule
from wharfinger.conformance.run_options import HARNESSES, Asked
from wharfinger.driver import loader
from wharfinger.exceptions import printable

#: The version of the report's format. New fields do not change it.
_FORMAT: Final = 1
#: Characters with a meaning in Markdown. An underscore within a word has none.
_MARKS: Final = re.compile(r"[\\`*\[\]<>&|~$]|(?<![^\W_])_|_(?![^\W_])")


def facts(
    asked: Asked,
    verdicts: Sequence[Verdict],
    results: Mapping[str, Result],
    rules: Iterable[Rule],
    capabilities: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the content of the report as data for JSON."""
    return {
        "format": _FORMAT,
        "kit": VERSION,
        "wharfinger": version("wharfinger"),
        "python": platform.python_version(),
        "driver": driver(asked.driver or ""),
        "asked": {
            "profile": asked.profile,
            "backend": _backend(asked),
            "known_failures": dict(asked.known),
            "seed": asked.seed,
            "examples": asked.examples,
            "timeout": asked.timeout,
            "thorough": asked.thorough,
        },
        "capabilities": capabilities,
        "verdicts": {verdict.profile: verdict.word for verdict in verdicts},
        "unproven": {verdict.profile: verdict.unproven for verdict in verdicts},
        "rules": [
            _rule(results.get(rule.id, Result(rule, Status.NOT_RUN, "not selected or not reached")))
            for rule in rules
        ],
    }


def as_json(facts: Mapping[str, Any]) -> str:
    """Return the facts as JSON text."""
    return json.dumps(facts, indent=2) + "\n"


def as_markdown(facts: Mapping[str, Any]) -> str:
    """Return the main facts as Markdown text."""
    return "\n".join(_markdown(facts)) + "\n"


def driver(name: str) -> dict[str, str]:
    """Return a driver's ``name``, and its ``class`` and ``distribution`` or ""."""
    for one in loader.installed():
        if one.name == name:
            return {"name": name, "class": one.target, "distribution": one.distribution}
    return {"name": name, "class": "", "distribution": ""}


def unproven(facts: Mapping[str, Any], profile: str) -> str:
    """Return a suffix for a profile's verdict, such as " (2 unproven)"."""
    count = facts["unproven"][profile]
    return f" ({count} unproven)" if count else ""


def _backend(asked: Asked) -> str:
    if asked.config_file is not None:
        return "the backend of a configuration file"
    names = [one.value for one in entry_points(group=HARNESSES, name=asked.driver or "")]
    return f"the harness {', '.join(sorted(names))}" if names else "no harness"


def _rule(result: Result) -> dict[str, str]:
    rule = result.rule
    return {
        "id": rule.id,
        "level": rule.level,
        "profile": rule.profile,
        "since": rule.since,
        "status": result.status,
        "found": result.found,
        "expected": result.expected,
    }


def _markdown(facts: Mapping[str, Any]) -> Iterator[str]:
    driver, asked = facts["driver"], facts["asked"]
    verdicts = ", ".join(
        f"{name}: **{word}**{unproven(facts, name)}" for name, word in facts["verdicts"].items()
    )
    yield from (f"# Conformance of the driver {_text(driver['name'])}", "", verdicts, "")
    yield from _rows(
        ("", ""),
        [
            ("driver", f"{driver['class']} of {driver['distribution']}"),
            ("wharfinger", facts["wharfinger"]),
            ("kit", facts["kit"]),
            ("Python", facts["python"]),
            ("asked for", f"{asked['profile']}, with {asked['backend']}"),
            ("seed", f"{asked['seed']}, {asked['examples']} histories"),
        ],
    )
    yield from ("", "## Capabilities", "")
    yield from _rows(
        ("capability", "supported"),
        [
            (name, "yes" if one["supported"] else f"no: {one['reason']}")
            for name, one in facts["capabilities"].items()
        ],
    )
    for level in Level:
        rules = [
            rule
            for rule in facts["rules"]
            if rule["level"] == level and rule["status"] != Status.NOT_ASKED
        ]
        if rules:
            yield from ("", f"## {level}", "")
            yield from _rows(
                ("rule", "profile", "result", ""),
                [(one["id"], one["profile"], one["status"], one["found"]) for one in rules],
            )


def _rows(head: Collection[str], rows: Iterable[Collection[str]]) -> Iterator[str]:
    yield _row(head)
    yield _row(["---"] * len(head))
    for row in rows:
        yield _row(row)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(map(_text, cells))} |"


def _text(text: str) -> str:
    return _MARKS.sub(r"\\\g<0>", printable(text))
