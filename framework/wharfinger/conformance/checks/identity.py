"""The rule on names and uuids that several hosts publish (WHF-311)."""

import re
from collections.abc import Iterator
from typing import Final

import os_traits

from wharfinger.conformance.backend_words import contains
from wharfinger.conformance.exceptions import Violation
from wharfinger.conformance.rules import Level, Profile, rule
from wharfinger.conformance.subject import Subject, describe, listed
from wharfinger.driver import ComputeDriver

#: The name of another host or node, which begins and ends with this name.
_ELSEWHERE: Final = "{0}-elsewhere-{0}"


@rule(
    "WHF-311",
    Level.MUST,
    "Things of two hosts have different names. Nodes and providers with different names on two "
    "hosts have different uuids.",
    "Placement has each uuid and each name only once. A second host with the same ones publishes "
    "nothing, or takes the providers of the first host.",
    profile=Profile.EXTENDED,
    wants=("second_host",),
    after=("WHF-302",),
)
def differs_on_another_host(subject: Subject) -> None:
    """Check that different hosts publish different names and uuids."""
    name = subject.instance_name
    with subject.driver() as driver:
        here = _uuids(subject, driver)
        host = _ELSEWHERE.format(driver.host)
    if subject.can("second_host"):
        text = subject.harness.second_host(name)
        with subject.driver_elsewhere(host, text) as driver:
            there = _uuids(subject, driver)
        if both := sorted(here.keys() & there.keys()):
            raise Violation(
                f"two hosts have nodes or providers of the same names: {', '.join(both[:3])}",
                "names that differ from host to host",
            )
        _check_uuids_differ(here, there)
        return
    text = subject.harness.configuration(name)
    for configuration in _with_each_node_renamed(text, [*here]):
        try:
            with subject.driver_elsewhere(host, configuration) as driver:
                there = _uuids(subject, driver)
        except Exception:
            continue  # the driver reports that the backend does not know this host
        _check_uuids_differ(
            {one: uuid for one, uuid in here.items() if not contains(subject, uuid)}, there
        )


def _uuids(subject: Subject, driver: ComputeDriver) -> dict[str, str]:
    nodes = {node.name: node.uuid for node in listed(driver).nodes}
    described = describe(driver, subject.placement.contents(), refresh=False)
    return nodes | {
        name: one.provider.uuid
        for name, one in described.items()
        if one.stated and os_traits.MISC_SHARES_VIA_AGGREGATE not in one.provider.traits
    }


def _check_uuids_differ(here: dict[str, str], there: dict[str, str]) -> None:
    names = {uuid: name for name, uuid in here.items()}
    for name, uuid in sorted(there.items()):
        if name not in here and uuid in names:
            raise Violation(
                f"{name} on another host has the same uuid as {names[uuid]} on this host: {uuid}",
                "different uuids for different names",
            )


def _with_each_node_renamed(text: str, names: list[str]) -> Iterator[str]:
    yield text
    for name in names:
        given = re.compile(rf"^([ \t]*\w+[ \t]*[=:][ \t]*){re.escape(name)}[ \t]*$", re.MULTILINE)
        if given.search(text):
            yield given.sub(rf"\g<1>{_ELSEWHERE.format(name)}", text)
