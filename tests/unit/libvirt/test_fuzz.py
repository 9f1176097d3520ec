"""Any answer of libvirt is read completely, or refused with a reason."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree.ElementTree import Element, SubElement, tostring

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from wharfinger.conf import load
from wharfinger.exceptions import BackendError, ConfigurationError, WharfingerError
from wharfinger_libvirt.config import HostSection, MdevTypeSection
from wharfinger_libvirt.connection import Vanished
from wharfinger_libvirt.host_snapshot import MAX_READINGS, read_devices
from wharfinger_libvirt.mdev import shares
from wharfinger_libvirt.nodedev import Mdev, MdevType, NodeDevice, PciFunction, parse
from wharfinger_libvirt.safexml import InvalidXML

EXAMPLES = 60

ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]\Z")
ID = re.compile(r"[0-9a-f]{4}\Z")

TAGS = (
    *("device", "name", "parent", "capability", "type", "availableInstances", "domain", "bus"),
    *("slot", "function", "vendor", "product", "numa", "deviceAPI", "uuid", "path", "x"),
)
#: Texts of elements: some are valid in a place, and some are valid in none.
VALUES = (
    *(
        "0",
        "1",
        "7",
        "31",
        "132",
        "256",
        "65536",
        "-1",
        "-0",
        "+1",
        "1_0",
        "0x84",
        "0x10de",
        "10DE",
    ),
    *("2147483647", "2147483648", "4294967295", "4294967296", "9" * 5000, "1e3", "1.5", "nan", ""),
    *(
        " ",
        " 12 ",
        "\n12\n",
        "\u0661\u0662",
        "\u00b2",
        "0x",
        "0x_1",
        "0x-1",
        "0x113f2",
        "0X1",
        "f" * 5000,
    ),
    *("pci_0000_84_00_0", "computer", "nvidia-35", "mdev_1", "a\nb", "\x85", "\u202e", "a" * 201),
    *("[red]x[/red]", "../../etc", "{0}", "%s", "&amp;", "]]>", "None"),
)
KINDS = ("pci", "mdev", "mdev_types", "system", "PCI", "")

#: Text that XML 1.0 allows, so that ElementTree can write it.
xml_text = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], include_characters="\t\n\x85"), max_size=12
)
values = st.sampled_from(VALUES) | xml_text


@st.composite
def elements(draw: st.DrawFn, depth: int = 3) -> Element:
    """Draw known elements in unusual places."""
    element = Element(draw(st.sampled_from(TAGS)))
    _fill(draw, element)
    if depth:
        element.extend(draw(st.lists(elements(depth - 1), max_size=3)))
    return element


def _fill(draw: st.DrawFn, element: Element) -> None:
    if draw(st.booleans()):
        element.text = draw(values)
    if element.tag == "capability":
        element.set("type", draw(st.sampled_from(KINDS)))
    for name in draw(st.lists(st.sampled_from(["id", "node", "type"]), max_size=2, unique=True)):
        element.set(name, draw(values))


@st.composite
def near_devices(draw: st.DrawFn) -> str:
    """Draw a valid device with missing, doubled, changed or unusual parts."""
    device = Element("device")
    _maybe(draw, device, "name", "pci_0000_84_00_0")
    _maybe(draw, device, "parent", "computer")
    capability = SubElement(device, "capability", type=draw(st.sampled_from(["pci", "mdev"])))
    for tag in ("domain", "bus", "slot", "function"):
        _maybe(draw, capability, tag, "1")
    for tag in ("vendor", "product"):
        _maybe(draw, capability, tag, None, id="0x10de")
    _maybe(draw, capability, "numa", None, node="1")
    types = SubElement(draw(st.sampled_from([device, capability])), "capability", type="mdev_types")
    for type_id in draw(st.lists(values, max_size=3)):
        one = SubElement(types, "type", id=type_id)
        _maybe(draw, one, "availableInstances", "4")
    capability.extend(draw(st.lists(elements(1), max_size=2)))
    return tostring(device, encoding="unicode")


def _maybe(draw: st.DrawFn, parent: Element, tag: str, text: str | None, **attributes: str) -> None:
    for _ in range(draw(st.sampled_from([1, 1, 1, 1, 0, 2]))):
        is_right = draw(st.sampled_from([True, True, True, False]))
        element = SubElement(
            parent,
            tag,
            {key: value if is_right else draw(values) for key, value in attributes.items()},
        )
        if text is not None:
            element.text = text if is_right else draw(values)


def parsed(xml: str) -> NodeDevice | None:
    """Return the device, or None if it is refused; assert that its fields are valid."""
    try:
        device = parse(xml)
    except InvalidXML as error:
        assert str(error)
        assert len(str(error)) < 1000
        return None
    assert device.name.strip() == device.name != ""
    assert device.name.isprintable()
    if device.pci is not None:
        assert ADDRESS.match(device.pci.address), device.pci
        assert ID.match(device.pci.vendor_id)
        assert ID.match(device.pci.product_id)
        assert device.pci.numa_node is None or device.pci.numa_node >= 0
    type_ids = [one.type_id for one in device.mdev_types]
    assert type_ids == sorted(set(type_ids))
    assert all(one.type_id and one.type_id.isprintable() for one in device.mdev_types)
    assert all(0 <= one.available < 2**31 for one in device.mdev_types)
    assert device.mdev is None or device.parent
    return device


@given(text=st.text(max_size=200))
@example(text="\udc80")
@example(text="<device><name>\udc80</name></device>")
@example(text="\0")
@example(text="<?xml version='1.0' encoding='utf-16'?><device><name>x</name></device>")
@example(text="<?xml version='1.0' encoding='nonsense'?><device><name>x</name></device>")
@example(text="\ufeff<device><name>x</name></device>")
@settings(max_examples=EXAMPLES, deadline=None)
def test_any_text_is_a_device_or_refused(text: str) -> None:
    parsed(text)


@given(element=elements())
@settings(max_examples=EXAMPLES, deadline=None)
def test_known_elements_in_odd_places_are_a_device_or_refused(element: Element) -> None:
    element.tag = "device"
    parsed(tostring(element, encoding="unicode"))


@given(xml=near_devices())
@settings(max_examples=EXAMPLES, deadline=None)
def test_mutated_device_is_a_device_or_refused(xml: str) -> None:
    parsed(xml)


@pytest.mark.parametrize(
    ("tag", "value"),
    [
        *(("bus", value) for value in ("1_0", "+1", "\u0661\u0662", "\u00b2", "1e3", "9" * 5000)),
        *(("availableInstances", value) for value in ("1_0", "+4", "\u0664", "9" * 5000)),
    ],
    ids=lambda value: ascii(value)[:12],
)
def test_number_in_an_invalid_format_is_refused(tag: str, value: str) -> None:
    pci = {"domain": "0", "bus": "1", "slot": "0", "function": "0"} | {tag: value}
    available = pci.pop("availableInstances", "4")
    body = "".join(f"<{key}>{number}</{key}>" for key, number in pci.items())
    with pytest.raises(InvalidXML, match=rf"^its <{tag}> is ") as told:
        parse(
            "<device><name>x</name><capability type='pci'>"
            f"{body}<vendor id='0x1'/><product id='0x1'/>"
            "<capability type='mdev_types'><type id='a'><availableInstances>"
            f"{available}</availableInstances></type></capability></capability></device>"
        )
    assert len(str(told.value)) < 200


@pytest.mark.parametrize("value", ["0x1_0", "-0x1", " 0x1", "\u0661", "0x", "x1", "f" * 5000])
def test_id_in_an_invalid_format_is_refused(value: str) -> None:
    body = "".join(f"<{key}>0</{key}>" for key in ("domain", "bus", "slot", "function"))
    with pytest.raises(InvalidXML, match=r"^its <vendor id> is ") as told:
        parse(
            f"<device><name>x</name><capability type='pci'>{body}<vendor id='{value}'/>"
            "<product id='0x1'/></capability></device>"
        )
    assert len(str(told.value)) < 200


# Entities.

LAUGHS = "<!DOCTYPE device [<!ENTITY a0 'ha'>{}]><device><name>&a{};</name></device>".format(
    "".join(f"<!ENTITY a{n} '{f'&a{n - 1};' * 10}'>" for n in range(1, 12)), 11
)
BODY = "<device><name>&e;</name></device>"


@pytest.mark.parametrize(
    "xml",
    [
        LAUGHS,
        f"<!DOCTYPE device [<!ENTITY e '{'x' * 100000}'>]><device>{'&e;' * 10000}</device>",
        f"<!DOCTYPE device [<!ENTITY e SYSTEM 'file:///etc/passwd'>]>{BODY}",
        f"<!DOCTYPE device [<!ENTITY e PUBLIC 'x' 'http://127.0.0.1:1/'>]>{BODY}",
        f"<!DOCTYPE device [<!ENTITY % p SYSTEM 'file:///etc/passwd'>%p;]>{BODY}",
        f"<!DOCTYPE device SYSTEM 'file:///etc/passwd'>{BODY}",
        f"<!DOCTYPE device [<!ATTLIST device name CDATA 'x'>]>{BODY}",
    ],
    ids=[
        *("laughs", "one-large-one", "file", "network", "parameter", "outside"),
        "default-attribute",
    ],
)
def test_xml_with_declared_entities_is_refused(xml: str) -> None:
    with pytest.raises(InvalidXML, match="entities or a DTD"):
        parse(xml)


def test_undeclared_entity_is_no_xml() -> None:
    with pytest.raises(InvalidXML, match="not XML"):
        parse(BODY)


def test_inclusion_is_not_followed() -> None:
    include = "<i:include xmlns:i='http://www.w3.org/2001/XInclude' href='/etc/passwd'/>"
    assert parse(f"<device>{include}<name>x</name></device>") == NodeDevice(name="x")


# Size.


@pytest.mark.parametrize("tag", ["x", "capability type='mdev_types'"])
def test_deeply_nested_elements_are_read_or_refused(tag: str) -> None:
    depth = 20_000
    nested = f"<{tag}>" * depth + f"</{tag.partition(' ')[0]}>" * depth
    assert parse(f"<device><name>x</name>{nested}</device>") == NodeDevice(name="x")
    with pytest.raises(InvalidXML):
        parse(nested)
    with pytest.raises(InvalidXML, match="not XML"):
        parse(f"<{tag}>" * depth)


def test_device_of_very_many_types_is_read() -> None:
    """A parser that takes quadratic time would need minutes."""
    count = 10_000
    types = "".join(
        f"<type id='t{number}'><availableInstances>1</availableInstances></type>"
        for number in range(count)
    )
    xml = f"<device><name>x</name><capability type='mdev_types'>{types}{{}}</capability></device>"
    assert len(parse(xml.format("")).mdev_types) == count
    with pytest.raises(InvalidXML, match="mdev type t7 more than once"):
        parse(xml.format("<type id='t7'><availableInstances>1</availableInstances></type>"))


# From devices to shares.

devices = st.builds(
    NodeDevice,
    name=st.sampled_from([f"pci_{number}" for number in range(6)]),
    parent=st.sampled_from([None, "pci_0", "pci_1", "nobody"]),
    pci=st.none()
    | st.builds(
        PciFunction,
        address=st.sampled_from([f"0000:8{number}:00.0" for number in range(6)]),
        vendor_id=st.just("10de"),
        product_id=st.just("13f2"),
    ),
    mdev_types=st.dictionaries(
        st.sampled_from("abc"), st.sampled_from([0, 1, 8, 2**31 - 1]), max_size=3
    ).map(
        lambda types: tuple(MdevType(type_id=key, available=types[key]) for key in sorted(types))
    ),
    mdev=st.none() | st.builds(Mdev, type_id=st.sampled_from("abcd"), active=st.booleans()),
)
sections = st.lists(
    st.builds(
        MdevTypeSection,
        section=st.just("gpus:x"),
        type_id=st.sampled_from("abd"),
        addresses=st.lists(
            st.sampled_from([f"0000:8{number}:00.0" for number in range(6)]),
            max_size=2,
            unique=True,
        ).map(tuple),
        max_instances=st.sampled_from([None, 0, 1, 7, 2**31 - 1]),
    ),
    max_size=3,
    unique_by=lambda section: section.type_id,
)


@given(
    host=st.lists(devices, max_size=8, unique_by=lambda device: device.name), mdev_types=sections
)
@settings(max_examples=EXAMPLES, deadline=None)
def test_share_is_at_least_the_active_and_at_most_the_possible_mdevs(
    host: Sequence[NodeDevice], mdev_types: Sequence[MdevTypeSection]
) -> None:
    try:
        found = shares(host, mdev_types, "gpus")
    except ConfigurationError as error:
        assert str(error).isprintable()
        return
    active = Counter(
        (device.parent, device.mdev.type_id)
        for device in host
        if device.mdev is not None and device.mdev.active
    )
    names = [share.device.name for share in found]
    assert len(names) == len(set(names))
    for share in found:
        type_id = share.mdev_type.type_id
        there = active[share.device.name, type_id]
        [could] = [one.available for one in share.device.mdev_types if one.type_id == type_id]
        assert there <= share.total <= there + could


class Readings:
    """A host that returns these readings in order, and then the last one repeatedly."""

    def __init__(self, readings: Sequence[Sequence[NodeDevice] | None]) -> None:
        self._readings = list(readings)
        self.count = 0

    def devices(self) -> list[NodeDevice]:
        reading = self._readings[min(self.count, len(self._readings) - 1)]
        self.count += 1
        if reading is None:
            raise Vanished("gone")
        return list(reading)


@given(readings=st.lists(st.none() | st.lists(devices, max_size=3), min_size=1, max_size=9))
@settings(max_examples=EXAMPLES, deadline=None)
def test_changing_host_is_described_at_one_moment_or_refused(
    readings: Sequence[Sequence[NodeDevice] | None],
) -> None:
    source = Readings(readings)
    try:
        found = read_devices(source, "gpus")
    except BackendError as error:
        assert str(error).isprintable()
    else:
        names = [device.name for device in found]
        assert names == sorted(set(names))
        assert any(
            reading is not None and Counter(reading) == Counter(found) for reading in readings
        )
    assert source.count <= MAX_READINGS


def test_two_devices_of_one_name_are_refused() -> None:
    twins = [NodeDevice(name="pci_0", parent="a"), NodeDevice(name="pci_0", parent="b")]
    with pytest.raises(BackendError, match="two devices have the name pci_0, but the driver"):
        read_devices(Readings([twins]), "gpus")


def test_two_devices_at_one_address_are_refused() -> None:
    pci = PciFunction(address="0000:84:00.0", vendor_id="10de", product_id="13f2")
    twins = [NodeDevice(name="pci_0", pci=pci), NodeDevice(name="pci_1", pci=pci)]
    with pytest.raises(BackendError, match=r"pci_0 and pci_1 both have PCI address 0000:84:00\.0"):
        read_devices(Readings([twins]), "gpus")


# Options.

OPTIONS = (
    *("connection_uri", "hypervisor_hostname", "publish_root", "reserved_host_cpus"),
    *("reserved_host_memory_mb", "cpu_allocation_ratio", "ram_allocation_ratio"),
)
TYPE_OPTIONS = ("device_addresses", "resource_class", "traits", "max_instances")
option_values = st.sampled_from(
    (
        *VALUES,
        *("$", "$$", "$x", "${gpus.connection_uri}", "$connection_uri", "$traits", "own", "VGPU"),
        *("0000:84:00.0", "CUSTOM_X, CUSTOM_Y", "OWNER_CYBORG", "inf", "0", "a,,b", ","),
    )
).map(lambda value: value.replace("\n", "\n  "))


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    with TemporaryDirectory() as name:
        yield Path(name)


@given(
    values=st.dictionaries(st.sampled_from(OPTIONS), option_values, max_size=3),
    type_values=st.dictionaries(st.sampled_from(TYPE_OPTIONS), option_values, max_size=3),
)
@example(values={"connection_uri": "$connection_uri"}, type_values={})
@example(values={}, type_values={"traits": "$traits"})
@settings(max_examples=EXAMPLES, deadline=None)
def test_options_are_accepted_or_refused_by_name(
    directory: Path, values: Mapping[str, str], type_values: Mapping[str, str]
) -> None:
    path = directory / "wharfinger.conf"
    lines = ["[DEFAULT]", "enabled_drivers = gpus", "[gpus]", "enabled_mdev_types = nvidia-35"]
    lines += [f"{key} = {value}" for key, value in values.items()]
    lines += ["[gpus:nvidia-35]", *(f"{key} = {value}" for key, value in type_values.items())]
    path.write_text("\n".join(lines), encoding="utf-8")
    try:
        HostSection.read(load([str(path)]), "gpus")
    except ConfigurationError as error:
        assert error.key in {**values, **type_values}
        assert error.section in ("gpus", "gpus:nvidia-35")
        assert str(error).isprintable()
    except WharfingerError as error:  # the file cannot be read
        assert str(error).isprintable()
