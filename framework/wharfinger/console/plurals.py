"""Counts in words."""


def many(count: int, what: str) -> str:
    """So many of something."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def are(count: int) -> str:
    """The verb of so many."""
    return "is" if count == 1 else "are"


def were(count: int) -> str:
    """The verb of so many, of what is over."""
    return "was" if count == 1 else "were"


def have(count: int) -> str:
    """The verb of so many."""
    return "has" if count == 1 else "have"
