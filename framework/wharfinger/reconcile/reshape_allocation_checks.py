"""Check the allocations that a driver has edited in a reshape."""

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from wharfinger.driver import Allocations
from wharfinger.exceptions import InvalidTree, shown
from wharfinger.providers import names

_Parts = Mapping[str, Mapping[str, Any]]


def edited(
    driver: str, node: str, before: Allocations, after: Any, *, within: Collection[str]
) -> Allocations:
    """Check edited allocations; return them in the form of POST /reshaper. Raises InvalidTree."""

    def invalid(what: str, given: object, problem: str) -> InvalidTree:
        problem = f"the driver changed {what} to {shown(given)}. They {problem}"
        return InvalidTree(driver=driver, provider=node, problem=problem)

    if not isinstance(after, dict) or after.keys() != before.keys():
        raise invalid("all allocations", after, "must have the same consumers as before")
    done = {}
    for consumer, old in before.items():
        try:
            has = _providers(after[consumer])
            _check_moves(old["allocations"], has, within)
        except ValueError as error:
            what = f"the allocations of consumer {consumer}"
            raise invalid(what, after[consumer], str(error)) from error
        done[consumer] = {**old, "allocations": has}
    return done


def _providers(given: Any) -> dict[str, dict[str, dict[str, int]]]:
    providers = given.get("allocations") if isinstance(given, Mapping) else None
    found: dict[str, dict[str, dict[str, int]]] = {}
    for uuid, part in providers.items() if isinstance(providers, Mapping) else ():
        resources = part.get("resources") if isinstance(part, Mapping) else None
        if not isinstance(resources, Mapping):
            raise ValueError("must name resources for each provider")
        amounts = {names.check_resource_class(kind): n for kind, n in resources.items()}
        provider = names.check_uuid(uuid)
        if not all(type(amount) is int and amount > 0 for amount in amounts.values()):
            raise ValueError("must have whole amounts above 0")
        if provider in found:
            raise ValueError(f"must name provider {provider} only once")
        if amounts:
            found[provider] = {"resources": amounts}
    if not found:
        raise ValueError("must not lose all resources: move them to another provider")
    return found


def _check_moves(before: _Parts, after: _Parts, within: Collection[str]) -> None:
    had, has = _totals(before), _totals(after)
    for name in sorted(had.keys() | has.keys()):
        if had[name] != has[name]:
            raise ValueError(
                f"must keep the total of each class: {name} was {had[name]}, and is {has[name]} now"
            )
    for uuid in sorted((before.keys() | after.keys()) - set(within)):
        if before.get(uuid) != after.get(uuid):
            raise ValueError(
                f"must not change the allocation from provider {uuid}, which is not in this tree"
            )


def _totals(parts: _Parts) -> Counter[str]:
    totals: Counter[str] = Counter()
    for part in parts.values():
        totals.update(part["resources"])
    return totals
