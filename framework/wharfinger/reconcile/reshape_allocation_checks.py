"""The allocations that a driver edits in a reshape: what it may leave behind."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from wharfinger.driver import Allocations
from wharfinger.exceptions import InvalidName, InvalidTree, shown
from wharfinger.providers import names


def edited(
    driver: str,
    node: str,
    before: Allocations,
    after: Any,
    *,
    within: Collection[str] | None = None,
) -> Allocations:
    """The allocations as the driver of that name left them, in the form that is sent.

    It moves amounts between the providers ``within`` its tree (None: between any): what a consumer
    has of a class is as much afterwards as before, neither lost nor counted twice. Which consumers
    there are, and whose they are, is not its to say. A provider from which nothing is left to take
    is left out. Raises InvalidTree.
    """
    if not isinstance(after, dict) or after.keys() != before.keys():
        raise _invalid(driver, node, "all allocations", after, "has to have the same consumers")
    done = {}
    for consumer, its in before.items():
        providers = dict(_providers(driver, node, consumer, after[consumer]))
        done[consumer] = {**its, "allocations": providers}
        problem = _difference(_as_sent(its["allocations"]), providers, within)
        if problem:
            what = f"the allocations of consumer {consumer}"
            raise _invalid(driver, node, what, after[consumer], problem)
    return done


def _providers(
    driver: str, node: str, consumer: str, given: Any
) -> Iterator[tuple[str, dict[str, dict[str, int]]]]:
    what = f"the allocations of consumer {consumer}"
    providers = given.get("allocations") if isinstance(given, Mapping) else None
    found: set[str] = set()
    for uuid, part in providers.items() if isinstance(providers, Mapping) else ():
        resources = part.get("resources") if isinstance(part, Mapping) else None
        if not isinstance(resources, Mapping):
            raise _invalid(driver, node, what, given, "has to name resources for each provider")
        try:
            amounts = {names.check_resource_class(kind): n for kind, n in resources.items()}
            provider = names.check_uuid(uuid)
        except InvalidName as error:
            raise _invalid(driver, node, what, given, str(error)) from error
        if not all(type(amount) is int and amount > 0 for amount in amounts.values()):
            raise _invalid(driver, node, what, given, "has to have whole amounts above 0")
        if provider in found:
            raise _invalid(driver, node, what, given, f"has to name provider {provider} once")
        if amounts:
            found.add(provider)
            yield provider, {"resources": amounts}
    if not found:
        raise _invalid(driver, node, what, given, "must not be lost: move them")


_Parts = Mapping[str, Mapping[str, Mapping[str, int]]]


def _difference(before: _Parts, after: _Parts, within: Collection[str] | None) -> str:
    """What is wrong between a consumer's parts by provider, before and after; "": nothing."""
    had, has = _totals(before), _totals(after)
    for name in sorted(had.keys() | has.keys()):
        if had[name] != has[name]:
            return (
                f"has to have as much as before of each class: of {name} that was {had[name]}, "
                f"and is {has[name]}"
            )
    if within is None:
        return ""
    for uuid in sorted((before.keys() | after.keys()) - set(within)):
        if before.get(uuid) != after.get(uuid):
            return f"has to leave what it has of provider {uuid}, which is not of this tree"
    return ""


def _totals(parts: _Parts) -> Counter[str]:
    totals: Counter[str] = Counter()
    for part in parts.values():
        totals.update(part["resources"])
    return totals


def _as_sent(parts: Mapping[str, Mapping[str, Any]]) -> _Parts:
    """A consumer's parts without what only answers have."""
    return {uuid: {"resources": part["resources"]} for uuid, part in parts.items()}


def _invalid(driver: str, node: str, what: str, given: object, problem: str) -> InvalidTree:
    return InvalidTree(
        driver=driver,
        provider=node,
        problem=f"its driver left {what} as {shown(given)}: it {problem}",
    )
