"""A reshape moves the vGPUs from the host's root, where an old release had them, to the devices.

Uses libvirt's test driver, which reads a host with its domains from a file.
"""

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.cycles import HOST, Publishing, allocate, contents
from tests.lab.drivers import flat
from tests.lab.libvirt_driver import INSTANCE, domain_xml, make_driver
from tests.lab.placement import PlacementFixture
from wharfinger.driver import Allocations
from wharfinger.exceptions import BackendError
from wharfinger.placement.client import PlacementClient
from wharfinger.providers.plan import Reshape
from wharfinger.providers.removal import RemovalPolicy
from wharfinger.reconcile.cycle import Reconciler
from wharfinger_libvirt.connection import Connection
from wharfinger_libvirt.domains import Domain

SAMPLE = Path(__file__).parents[3] / "etc/wharfinger/sample/host.xml"
NODE = "gpu-host-1"
#: Each device has room for 8 mdevs of nvidia-231. The first device already has MDEVS.
FIRST, SECOND = f"{NODE}_pci_0000_84_00_0", f"{NODE}_pci_0000_c4_00_0"
MDEVS = ("3c2f1f0e-8a41-4c7b-9b5d-6f0f3f5f9a11", "c9a7d1d2-52f8-4e0b-8f43-0a7d2b6f4b22")
#: The mdev that ``with_an_mdev_on_the_second`` adds to the second device.
OTHER_MDEV = "7d1a4e5b-4f0a-4a7e-9a43-1c9f0d2e6b33"
FIGURES = {"VCPU": 64, "MEMORY_MB": 262144}
#: Attributes of a consumer that no driver may change.
WHOSE = ("project_id", "user_id", "consumer_type")


class PublishedByOldRelease:
    """A host whose root an old release has published with all vGPUs, and its new driver."""

    def __init__(self, publishing: Publishing, host: Path) -> None:
        self.publishing = publishing
        self.placement = publishing.placement
        self.host = host
        self.types = "nvidia-231"
        self.more = ""

    def edit(self, old: str, new: str) -> None:
        """Replace a text in the file that describes the host."""
        text = self.host.read_text()
        assert old in text
        self.host.write_text(text.replace(old, new))

    def add_domain(self, consumer: str, *mdevs: str) -> None:
        """Add a libvirt domain with these mdevs to the host, for the instance ``consumer``."""
        self.edit("</node>", domain_xml(consumer, *mdevs) + "</node>")

    def cycle(self, client: PlacementClient | None = None) -> Reconciler:
        """Return a reconciler of the new release, as in a new process."""
        self.publishing.restarted()
        driver = make_driver(
            self.host.parent,
            f"[DEFAULT]\nstate_path = {self.host.parent}\nenabled_drivers = {INSTANCE}\n"
            f"[{INSTANCE}]\ndriver = libvirt\nconnection_uri = test://{self.host}\n"
            f"hypervisor_hostname = {NODE}\nenabled_mdev_types = {self.types}\n{self.more}",
            HOST,
        )
        return Reconciler(
            driver,
            self.publishing.publisher,
            client or self.publishing.client,
            self.publishing.context,
            RemovalPolicy(delay=0, allow_mass=False),
        )

    def publish(self, **totals: int) -> None:
        """Publish the root as the old release did."""
        self.publishing.driver.nodes[NODE] = flat(**FIGURES, **totals)
        assert not self.publishing.cycle.sync().problems


@pytest.fixture
def old(placement: PlacementFixture, tmp_path: Path) -> Iterator[PublishedByOldRelease]:
    host = Path(shutil.copy(SAMPLE, tmp_path / "host.xml"))
    with Publishing(placement, tmp_path / "state", name=INSTANCE) as publishing:
        old = PublishedByOldRelease(publishing, host)
        old.publish(VGPU=16)
        yield old


def use(placement: PlacementFixture, **amounts: int) -> str:
    """Allocate amounts of the root, by class, for a new consumer; return its uuid."""
    consumer = str(uuid.uuid4())
    allocate(placement, consumer, "1.39", **{NODE: amounts})
    return consumer


def with_an_mdev_on_the_second(old: PublishedByOldRelease) -> None:
    old.edit(
        "<availableInstances>8</availableInstances>", "<availableInstances>7</availableInstances>"
    )
    old.edit(
        "</node>",
        f"<device><name>mdev_{OTHER_MDEV.replace('-', '_')}_0000_c4_00_0</name>"
        "<parent>pci_0000_c4_00_0</parent><capability type='mdev'><type id='nvidia-231'/>"
        f"<uuid>{OTHER_MDEV}</uuid><iommuGroup number='90'/></capability></device></node>",
    )


def allocations(placement: PlacementFixture, *consumers: str) -> Allocations:
    """Return the allocations of consumers from Placement, by consumer uuid."""
    return {
        consumer: placement.adapter.request(
            f"/allocations/{consumer}", "GET", microversion="1.39"
        ).json()
        for consumer in consumers
    }


def holdings(placement: PlacementFixture, *consumers: str) -> list[dict[str, dict[str, int]]]:
    """Return the allocations of consumers, by provider name."""
    names = {one.uuid: one.name for one in placement.client.list_providers()}
    return [
        {names[uuid]: part["resources"] for uuid, part in its["allocations"].items()}
        for its in allocations(placement, *consumers).values()
    ]


def figures(placement: PlacementFixture) -> dict[str, dict[str, tuple[int, int]]]:
    """Return total and reserved amounts, by provider name and class."""
    return {name: one["inventories"] for name, one in contents(placement).items()}


# Reshapes.


def test_reshape_of_three_instances_keeps_all_allocations_in_one_request(
    old: PublishedByOldRelease, placement: PlacementFixture
) -> None:
    with_an_mdev_on_the_second(old)
    split, known, unknown, none = (
        use(placement, VCPU=4, VGPU=2),
        use(placement, VCPU=1, MEMORY_MB=512, VGPU=1),
        use(placement, VCPU=2, VGPU=7),
        use(placement, VCPU=8),
    )
    old.add_domain(split, OTHER_MDEV, MDEVS[0])
    old.add_domain(known, MDEVS[1])
    old.add_domain(none)
    consumers = (split, known, unknown, none)
    before = allocations(placement, *consumers)
    placement.requests.clear()

    outcome = old.cycle().sync()

    assert not outcome.problems
    assert placement.requests.writes.count("POST /reshaper") == 1
    assert not [one for one in placement.requests.writes if "inventories" in one]
    assert figures(placement) == {
        NODE: {"VCPU": (64, 0), "MEMORY_MB": (262144, 512)},
        FIRST: {"VGPU": (8, 0)},
        SECOND: {"VGPU": (8, 0)},
    }
    assert holdings(placement, *consumers) == [
        {NODE: {"VCPU": 4}, FIRST: {"VGPU": 1}, SECOND: {"VGPU": 1}},
        {NODE: {"VCPU": 1, "MEMORY_MB": 512}, FIRST: {"VGPU": 1}},
        {NODE: {"VCPU": 2}, FIRST: {"VGPU": 6}, SECOND: {"VGPU": 1}},
        {NODE: {"VCPU": 8}},
    ]
    after = allocations(placement, *consumers)
    for consumer in consumers:
        assert sums(after[consumer]) == sums(before[consumer])
        assert [after[consumer][key] for key in WHOSE] == [before[consumer][key] for key in WHOSE]
    assert after[none]["consumer_generation"] == before[none]["consumer_generation"]


def sums(its: dict[str, Any]) -> dict[str, int]:
    """Return the amounts of a consumer by class, added over all providers."""
    found: dict[str, int] = {}
    for part in its["allocations"].values():
        for resource_class, amount in part["resources"].items():
            found[resource_class] = found.get(resource_class, 0) + amount
    return found


def test_cycle_after_a_reshape_writes_nothing_and_reads_no_domains(
    old: PublishedByOldRelease, placement: PlacementFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[None] = []
    domains = Connection.domains

    def noted(connection: Connection) -> list[Domain]:
        asked.append(None)
        return domains(connection)

    monkeypatch.setattr(Connection, "domains", noted)
    use(placement, VCPU=1, VGPU=1)
    cycle = old.cycle()
    assert not cycle.sync().problems
    assert len(asked) == 2  # the driver reads the domains until two readings are equal
    asked.clear()
    cycle.sync()  # reads the generations, which the answer to the reshape lacks
    for same in (cycle, old.cycle()):
        placement.requests.clear()

        outcome = same.sync()

        assert (outcome.steps, outcome.problems) == ((), ())
        assert len(placement.requests) == 1
    assert asked == []


# No reshape.


@pytest.mark.parametrize("more", ["", "publish_root = auto\n", "publish_root = overlay\n"])
def test_root_that_nova_compute_publishes_is_never_reshaped(
    old: PublishedByOldRelease,
    placement: PlacementFixture,
    monkeypatch: pytest.MonkeyPatch,
    more: str,
) -> None:
    consumer = use(placement, VCPU=1, VGPU=2)
    before = allocations(placement, consumer)
    old.more = more
    monkeypatch.delattr(Connection, "domains")

    for _ in range(2):
        placement.requests.clear()
        outcome = old.cycle().sync()
        assert not any(isinstance(step, Reshape) for step in outcome.steps)

    assert figures(placement)[NODE]["VGPU"] == (16, 0)
    assert allocations(placement, consumer) == before


def test_reshape_without_room_writes_nothing(
    old: PublishedByOldRelease, placement: PlacementFixture
) -> None:
    old.more = f"[{INSTANCE}:nvidia-231]\nmax_instances = 4\n"
    amounts = {use(placement, VCPU=1, VGPU=amount): amount for amount in (4, 3)}
    fits, does_not = sorted(amounts)
    amount = sum(amounts.values()) - 4
    before = contents(placement), allocations(placement, fits, does_not)
    placement.requests.clear()

    outcome = old.cycle().sync()

    (problem,) = outcome.problems
    assert isinstance(problem, BackendError)
    assert f"no device has room for {amount} more VGPU of consumer {does_not}" in str(problem)
    assert outcome.steps == ()
    assert placement.requests.writes == []
    assert (contents(placement), allocations(placement, fits, does_not)) == before
