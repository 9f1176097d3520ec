"""An SVG badge with the verdicts on a driver, for its README."""

from collections.abc import Mapping
from typing import Any, Final
from xml.sax.saxutils import escape, quoteattr

from wharfinger.conformance.report import unproven

#: The rough width of a letter, and the space on each side of a text, in pixels.
_LETTER: Final = 6.6
_MARGIN: Final = 8
_COLOURS: Final = {
    "CONFORMS": "#2f8132",
    "KNOWN FAILURES": "#9a6700",
    "PARTIAL": "#9a6700",
    "FAILED": "#b3261e",
    "NOT ASKED": "#6b7280",
}
_LABEL: Final = "wharfinger"


def as_svg(facts: Mapping[str, Any]) -> str:
    """Return the badge for the facts of a report."""
    words = [
        _LABEL,
        *(
            f"{name} {word.lower()}{unproven(facts, name)}"
            for name, word in facts["verdicts"].items()
        ),
    ]
    colours = ["#374151", *(_COLOURS[word] for word in facts["verdicts"].values())]
    widths = [round(len(word) * _LETTER + 2 * _MARGIN) for word in words]
    starts = [sum(widths[:index]) for index in range(len(widths))]
    title = f"{facts['driver']['name']}: {', '.join(words[1:])}"
    parts = [
        f'<rect x="{start}" width="{width}" height="20" fill="{colour}"/>'
        f'<text x="{start + width / 2:g}" y="14" text-anchor="middle">{escape(word)}</text>'
        for word, colour, width, start in zip(words, colours, widths, starts, strict=True)
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{sum(widths)}" height="20" '
            f'role="img" aria-label={quoteattr(title)}>',
            f"<title>{escape(title)}</title>",
            '<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">',
            *parts,
            "</g>",
            "</svg>",
            "",
        ]
    )
