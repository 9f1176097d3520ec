"""Singular and plural forms for counts."""


def many(count: int, noun: str) -> str:
    """Return the count with its noun, such as "2 providers"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
