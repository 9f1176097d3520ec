"""Hosts with devices for an empty Placement."""

from collections.abc import Mapping
from itertools import combinations
from typing import Final

from tests.lab.moments import copied
from tests.lab.samples import uuid
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.providers import Inventory

AGGREGATE: Final = uuid("the aggregate of a host and its disk")

VULKAN, DXVA, FAST = "HW_GPU_API_VULKAN", "HW_GPU_API_DXVA", "CUSTOM_FAST"
_WORDS: Final = {"vulkan": VULKAN, "dxva": DXVA, "fast": FAST}
#: The traits of GPUs by name: "vulkan-fast" has two traits, "gpu" has none.
GPUS: Final = {
    "-".join(words) or "gpu": frozenset(_WORDS[word] for word in words)
    for number in range(len(_WORDS) + 1)
    for words in combinations(_WORDS, number)
}


def publish(
    client: WritingClient,
    name: str,
    totals: Mapping[str, int],
    *traits: str,
    below: str | None = None,
    aggregate: str | None = None,
) -> None:
    """Create a provider, with the uuid that ``samples`` gives to its name."""
    parent = None if below is None else uuid(below)
    created = client.create_provider(uuid(name), name, parent)
    generation = client.set_traits(created.uuid, created.generation, traits)
    if aggregate is not None:
        generation = client.set_aggregates(created.uuid, generation, [aggregate])
    inventories = {kind: Inventory(total=total) for kind, total in totals.items()}
    client.set_inventories(created.uuid, generation, inventories)


@copied
def publish_owners(client: WritingClient) -> None:
    """Publish the host cn of nova, with a GPU of each owner and an untagged one below it.

    ::

        cn   VCPU     OWNER_NOVA
        ├── n  VGPU   OWNER_NOVA, CUSTOM_FAST
        ├── y  VGPU   OWNER_CYBORG
        ├── a  VGPU   CUSTOM_OWNER_ACME
        └── u  VGPU
        s    DISK_GB  MISC_SHARES_VIA_AGGREGATE, with cn
    """
    for trait in (FAST, "CUSTOM_OWNER_ACME"):
        client.create_trait(trait)
    publish(client, "cn", {"VCPU": 8}, "OWNER_NOVA", aggregate=AGGREGATE)
    publish(client, "n", {"VGPU": 4}, "OWNER_NOVA", FAST, below="cn")
    publish(client, "y", {"VGPU": 4}, "OWNER_CYBORG", below="cn")
    publish(client, "a", {"VGPU": 4}, "CUSTOM_OWNER_ACME", below="cn")
    publish(client, "u", {"VGPU": 4}, below="cn")
    publish(client, "s", {"DISK_GB": 100}, "MISC_SHARES_VIA_AGGREGATE", aggregate=AGGREGATE)


@copied
def publish_gpus(client: WritingClient) -> None:
    """Publish the host cn, with all of GPUS below it, and a disk s that is shared with it."""
    client.create_trait(FAST)
    publish(client, "cn", {"VCPU": 8}, "HW_CPU_X86_AVX", aggregate=AGGREGATE)
    for name, traits in GPUS.items():
        publish(client, name, {"VGPU": 4}, *traits, below="cn")
    publish(client, "s", {"DISK_GB": 100}, "MISC_SHARES_VIA_AGGREGATE", aggregate=AGGREGATE)
