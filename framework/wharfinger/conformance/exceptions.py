"""The exceptions that a check of a rule raises."""


class Violation(Exception):
    """The driver breaks a rule.

    ``found`` says what the driver did, and ``expected`` what is right.
    """

    def __init__(self, found: str, expected: str = "") -> None:
        super().__init__(found)
        self.found = found
        self.expected = expected


class NotShown(Exception):
    """A rule cannot be checked ("not run"), for example because the harness has failed."""


class Unproven(NotShown):
    """A rule cannot be checked, or only in part ("unproven").

    Optional methods of the harness are declared in the rule instead (``needs``, ``wants``).
    """
