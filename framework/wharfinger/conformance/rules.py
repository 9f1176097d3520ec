"""The rules for drivers, with reasons and checks.

One registry. The checks are in ``wharfinger.conformance.checks``. The documentation's page has the
texts of the rules. An id is never given to another rule.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from wharfinger.conformance.subject import Subject
    from wharfinger.driver import Capabilities

#: Version of the rules. The second number grows with a new rule, or one that becomes binding; that
#: happens only in a minor version of the framework.
VERSION: Final = "1.1"

#: The check of a rule. It may return how much it has compared.
Check = Callable[["Subject"], str | None]


class Level(StrEnum):
    """How binding a rule is, as RFC 2119 has it."""

    #: A driver that breaks the rule does not conform.
    MUST = "MUST"
    #: The author may have a reason to break the rule.
    SHOULD = "SHOULD"
    #: A driver may keep the rule or not. The report shows which.
    MAY = "MAY"


class Profile(StrEnum):
    """The means that the check of a rule needs."""

    #: The driver, and a configuration or a harness with which it runs.
    CORE = "core"
    #: A harness, too: the rule is about what changes, or breaks.
    EXTENDED = "extended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule of the contract.

    ``says`` is the contract in a sentence, ``because`` the reason, ``since`` the version of the
    framework that brought it. It applies to drivers that support the capability ``supports``, or
    that do not support ``denies``; with ``busy``, where things can be busy; with ``cleaning``,
    where the backend cleans things after their release; with ``elsewhere``, where other processes
    find the backend. ``needs`` are the optional methods of the harness that the check calls, and
    the faults; if the harness lacks one, the rule is unproven. ``check`` raises Violation if the
    driver breaks the rule. ``after`` are the ids of the rules that this one depends on.
    """

    id: str
    level: Level
    profile: Profile
    says: str
    because: str
    since: str
    check: Check
    supports: str | None = None
    denies: str | None = None
    busy: bool = False
    cleaning: bool = False
    elsewhere: bool = False
    needs: tuple[str, ...] = ()
    after: tuple[str, ...] = ()

    def exempts(self, capabilities: "Capabilities") -> str | None:
        """Return why a driver with these capabilities need not keep the rule; None if it must."""
        for name, wanted in ((self.supports, True), (self.denies, False)):
            if name is not None and capabilities.supports(name) is not wanted:
                declared = getattr(capabilities, name)
                reason = f": {declared.reason}" if declared and declared.reason else ""
                return f"{name} is {'not ' if wanted else ''}supported{reason}"
        return None


_REGISTRY: Final[dict[str, Rule]] = {}


def rule(
    id: str,
    level: Level,
    says: str,
    because: str,
    *,
    since: str = "0.1",
    profile: Profile = Profile.CORE,
    **conditions: Any,
) -> Callable[[Check], Check]:
    """Register a function as the check of a rule; the arguments are Rule's."""

    def register(check: Check) -> Check:
        if id in _REGISTRY:
            raise ValueError(f"there are two rules {id}")
        _REGISTRY[id] = Rule(
            id=id,
            level=level,
            profile=profile,
            says=says,
            because=because,
            since=since,
            check=check,
            **conditions,
        )
        return check

    return register


def requirements(after: Iterable[str]) -> frozenset[str]:
    """Return the ids of rules, and of all rules that they depend on."""
    found = {*after}
    for id in after:
        if id in _REGISTRY:
            found |= requirements(_REGISTRY[id].after)
    return frozenset(found)


def all_rules() -> Iterator[Rule]:
    """Return all rules in the order of their ids, in which they are checked."""
    package = import_module("wharfinger.conformance.checks")
    for module in iter_modules(package.__path__, f"{package.__name__}."):
        import_module(module.name)
    yield from (_REGISTRY[id] for id in sorted(_REGISTRY))


def are_kept_so_far(subject: "Subject", ids: Iterable[str]) -> bool:
    """Return whether these rules, and those that they need, are not known to be broken."""
    return subject.broken.isdisjoint(requirements(ids))


def can_be_busy(subject: "Subject") -> bool:
    """Return whether things can be made busy, and the driver is known to respect that."""
    return (
        subject.declared is not None
        and subject.declared.busy.supported
        and are_kept_so_far(subject, ("WHF-504", "WHF-508", "WHF-509", "WHF-510"))
    )
