"""The exact text of provider trees."""

import io
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from rich.console import Console

from wharfinger.console import tree
from wharfinger.placement.model import ProviderSummary
from wharfinger.providers import Inventory
from wharfinger.scheduling.provider_details import Details, Reserved

NOW = datetime(2031, 5, 1, 12, tzinfo=UTC)


def details(
    name: str,
    parent: str | None = None,
    *owners: str,
    inventories: Mapping[str, Inventory] | None = None,
    traits: frozenset[str] | None = None,
    usages: Mapping[str, int] | None = None,
) -> Details:
    above = parent and f"uuid-{parent}"
    return Details(
        summary=ProviderSummary(f"uuid-{name}", name, 3, "uuid-host", above),
        owners=owners,
        inventories=inventories,
        traits=traits,
        usages=usages,
    )


BARE = [
    details("gpu-1", "host", "OWNER_CYBORG"),
    details("other"),
    details("part", "gpu-0", "OWNER_NOVA"),
    details("gpu-0", "host", "OWNER_NOVA", "OWNER_CYBORG"),
    details("host", None, "OWNER_NOVA"),
]
FULL = [
    details(
        "host",
        None,
        "OWNER_NOVA",
        inventories={
            "VCPU": Inventory(total=16, reserved=2),
            "MEMORY_MB": Inventory(total=65536),
        },
        traits=frozenset(["OWNER_NOVA", "COMPUTE_NODE"]),
        usages={"VCPU": 4, "MEMORY_MB": 0},
    ),
    details(
        "gpu",
        "host",
        "OWNER_NOVA",
        inventories={"VGPU": Inventory(total=8, reserved=8)},
        traits=frozenset(),
        usages={},
    ),
]


def drawn(*providers: Details) -> str:
    out = io.StringIO()
    console = Console(file=out, width=100, highlight=False)
    for drawing in tree.as_drawing(providers, NOW):
        console.print(drawing)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def test_trees_are_drawn_with_owners_in_the_order_of_names() -> None:
    assert drawn(*BARE) == (
        "host  OWNER_NOVA\n"
        "├── gpu-0  OWNER_NOVA OWNER_CYBORG\n"
        "│   └── part  OWNER_NOVA\n"
        "└── gpu-1  OWNER_CYBORG\n"
        "other  no owner\n"
    )


def test_contents_are_drawn_before_children() -> None:
    assert drawn(*FULL) == (
        "host  OWNER_NOVA\n"
        "├── MEMORY_MB 0/65536\n"
        "├── VCPU 4/16  2 reserved\n"
        "├── traits: COMPUTE_NODE, OWNER_NOVA\n"
        "└── gpu  OWNER_NOVA\n"
        "    └── VGPU 0/8  fully reserved\n"
    )


def reserved(provider: Details, *others: str) -> Details:
    since = NOW - timedelta(minutes=3)
    cleaning = Reserved(
        provider_uuid=provider.summary.uuid, reason="cleaning", holder="[red]job", since=since
    )
    return replace(provider, reservations=(cleaning,), reserved_by_others=frozenset(others))


def test_holders_are_drawn_before_the_contents() -> None:
    host, gpu = FULL
    assert drawn(reserved(host), reserved(gpu, "VGPU")) == (
        "host  OWNER_NOVA\n"
        "├── reserved: cleaning, 3m ([red]job)\n"
        "├── MEMORY_MB 0/65536\n"
        "├── VCPU 4/16  2 reserved\n"
        "├── traits: COMPUTE_NODE, OWNER_NOVA\n"
        "└── gpu  OWNER_NOVA\n"
        "    ├── reserved: cleaning, 3m ([red]job)\n"
        "    ├── reserved by other programs: VGPU\n"
        "    └── VGPU 0/8  fully reserved\n"
    )


def test_holders_as_data_are_omitted_if_unknown() -> None:
    (host,) = tree.as_data([reserved(FULL[0], "VCPU", "MEMORY_MB")])
    (unknown,) = tree.as_data(FULL[:1])

    assert host["reservations"] == [
        {
            "reason": "cleaning",
            "holder": "[red]job",
            "since": "2031-05-01T11:57:00+00:00",
            "expected_end": None,
        }
    ]
    assert host["reserved_by_others"] == ["MEMORY_MB", "VCPU"]
    assert not {"reservations", "reserved_by_others"} & unknown.keys()


def test_inventories_are_drawn_without_usages_too() -> None:
    inventories = {"VGPU": Inventory(total=8)}
    assert drawn(details("gpu", None, "OWNER_NOVA", inventories=inventories)) == (
        "gpu  OWNER_NOVA\n└── VGPU 8\n"
    )


def test_usages_are_drawn_without_inventories_too() -> None:
    assert drawn(details("gpu", None, "OWNER_NOVA", usages={"VGPU": 2})) == (
        "gpu  OWNER_NOVA\n└── VGPU 2 used\n"
    )


def test_child_without_its_parent_is_drawn_at_the_top() -> None:
    assert drawn(details("gpu", "host", "OWNER_NOVA")) == "gpu  OWNER_NOVA\n"


def test_names_are_text_and_not_markup() -> None:
    assert drawn(details("[red]gpu[/red]", None, "OWNER_NOVA")) == "[red]gpu[/red]  OWNER_NOVA\n"


def test_empty_list_draws_nothing() -> None:
    assert drawn() == "\n"


def test_tree_may_be_deeper_than_pythons_stack() -> None:
    chain = [details("0"), *(details(str(n), str(n - 1)) for n in range(1, 3000))]
    (drawing,) = tree.as_drawing(chain, NOW)
    assert drawing.children[0].label
    (data,) = tree.as_data(chain)
    depth = 1
    while data["children"]:
        (data,) = data["children"]
        depth += 1
    assert depth == 3000


def test_trees_are_nested_data() -> None:
    host, other = tree.as_data(BARE)
    assert other == {
        "name": "other",
        "uuid": "uuid-other",
        "parent_uuid": None,
        "generation": 3,
        "owners": [],
        "children": [],
    }
    assert [child["name"] for child in host["children"]] == ["gpu-0", "gpu-1"]
    assert host["children"][0]["owners"] == ["OWNER_NOVA", "OWNER_CYBORG"]
    (part,) = host["children"][0]["children"]
    assert (part["name"], part["parent_uuid"]) == ("part", "uuid-gpu-0")


def test_contents_as_data_are_present_if_requested() -> None:
    (host,) = tree.as_data(FULL)
    assert host["traits"] == ["COMPUTE_NODE", "OWNER_NOVA"]
    assert host["usages"] == {"MEMORY_MB": 0, "VCPU": 4}
    assert list(host["inventories"]) == ["MEMORY_MB", "VCPU"]
    assert host["inventories"]["VCPU"] == Inventory(total=16, reserved=2).to_dict()
    assert host["children"][0]["traits"] == []
    assert json.loads(json.dumps(host)) == host
