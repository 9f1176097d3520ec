"""The registry of the rules for drivers. An id is never used again."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from wharfinger.conformance.subject import Subject
    from wharfinger.driver import Capabilities

#: Version of the rules. The second number grows if a rule is new or becomes stricter. That happens
#: only in a minor version of the framework.
VERSION: Final = "1.1"

#: The check of a rule. It may return a text on how much it has tried.
Check = Callable[["Subject"], str | None]


class Level(StrEnum):
    """How binding a rule is, in the words of RFC 2119."""

    #: A driver that breaks the rule does not conform.
    MUST = "MUST"
    #: The author may have a reason to break the rule.
    SHOULD = "SHOULD"
    #: A driver may keep the rule or not. The report shows which.
    MAY = "MAY"


class Profile(StrEnum):
    """Groups of rules. Only the extended rules need a harness."""

    #: A backend that answers, from a harness or a configuration file.
    CORE = "core"
    #: A harness, since the check changes the backend or injects faults.
    EXTENDED = "extended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule of the contract between the framework and drivers."""

    id: str
    level: Level
    profile: Profile
    #: The text of the rule in one sentence.
    says: str
    because: str
    since: str
    #: Raises Violation if the driver breaks the rule.
    check: Check
    #: The rule applies only to drivers that support this capability.
    supports: str | None = None
    #: The rule applies only to drivers that do not support this capability.
    denies: str | None = None
    #: The rule applies only if the harness declares that things can be busy.
    busy: bool = False
    #: The rule applies only if the harness declares that things are cleaned after their release.
    cleaning: bool = False
    #: The rule applies only if the harness declares that other processes find the backend.
    elsewhere: bool = False
    #: The optional methods and the faults of the harness that the check needs.
    needs: tuple[str, ...] = ()
    #: Optional methods and faults that show more. If the harness lacks one, the check cannot pass.
    wants: tuple[str, ...] = ()
    #: Ids of rules. If one is broken, this rule is not run.
    after: tuple[str, ...] = ()

    def exempts(self, capabilities: "Capabilities") -> str | None:
        """Return why a driver with these capabilities is exempt, or None."""
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
    """Register a rule, with the decorated function as its check."""

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
    """Return these rule ids and, recursively, the ids of the rules that they require."""
    found = {*after}
    for id in after:
        if id in _REGISTRY:
            found |= requirements(_REGISTRY[id].after)
    return frozenset(found)


def all_rules() -> Iterator[Rule]:
    """Yield all rules, sorted by id."""
    package = import_module("wharfinger.conformance.checks")
    for module in iter_modules(package.__path__, f"{package.__name__}."):
        import_module(module.name)
    yield from (_REGISTRY[id] for id in sorted(_REGISTRY))


def are_kept_so_far(subject: "Subject", ids: Iterable[str]) -> bool:
    """Return whether neither these rules nor rules that they require were found broken."""
    return subject.broken.isdisjoint(requirements(ids))


def can_be_busy(subject: "Subject") -> bool:
    """Return whether checks may make nodes or devices busy."""
    return (
        subject.declared is not None
        and subject.declared.busy.supported
        and are_kept_so_far(subject, ("WHF-504", "WHF-508", "WHF-509", "WHF-510"))
    )
