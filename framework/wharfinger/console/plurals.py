"""Singular and plural forms for counts."""


def many(count: int, noun: str) -> str:
    """Return the count with its noun, such as "2 providers"."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def are(count: int) -> str:
    """Return "is" or "are" for a count."""
    return "is" if count == 1 else "are"


def were(count: int) -> str:
    """Return "was" or "were" for a count."""
    return "was" if count == 1 else "were"


def have(count: int) -> str:
    """Return "has" or "have" for a count."""
    return "has" if count == 1 else "have"
