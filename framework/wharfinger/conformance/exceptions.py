"""The exceptions that a check of a rule raises."""


class Violation(Exception):
    """The driver breaks a rule.

    ``found`` is what the driver did, as a difference where possible. ``expected`` is the right
    result, where the text of the rule does not give it already.
    """

    def __init__(self, found: str, expected: str = "") -> None:
        super().__init__(found)
        self.found = found
        self.expected = expected


class NotShown(Exception):
    """A rule cannot be checked: the harness lacks something, or failed. The text is the reason."""


class Unproven(NotShown):
    """A rule cannot be checked with this harness, which need not have what that takes."""
