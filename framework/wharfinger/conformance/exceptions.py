"""The exceptions that a check of a rule raises."""


class Violation(Exception):
    """The driver breaks a rule.

    ``found`` says what the driver did, as a difference where possible. ``expected`` says what is
    right, unless the text of the rule already does.
    """

    def __init__(self, found: str, expected: str = "") -> None:
        super().__init__(found)
        self.found = found
        self.expected = expected


class NotShown(Exception):
    """A rule cannot be checked, often since the harness has failed. The text is the reason."""


class Unproven(NotShown):
    """A rule cannot be checked, since the harness lacks something optional that the check needs."""
