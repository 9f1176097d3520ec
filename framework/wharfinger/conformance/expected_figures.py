"""Compare totals and traits in Placement with those that the harness reads from the backend."""

from wharfinger.conformance.exceptions import NotShown, Violation
from wharfinger.conformance.harness import Expected
from wharfinger.conformance.placement_diff import Contents
from wharfinger.conformance.rules import are_kept_so_far
from wharfinger.conformance.subject import Subject
from wharfinger.providers import Provider

#: The rule that the driver publishes the backend's figures at its start.
FIGURES = "WHF-221"
#: Why it is unproven that the driver does not confuse things.
ALL_ALIKE = "all things of the harness have the same figures and traits, and it has no change"


def see_as_expected(subject: Subject, contents: Contents) -> None:
    """Compare things with ``Harness.expected``, unless it is missing or WHF-221 is broken.

    Raises Violation and NotShown.
    """
    if subject.can("expected") and are_kept_so_far(subject, (FIGURES,)):
        see_figures(subject, contents)


def see_figures(subject: Subject, contents: Contents) -> None:
    """Raise Violation unless Placement has the totals and traits of ``Harness.expected``.

    Raises NotShown.
    """
    harness = subject.harness
    expected = harness.expected()
    if others := expected.keys() - {*harness.things()}:
        raise NotShown(f"the harness expects things that do not exist: {', '.join(sorted(others))}")
    for thing, one in expected.items():
        if thing not in contents:
            raise Violation(
                f"the harness has thing {thing}, but Placement has no provider {thing}",
                f"a provider {thing}",
            )
        _see(contents[thing], one)


def _see(provider: Provider, expected: Expected) -> None:
    totals = {kind: one.total for kind, one in sorted(provider.inventories.items())}
    if totals != expected.totals:
        raise Violation(
            f"{provider.name}: totals {totals}", f"totals {dict(sorted(expected.totals.items()))}"
        )
    if missing := expected.traits - provider.traits:
        found = f"{provider.name} lacks the traits {', '.join(sorted(missing))}"
        raise Violation(found, "these traits, too")
