"""Network ports as requests: Neutron's attribute, physical networks, and invalid JSON."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lab.samples import uuid
from wharfinger.exceptions import InvalidRequest
from wharfinger.placement.trait_conditions import TraitConditions
from wharfinger.scheduling import RequestGroup, ResourceRequest
from wharfinger.scheduling.ports import from_port
from wharfinger.scheduling.request_query import encode

BANDWIDTH, PACKETS = uuid("bandwidth"), uuid("packets")
EGRESS, INGRESS = "NET_BW_EGR_KILOBIT_PER_SEC", "NET_BW_IGR_KILOBIT_PER_SEC"
PACKET_RATE = "NET_PACKET_RATE_KILOPACKET_PER_SEC"
NORMAL, FIRST, SECOND = "CUSTOM_VNIC_TYPE_NORMAL", "CUSTOM_PHYSNET_FIRST", "CUSTOM_PHYSNET_SECOND"

#: The resource request of a Neutron port with a minimum bandwidth and packet rate.
PORT: Any = {
    "request_groups": [
        {"id": BANDWIDTH, "required": [FIRST, NORMAL], "resources": {EGRESS: 1000, INGRESS: 500}},
        {"id": PACKETS, "required": [NORMAL], "resources": {PACKET_RATE: 10}},
    ],
    "same_subtree": [BANDWIDTH, PACKETS],
}


def group(**values: Any) -> dict[str, Any]:
    """Return the request of a port with one group, with these values changed."""
    one = {"id": BANDWIDTH, "required": [FIRST, NORMAL], "resources": {EGRESS: 1000}}
    return {"request_groups": [one | values]}


def refusal(port: object, *physnets: str) -> tuple[str, object, str]:
    """Return key, value and problem of the error for this port."""
    with pytest.raises(InvalidRequest) as caught:
        from_port(port, physnets)
    assert caught.value.subject == "port"
    return caught.value.key, caught.value.value, caught.value.problem


def test_port_requests_its_groups_without_an_owner() -> None:
    assert from_port(PORT) == ResourceRequest(
        groups=(
            RequestGroup(
                suffix=BANDWIDTH,
                resources={EGRESS: 1000, INGRESS: 500},
                traits=TraitConditions.parse([f"{FIRST},{NORMAL}"]),
            ),
            RequestGroup(
                suffix=PACKETS,
                resources={PACKET_RATE: 10},
                traits=TraitConditions.parse([NORMAL]),
            ),
        ),
        group_policy="none",
        same_subtree=(frozenset({BANDWIDTH, PACKETS}),),
    )


def test_port_of_one_group_has_neither_policy_nor_subtree() -> None:
    request = from_port(group())

    assert (request.group_policy, request.same_subtree) == (None, ())
    assert [one.owner for one in request.groups] == [None]


def test_group_without_traits_is_accepted() -> None:
    port = group()
    del port["request_groups"][0]["required"]

    assert not from_port(port).groups[0].traits


def test_unknown_key_of_a_newer_neutron_is_ignored() -> None:
    assert from_port({**group(level=3), "more": []}) == from_port(group())


def test_amount_of_zero_is_omitted() -> None:
    # Neutron accepts a minimum bandwidth of 0, and nova removes it.
    assert from_port(group(resources={EGRESS: 1000, INGRESS: 0})) == from_port(group())


# Physical networks.


def test_network_over_several_physical_networks_allows_any_of_them() -> None:
    request = from_port(PORT, ["first", "second"])

    assert [one.traits.values() for one in request.groups] == [
        (NORMAL, f"in:{FIRST},{SECOND}"),
        (NORMAL,),
    ]


def test_network_over_one_physical_network_requires_it() -> None:
    assert from_port(PORT, ["first"]) == from_port(PORT)


def test_physical_network_has_the_trait_that_neutron_gives_it() -> None:
    request = from_port(group(), ["First", "my-net.2"])

    assert request.groups[0].traits.values() == (NORMAL, f"in:{FIRST},CUSTOM_PHYSNET_MY_NET_2")


def test_port_without_a_physical_network_gets_no_trait() -> None:
    assert from_port(group(required=[NORMAL]), ["first", "second"]) == (
        from_port(group(required=[NORMAL]))
    )


def test_port_over_a_physical_network_outside_its_network_is_refused() -> None:
    assert refusal(group(), "second", "third") == (
        f"required of group {BANDWIDTH}",
        FIRST,
        "the port's network has only CUSTOM_PHYSNET_SECOND, CUSTOM_PHYSNET_THIRD.",
    )


# Invalid ports.


@pytest.mark.parametrize(
    "port",
    [
        None,
        [],
        "port",
        {},
        {"resources": {EGRESS: 1000}, "required": [NORMAL]},
        {"request_groups": None},
        {"request_groups": {}},
        {"request_groups": [None]},
        {"request_groups": ["group"]},
        {"request_groups": [{}]},
        {"request_groups": [{"id": BANDWIDTH}]},
        {"request_groups": [{"resources": {EGRESS: 1000}}]},
        {**group(), "same_subtree": None},
        {**group(), "same_subtree": BANDWIDTH},
        {**group(), "same_subtree": [[BANDWIDTH]]},
    ],
    ids=json.dumps,
)
def test_port_in_another_format_is_refused(port: object) -> None:
    key, value, _problem = refusal(port)

    assert (key, value) == ("resource_request", port)


@pytest.mark.parametrize(
    "part",
    [
        {"id": None},
        {"id": 1},
        {"resources": None},
        {"resources": [EGRESS]},
        {"resources": {EGRESS: None}},
        {"resources": {EGRESS: "1000"}},
        {"resources": {EGRESS: 1.5}},
        {"resources": {EGRESS: True}},
        {"resources": {EGRESS: [1]}},
        {"required": None},
        {"required": NORMAL},
        {"required": {NORMAL: True}},
        {"required": [None]},
    ],
    ids=json.dumps,
)
def test_group_in_another_format_is_refused(part: dict[str, Any]) -> None:
    port = group(**part)
    key, value, _problem = refusal(port)

    assert (key, value) == ("resource_request", port)


@pytest.mark.parametrize(
    ("port", "key", "told"),
    [
        ({"request_groups": []}, "resources", "no resources are requested."),
        (group(resources={}), "resources", "no resources are requested."),
        (group(resources={EGRESS: -1}), f"resources:{EGRESS}", "a whole number from 1"),
        (group(resources={"egress": 1}), "resources", "the name of a resource class"),
        (group(required=["normal"]), "required", "'normal' cannot be a trait"),
        (group(id="a port"), "suffix", "letters, digits, _ and -"),
        (
            {"request_groups": group()["request_groups"] * 2},
            "suffix",
            "two groups have this suffix.",
        ),
        (
            {**group(), "same_subtree": [PACKETS]},
            "same_subtree",
            "no group has this suffix.",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else json.dumps(value),
)
def test_invalid_request_of_a_port_is_refused(port: object, key: str, told: str) -> None:
    found, _value, problem = refusal(port)

    assert found == key
    assert told in problem


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda some: (
        st.lists(some, max_size=3)
        | st.dictionaries(
            st.sampled_from(["request_groups", "id", "resources", "required", EGRESS]), some
        )
    ),
    max_leaves=8,
)


@given(JSON, st.lists(st.text(max_size=4), max_size=2))
def test_any_json_is_a_request_or_is_refused(port: object, physnets: list[str]) -> None:
    try:
        request = from_port(port, physnets)
    except InvalidRequest as error:
        assert error.subject == "port"
    else:
        assert encode(request)


GROUPS = st.fixed_dictionaries(
    {
        "id": st.sampled_from([BANDWIDTH, PACKETS, "", "_A"]),
        "resources": st.dictionaries(st.sampled_from([EGRESS, INGRESS]), st.integers(-1, 3)),
        "required": st.lists(st.sampled_from([FIRST, SECOND, NORMAL, "OWNER_NOVA", "!T"])),
    }
)


@given(st.lists(GROUPS, max_size=3), st.lists(st.sampled_from(["first", "second"])))
def test_any_groups_are_a_request_or_are_refused(
    groups: list[dict[str, Any]], physnets: list[str]
) -> None:
    try:
        request = from_port({"request_groups": groups}, physnets)
    except InvalidRequest as error:
        assert error.subject == "port"
    else:
        assert len(request.groups) == len(groups)
        assert encode(request)
