"""The output of a run in the terminal."""

import io
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rich.console import Console
from rich.table import Table

from wharfinger.conformance import report
from wharfinger.conformance.overall_verdict import Verdict, Word
from wharfinger.conformance.rule_runner import NO_HARNESS, Result, Status
from wharfinger.conformance.rules import VERSION, Level, Profile
from wharfinger.conformance.run_options import Asked

_WIDTH: Final = 100
_COLUMNS: Final = {
    "passed": (Status.PASSED,),
    "failed": (Status.FAILED, Status.UNEXPECTED),
    "known": (Status.KNOWN,),
    "exempt": (Status.EXEMPT,),
    "not run": (Status.NOT_RUN,),
    "unproven": (Status.UNPROVEN,),
    "not asked": (Status.NOT_ASKED,),
}


def failure(result: Result, asked: Asked) -> str:
    """Return the text that explains a broken rule."""
    rule = result.rule
    lines = (
        f"{rule.id} {rule.level}: {rule.says}",
        f"expected: {result.expected or 'what the rule says'}",
        f"found:    {result.found}",
        f"again:    {again(asked, rule.id)}",
    )
    return "\n".join([*lines, *([result.details] if result.details else [])])


def again(asked: Asked, id: str) -> str:
    """Return the command that checks this rule again."""
    command = ["wharfinger", "conformance", "run", asked.driver or "", *asked.arguments]
    return shlex.join([*command, "--rule", id])


def progress(result: Result) -> str:
    """Return the line about a checked rule."""
    return f"{result.rule.id}  {result.rule.level:6}  {result.status}"


def summary(asked: Asked, verdicts: Sequence[Verdict], results: Iterable[Result]) -> Iterator[str]:
    """Yield the lines before the final verdict."""
    results = [*results]
    if asked.driver is not None:
        one = report.driver(asked.driver)
        what = f"{one['class']} of {one['distribution']}" if one["class"] else "not installed"
        yield f"{asked.driver}: {what}; kit {VERSION}, seed {asked.seed}"
    for result in results:
        if result.status is Status.KNOWN or (
            result.status is Status.FAILED and result.rule.level is not Level.MUST
        ):
            yield from failure(result, asked).splitlines()
            yield ""
    yield from _not_run(results)
    yield from _unproven(results)
    yield from _table(verdicts).splitlines()
    words = {verdict.profile: verdict.word for verdict in verdicts}
    lacks_harness = any(result.found == NO_HARNESS for result in results)
    if lacks_harness and words.get(Profile.CORE) is Word.CONFORMS:
        yield "The extended rules need a harness of the driver. Option to check only the core "
        yield "rules: --profile core (with pytest --driver-profile core)."


def last_word(verdicts: Iterable[Verdict]) -> str:
    """Return the line with the verdict on each profile."""
    return ", ".join(
        f"{verdict.profile}: {verdict.word}"
        + (f" ({verdict.unproven} unproven)" if verdict.unproven else "")
        for verdict in verdicts
    )


def _not_run(results: Iterable[Result]) -> Iterator[str]:
    reasons: dict[str, list[str]] = {}
    for result in results:
        if result.status is Status.NOT_RUN:
            reasons.setdefault(result.found, []).append(result.rule.id)
    for reason, ids in reasons.items():
        yield f"not run: {', '.join(ids)}: {reason}"


def _unproven(results: Iterable[Result]) -> Iterator[str]:
    for result in results:
        if result.status is Status.UNPROVEN:
            yield f"unproven, since {result.found}: {result.rule.id}: {result.rule.says}"


def _table(verdicts: Iterable[Verdict]) -> str:
    table = Table(box=None, pad_edge=False)
    table.add_column("profile")
    table.add_column("level")
    for name in _COLUMNS:
        table.add_column(name, justify="right")
    table.add_column("verdict")
    for verdict in verdicts:
        for level in Level:
            counts = verdict.counts[level]
            if not counts.total():
                continue
            figures = [sum(counts[one] for one in several) for several in _COLUMNS.values()]
            is_first = level is Level.MUST
            table.add_row(
                verdict.profile if is_first else "",
                level,
                *(str(figure) if figure else "-" for figure in figures),
                verdict.word if is_first else "",
            )
    text = io.StringIO()
    Console(file=text, width=_WIDTH, color_system=None).print(table)
    return text.getvalue()
