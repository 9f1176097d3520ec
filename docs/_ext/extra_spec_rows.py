"""Rows of the tables of extra specs in the documentation."""

from collections.abc import Iterator
from typing import Final

from wharfinger.scheduling.known_extra_specs import (
    REFUSED,
    TRANSLATED,
    WITHOUT_MEANING,
    Asked,
    ExtraSpec,
)

_TABLES: Final = {
    "translated": TRANSLATED,
    "without-meaning": WITHOUT_MEANING,
    "refused": REFUSED,
}
#: The heads of the tables, by name.
HEADS: Final = {
    "translated": ("extra spec", "value", "what it asks for"),
    "without-meaning": ("extra spec", "value", "its use"),
    "refused": ("extra spec", "value", "why, and what to do"),
}


def rows(name: str) -> list[tuple[str, str, str]]:
    """Return the rows of a table: extra specs, their values and their meaning."""
    return [
        (", ".join(f"``{key}``" for key in spec.keys), spec.values.says, _meaning(spec))
        for spec in _TABLES[name]
    ]


def _meaning(spec: ExtraSpec) -> str:
    if not spec.asks:
        return f"{spec.says[0].upper()}{spec.says[1:]}"
    clauses = [f"``{value}``: {', '.join(_asked(asked))}" for value, asked in spec.asks.items()]
    if spec.only_with is not None:
        default = "nothing" if spec.default is None else f"``{spec.default}``"
        clauses.append(f"only with ``{spec.only_with}``; default there: {default}")
    return f"{'; '.join(clauses)}."


def _asked(asked: Asked) -> Iterator[str]:
    for name, amount in asked.resources.items():
        yield f"``resources:{name}={amount}``"
    for trait in sorted(asked.required):
        yield f"``{trait}`` required"
    for trait in sorted(asked.forbidden):
        yield f"``{trait}`` forbidden"
    for trait in sorted(asked.root):
        yield f"``{trait}`` required of the root"
