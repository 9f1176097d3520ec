"""Shares: how many mdevs of a type each device offers within the limit of the type."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger.exceptions import ConfigurationError
from wharfinger_libvirt.config import MdevTypeSection
from wharfinger_libvirt.mdev import Demand, allot, shares
from wharfinger_libvirt.nodedev import Mdev, MdevType, NodeDevice, PciFunction

COUNTS = st.integers(0, 20)
DEMANDS = st.lists(st.builds(Demand, active=COUNTS, available=COUNTS), max_size=8)
LIMITS = st.none() | st.integers(0, 60)


def gpu(bus: int, **available: int) -> NodeDevice:
    """Return a GPU; ``available`` are the numbers of available mdevs by type."""
    return NodeDevice(
        name=f"pci_0000_{bus:02x}_00_0",
        pci=PciFunction(address=address(bus), vendor_id="10de", product_id="1eb8"),
        mdev_types=tuple(MdevType(type_id=key, available=n) for key, n in available.items()),
    )


def address(bus: int) -> str:
    return f"0000:{bus:02x}:00.0"


def mdev(number: int, bus: int, type_id: str, *, active: bool = True) -> NodeDevice:
    return NodeDevice(
        name=f"mdev_{number}",
        parent=f"pci_0000_{bus:02x}_00_0",
        mdev=Mdev(type_id=type_id, active=active),
    )


def of_type(
    type_id: str, *addresses: str, resource_class: str = "VGPU", max_instances: int | None = None
) -> MdevTypeSection:
    return MdevTypeSection(
        section=f"gpus:{type_id}",
        type_id=type_id,
        addresses=addresses,
        resource_class=resource_class,
        max_instances=max_instances,
    )


def offers(devices: list[NodeDevice], *mdev_types: MdevTypeSection) -> list[tuple[str, str, int]]:
    """Return device, mdev type and total of each share."""
    return [
        (share.device.name, share.mdev_type.type_id, share.total)
        for share in shares(devices, mdev_types, "gpus")
    ]


class TestAllot:
    @pytest.mark.parametrize(
        ("limit", "totals"),
        [(None, [4, 4]), (8, [4, 4]), (6, [4, 2]), (4, [4, 0]), (3, [3, 0]), (0, [0, 0])],
    )
    def test_allot_leaves_the_remainder(self, limit: int | None, totals: list[int]) -> None:
        free = Demand(active=0, available=4)
        assert allot(limit, [free, free]) == totals

    def test_allot_serves_active_mdevs_first(self) -> None:
        demands = [Demand(active=0, available=4), Demand(active=3, available=1)]
        assert allot(4, demands) == [1, 3]

    @given(LIMITS, DEMANDS)
    def test_allot_stays_between_active_and_possible(
        self, limit: int | None, demands: list[Demand]
    ) -> None:
        for demand, total in zip(demands, allot(limit, demands), strict=True):
            assert demand.active <= total <= demand.active + demand.available

    @given(LIMITS, DEMANDS)
    def test_allot_uses_the_limit_as_far_as_possible(
        self, limit: int | None, demands: list[Demand]
    ) -> None:
        in_use = sum(demand.active for demand in demands)
        fits = in_use + sum(demand.available for demand in demands)
        expected = fits if limit is None else max(in_use, min(limit, fits))
        assert sum(allot(limit, demands)) == expected

    @given(LIMITS, st.lists(COUNTS, max_size=8), st.data())
    def test_allot_is_stable_while_mdevs_change_within_it(
        self, limit: int | None, capacities: list[int], data: st.DataObject
    ) -> None:
        totals = allot(limit, [Demand(active=0, available=capacity) for capacity in capacities])
        active = [data.draw(st.integers(0, total)) for total in totals]
        later = [
            Demand(active=used, available=capacity - used)
            for used, capacity in zip(active, capacities, strict=True)
        ]
        assert allot(limit, later) == totals


class TestTotals:
    def test_shares_count_active_and_available_mdevs(self) -> None:
        devices = [gpu(1, a=6), mdev(1, 1, "a"), mdev(2, 1, "a")]
        assert offers(devices, of_type("a")) == [("pci_0000_01_00_0", "a", 8)]

    def test_shares_do_not_count_defined_mdevs(self) -> None:
        devices = [gpu(1, a=4), mdev(1, 1, "a", active=False)]
        assert offers(devices, of_type("a")) == [("pci_0000_01_00_0", "a", 4)]

    def test_shares_do_not_count_mdevs_of_other_types_or_devices(self) -> None:
        devices = [gpu(1, a=4, b=2), gpu(2, a=1), mdev(1, 1, "b"), mdev(2, 2, "a")]
        assert offers(devices, of_type("a", address(1))) == [("pci_0000_01_00_0", "a", 4)]

    def test_shares_are_limited_in_the_order_of_addresses(self) -> None:
        devices = [gpu(0xC4, a=4), gpu(0x84, a=4)]
        assert offers(devices, of_type("a", max_instances=6)) == [
            ("pci_0000_84_00_0", "a", 4),
            ("pci_0000_c4_00_0", "a", 2),
        ]

    def test_shares_are_limited_for_each_type(self) -> None:
        devices = [gpu(1, a=4), gpu(2, b=4)]
        assert [
            total
            for *_, total in offers(
                devices, of_type("a", max_instances=1), of_type("b", max_instances=3)
            )
        ] == [1, 3]

    @given(st.permutations([*(gpu(bus, a=4) for bus in (1, 2, 3)), mdev(1, 3, "a")]))
    def test_shares_do_not_depend_on_the_order_of_the_listing(
        self, devices: list[NodeDevice]
    ) -> None:
        assert [total for *_, total in offers(devices, of_type("a", max_instances=7))] == [4, 2, 1]

    def test_share_of_an_occupied_device_is_blocked_with_the_occupants(self) -> None:
        (share,) = shares([gpu(1, a=0, b=3), mdev(1, 1, "b")], [of_type("a")], "gpus")
        assert (share.total, share.blocked, share.occupants) == (0, True, ("b",))

    def test_share_beyond_the_limit_is_not_blocked(self) -> None:
        (share,) = shares([gpu(1, a=4)], [of_type("a", max_instances=0)], "gpus")
        assert (share.total, share.blocked) == (0, False)


class TestTypes:
    def test_types_without_addresses_are_defaults_in_order(self) -> None:
        devices = [gpu(1, a=1, b=2), gpu(2, b=3)]
        assert offers(devices, of_type("b"), of_type("a")) == [
            ("pci_0000_01_00_0", "b", 2),
            ("pci_0000_02_00_0", "b", 3),
        ]
        assert offers(devices, of_type("a"), of_type("b")) == [
            ("pci_0000_01_00_0", "a", 1),
            ("pci_0000_02_00_0", "b", 3),
        ]

    def test_types_with_addresses_come_before_defaults(self) -> None:
        devices = [gpu(1, a=1, b=2), gpu(2, a=3, b=4)]
        assert offers(devices, of_type("a"), of_type("b", address(2))) == [
            ("pci_0000_01_00_0", "a", 1),
            ("pci_0000_02_00_0", "b", 4),
        ]

    def test_types_that_are_not_enabled_are_not_offered(self) -> None:
        assert offers([gpu(1, a=1), gpu(2, b=1)], of_type("b")) == [("pci_0000_02_00_0", "b", 1)]

    def test_types_without_addresses_use_devices_outside_pci(self) -> None:
        card = NodeDevice(name="mtty_mtty", mdev_types=(MdevType(type_id="m", available=4),))
        assert offers([card], of_type("m")) == [("mtty_mtty", "m", 4)]


class TestMistakes:
    @pytest.mark.parametrize(
        ("mdev_type", "message"),
        [
            (
                of_type("a", address(9)),
                r"\[gpus:a\] device_addresses = 0000:09:00.0: the host has no such PCI device\. "
                r"Correct the address",
            ),
            (
                of_type("a", address(2)),
                r"\[gpus:a\] device_addresses = 0000:02:00.0: this device does not offer a, "
                r"but b\. Correct the address",
            ),
            (
                of_type("a", address(3)),
                r"\[gpus:a\] device_addresses = 0000:03:00.0: this device offers no mdev types; "
                r"its kernel driver may not be loaded\. Load the kernel driver",
            ),
            (
                of_type("z"),
                r"\[gpus\] enabled_mdev_types = z: no device of the host offers this type\. "
                r"The offered types are: a, b\. Correct or remove the type",
            ),
        ],
    )
    def test_types_that_do_not_fit_the_host_are_errors(
        self, mdev_type: MdevTypeSection, message: str
    ) -> None:
        with pytest.raises(ConfigurationError, match=message):
            offers([gpu(1, a=1), gpu(2, b=1), gpu(3)], mdev_type)

    def test_types_that_are_missing_give_no_offers(self) -> None:
        assert offers([gpu(1, a=1)]) == []
