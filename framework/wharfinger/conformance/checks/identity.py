"""Rules on names and uuids of several hosts (WHF-31.)."""

import re
from collections.abc import Iterator
from typing import Final

import os_traits

from wharfinger.conformance.backend_words import says
from wharfinger.conformance.exceptions import Violation
from wharfinger.conformance.rules import Level, Profile, rule
from wharfinger.conformance.subject import Subject, describe, listed
from wharfinger.driver import ComputeDriver

#: Another host, and what is added to a node's name that the configuration gives.
_HOST: Final = "conformance-elsewhere"


@rule(
    "WHF-311",
    Level.MUST,
    "A node or provider with another name on another host has another uuid there, and the things "
    "of another host have other names.",
    "Placement has each uuid and each name once: the second host that comes publishes nothing, or "
    "takes the first one's providers.",
    profile=Profile.EXTENDED,
    after=("WHF-302",),
)
def differs_on_another_host(subject: Subject) -> None:
    """Describe the nodes of a second host: the harness's, or the same backend under another name.

    Two hosts may report the same uuid if the backend has it: it is the hardware's then.
    """
    name = subject.instance_name
    with subject.driver() as driver:
        here = _uuids(subject, driver)
    if subject.can("second_host"):
        text = subject.harness.second_host(name)
        with subject.driver_elsewhere(_HOST, text) as driver:
            there = _uuids(subject, driver)
        if both := sorted(here.keys() & there.keys()):
            raise Violation(f"{', '.join(both[:3])}: on both hosts", "other names on another host")
        _see_others(here, there)
        return
    text = subject.harness.configuration(name)
    for configuration in _configurations(text, [*here]):
        try:
            with subject.driver_elsewhere(_HOST, configuration) as driver:
                there = _uuids(subject, driver)
        except Exception:
            continue  # the backend knows no such host, and the driver reports that
        _see_others({one: uuid for one, uuid in here.items() if not says(subject, uuid)}, there)


def _uuids(subject: Subject, driver: ComputeDriver) -> dict[str, str]:
    """The uuids of a driver's nodes and providers by name, less the sharing ones."""
    nodes = {node.name: node.uuid for node in listed(driver).nodes}
    described = describe(driver, subject.placement.contents(), refresh=False)
    return nodes | {
        name: one.provider.uuid
        for name, one in described.items()
        if one.stated and os_traits.MISC_SHARES_VIA_AGGREGATE not in one.provider.traits
    }


def _see_others(here: dict[str, str], there: dict[str, str]) -> None:
    names = {uuid: name for name, uuid in here.items()}
    for name, uuid in sorted(there.items()):
        if name not in here and uuid in names:
            found = f"{name} on another host has the uuid of {names[uuid]}, {uuid}"
            raise Violation(found, "a uuid of its own")


def _configurations(text: str, names: list[str]) -> Iterator[str]:
    """Yield the configuration, and the one with another name if it has the name of a node."""
    yield text
    for name in names:
        given = re.compile(rf"^([ \t]*\w+[ \t]*[=:][ \t]*){re.escape(name)}[ \t]*$", re.MULTILINE)
        if given.search(text):
            yield given.sub(rf"\g<1>{_HOST}", text)
