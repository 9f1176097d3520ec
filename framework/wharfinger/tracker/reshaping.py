"""The allocations that a driver edits in a reshape: what it may leave behind."""

from collections.abc import Iterator, Mapping
from typing import Any

from wharfinger.driver import Allocations
from wharfinger.exceptions import InvalidName, InvalidTree, shown
from wharfinger.providers import names


def edited(driver: str, node: str, before: Allocations, after: Any) -> Allocations:
    """The allocations as the driver of that name left them, in the form that is sent.

    It moves amounts between providers and classes; which consumers there are, and whose they
    are, is not its to say. A provider from which nothing is left to take is left out. Raises
    InvalidTree.
    """
    if not isinstance(after, dict) or after.keys() != before.keys():
        raise _invalid(driver, node, "all allocations", after, "has to have the same consumers")
    return {
        consumer: {**its, "allocations": dict(_providers(driver, node, consumer, after[consumer]))}
        for consumer, its in before.items()
    }


def _providers(
    driver: str, node: str, consumer: str, given: Any
) -> Iterator[tuple[str, dict[str, dict[str, int]]]]:
    what = f"the allocations of consumer {consumer}"
    providers = given.get("allocations") if isinstance(given, Mapping) else None
    found = False
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
        if amounts:
            found = True
            yield provider, {"resources": amounts}
    if not found:
        raise _invalid(driver, node, what, given, "must not be lost: move them")


def _invalid(driver: str, node: str, what: str, given: object, problem: str) -> InvalidTree:
    return InvalidTree(
        driver=driver,
        provider=node,
        problem=f"its driver left {what} as {shown(given)}: it {problem}",
    )
