"""The exact text of a plan."""

import json
from textwrap import dedent

import pytest

from wharfinger.console import plan
from wharfinger.providers import Inventory, Provider
from wharfinger.providers.plan import (
    CreateProvider,
    DeleteProvider,
    ForeignReservation,
    PendingRemoval,
    Reshape,
    SetAggregates,
    SetInventories,
    SetTraits,
    Step,
    UpdateProvider,
)

HOST, GPU, CARD = "uuid-host", "uuid-gpu", "uuid-card"
ON_HOST = {"uuid": HOST, "name": "host", "root_uuid": HOST}
ON_GPU = {"uuid": GPU, "name": "gpu", "root_uuid": HOST}

FIGURES = SetInventories(
    **ON_GPU,
    before={"VGPU": Inventory(total=2), "CUSTOM_OLD": Inventory(total=1)},
    after={
        "VGPU": Inventory(total=4, reserved=4),
        "CUSTOM_NEW": Inventory(total=3),
        "CUSTOM_KEPT": Inventory(total=5, reserved=1),
    },
)
STEPS: list[Step] = [
    CreateProvider(**ON_HOST, parent_uuid=None),
    CreateProvider(**ON_GPU, parent_uuid=HOST),
    UpdateProvider(
        **ON_GPU,
        before=Provider(uuid=GPU, name="gpu-0", root_uuid=HOST, parent_uuid=HOST),
        after=Provider(uuid=GPU, name="gpu", root_uuid=HOST, parent_uuid=CARD),
    ),
    SetTraits(
        **ON_GPU,
        before=frozenset(["CUSTOM_OLD", "CUSTOM_KEPT"]),
        after=frozenset(["OWNER_NOVA", "CUSTOM_NEW", "CUSTOM_KEPT"]),
    ),
    SetAggregates(**ON_GPU, before=frozenset(["rack"]), after=frozenset(["row"])),
    FIGURES,
    Reshape(**ON_HOST, inventories=(FIGURES,), allocations={"consumer": {"allocations": {}}}),
    DeleteProvider(**ON_GPU),
]
PENDING = [PendingRemoval(uuid=CARD, name="card", reason="it has allocations")]

TEXT = """\
+ host (uuid-host)
+ gpu (uuid-gpu, child of uuid-host)
~ gpu-0
    ~ name gpu-0 -> gpu
    ~ parent uuid-host -> uuid-card
~ gpu traits
    + CUSTOM_NEW
    + OWNER_NOVA
    - CUSTOM_OLD
~ gpu aggregates
    + row
    - rack
~ gpu inventories
    + CUSTOM_KEPT 5, reserved 1
    + CUSTOM_NEW 3
    - CUSTOM_OLD 1
    ~ VGPU total 2 -> 4, reserved 0 -> 4
~ host reshaped, with 1 allocations moved
    ~ gpu inventories
        + CUSTOM_KEPT 5, reserved 1
        + CUSTOM_NEW 3
        - CUSTOM_OLD 1
        ~ VGPU total 2 -> 4, reserved 0 -> 4
- gpu (uuid-gpu)
? card is absent: it has allocations
"""


def test_plan_as_text_is_a_diff() -> None:
    assert "\n".join(line.plain for line in plan.as_text(STEPS, PENDING)) + "\n" == dedent(TEXT)


def test_empty_plan_has_no_text() -> None:
    assert list(plan.as_text([])) == []


def test_lines_of_a_plan_have_a_colour_by_type() -> None:
    colours = {line.plain.lstrip()[0]: line.style for line in plan.as_text(STEPS, PENDING)}
    assert colours == {"+": "green", "-": "red", "~": "yellow", "?": "dim"}


def test_foreign_reservation_is_shown_with_its_classes() -> None:
    foreign = [
        ForeignReservation(uuid=GPU, name="gpu", classes=frozenset(["VGPU"]), is_releasable=True),
        ForeignReservation(uuid=HOST, name="host", classes=frozenset(["VCPU", "MEMORY_MB"])),
    ]

    lines = list(plan.as_text([], foreign=foreign))

    assert [line.plain for line in lines] == [
        "? gpu: VGPU is fully reserved by another program: kept. To end this: "
        "`wharfinger provider release uuid-gpu --foreign`",
        "? host: MEMORY_MB, VCPU are fully reserved by another program: kept",
    ]
    assert {line.style for line in lines} == {"dim"}


def test_names_are_text_and_not_markup() -> None:
    step = DeleteProvider(uuid=GPU, name="[red]gpu[/red]", root_uuid=HOST)
    (line,) = plan.as_text([step])
    assert line.plain == "- [red]gpu[/red] (uuid-gpu)"


INVENTORY = {"min_unit": 1, "max_unit": 2147483647, "step_size": 1, "allocation_ratio": 1.0}
DATA: list[dict[str, object]] = [
    {"step": "create", "uuid": HOST, "name": "host", "parent_uuid": None},
    {"step": "create", "uuid": GPU, "name": "gpu", "parent_uuid": HOST},
    {
        "step": "update",
        "uuid": GPU,
        "name": "gpu",
        "before": {"name": "gpu-0", "parent_uuid": HOST},
        "after": {"name": "gpu", "parent_uuid": CARD},
    },
    {
        "step": "set traits",
        "uuid": GPU,
        "name": "gpu",
        "before": ["CUSTOM_KEPT", "CUSTOM_OLD"],
        "after": ["CUSTOM_KEPT", "CUSTOM_NEW", "OWNER_NOVA"],
    },
    {
        "step": "set aggregates",
        "uuid": GPU,
        "name": "gpu",
        "before": ["rack"],
        "after": ["row"],
    },
    {
        "step": "set inventories",
        "uuid": GPU,
        "name": "gpu",
        "before": {
            "CUSTOM_OLD": {"total": 1, "reserved": 0, **INVENTORY},
            "VGPU": {"total": 2, "reserved": 0, **INVENTORY},
        },
        "after": {
            "CUSTOM_KEPT": {"total": 5, "reserved": 1, **INVENTORY},
            "CUSTOM_NEW": {"total": 3, "reserved": 0, **INVENTORY},
            "VGPU": {"total": 4, "reserved": 4, **INVENTORY},
        },
    },
]


@pytest.mark.parametrize("number", range(len(DATA)))
def test_step_as_data_has_before_and_after(number: int) -> None:
    assert plan.as_data(STEPS[number]) == DATA[number]


def test_reshape_as_data_has_inventories_and_allocations() -> None:
    assert plan.as_data(STEPS[6]) == {
        "step": "reshape",
        "uuid": HOST,
        "name": "host",
        "inventories": [DATA[5]],
        "allocations": {"consumer": {"allocations": {}}},
    }


def test_deletion_as_data_has_uuid_and_name() -> None:
    assert plan.as_data(STEPS[7]) == {"step": "delete", "uuid": GPU, "name": "gpu"}


def test_every_step_can_be_written_as_json() -> None:
    for step in STEPS:
        data = plan.as_data(step)
        assert json.loads(json.dumps(data)) == data
