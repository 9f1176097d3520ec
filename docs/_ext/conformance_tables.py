"""The rules of conformance for Sphinx, from their registry, and the verdicts on our own drivers.

``conformance-rules`` has all rules, ``conformance-reports`` what the reports in a directory say.
"""

import json
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from docutils.nodes import Node
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from tables import table

from wharfinger.conformance import checks
from wharfinger.conformance.rules import Rule, all_rules


class ConformanceRules(SphinxDirective):
    """Each rule, by chapter; the chapters are the modules of the checks."""

    def run(self) -> list[Node]:
        for module in Path(checks.__path__[0]).glob("*.py"):
            self.env.note_dependency(str(module))
        lines = [line for chapter in _chapters() for line in chapter]
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


class ConformanceReports(SphinxDirective):
    """A table of the drivers of the reports in a directory beside the page."""

    required_arguments = 1

    def run(self) -> list[Node]:
        directory = Path(self.env.doc2path(self.env.docname)).parent / self.arguments[0]
        reports = []
        for path in sorted(directory.glob("*.json")):
            self.env.note_dependency(str(path))
            reports.append(json.loads(path.read_text()))
        return self.parse_text_to_nodes("\n".join(_reports(reports)))


def _chapters() -> Iterator[Iterator[str]]:
    for module, rules in groupby(all_rules(), lambda rule: rule.check.__module__):
        title = module.rpartition(".")[2].capitalize()
        yield iter((title, "~" * len(title), ""))
        yield table(
            ("id", "level", "profile", "rule, and its reason", "for"),
            ((rule.id, rule.level, rule.profile, _text(rule), _condition(rule)) for rule in rules),
        )


def _text(rule: Rule) -> str:
    return f"{_literal(rule.says)} *{_literal(rule.because)}*"


def _literal(text: str) -> str:
    return text.replace("*", "\\*").replace("_", "\\_")


def _condition(rule: Rule) -> str:
    conditions = [
        *([f"``{rule.supports}``"] if rule.supports else []),
        *([f"no ``{rule.denies}``"] if rule.denies else []),
        *(["things that can be busy"] if rule.busy else []),
        *(["what other processes find"] if rule.elsewhere else []),
        *(
            [f"harnesses with {', '.join(f'``{name}``' for name in rule.needs)}"]
            if rule.needs
            else []
        ),
    ]
    return ", ".join(conditions) or "all"


def _reports(reports: Iterable[dict[str, Any]]) -> Iterator[str]:
    yield from table(
        ("driver", "core", "extended", "failed rules", "kit", "wharfinger"),
        (
            (
                f"``{one['driver']['name']}`` of {one['driver']['distribution']}",
                one["verdicts"]["core"],
                one["verdicts"]["extended"],
                ", ".join(f"{rule['id']} ({rule['level']})" for rule in _kept_not(one)) or "none",
                one["kit"],
                one["wharfinger"],
            )
            for one in reports
        ),
    )


def _kept_not(report: dict[str, Any]) -> Iterator[dict[str, str]]:
    return (rule for rule in report["rules"] if rule["status"] in ("failed", "known failure"))


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the directives."""
    app.add_directive("conformance-rules", ConformanceRules)
    app.add_directive("conformance-reports", ConformanceReports)
    return {"parallel_read_safe": True}
