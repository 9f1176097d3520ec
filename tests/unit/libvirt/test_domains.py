"""Domain XML of libvirt: the fields that are read, and XML that is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wharfinger_libvirt.domains import Domain, parse_domain
from wharfinger_libvirt.safexml import InvalidXML

INSTANCE = "6c3f7d0e-41d1-4d4b-b2ac-0e5b1f0a9c01"
ONE, OTHER = "18e0e3de-4cce-4e5f-a3f2-007da9ae053e", "e7a1b2c3-0f5d-4a55-8a1e-5b2f6f9c0d02"

# Written by libvirt 9.0, shortened.
DOMAIN = f"""<domain type='kvm' id='3'>
  <name>instance-0000002a</name>
  <uuid>{INSTANCE}</uuid>
  <metadata>
    <nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1">
      <nova:name>guest</nova:name>
    </nova:instance>
  </metadata>
  <devices>
    <hostdev mode='subsystem' type='mdev' managed='no' model='vfio-pci' display='off'>
      <source>
        <address uuid='{ONE}'/>
      </source>
      <alias name='hostdev0'/>
      <address type='pci' domain='0x0000' bus='0x00' slot='0x05' function='0x0'/>
    </hostdev>
    <hostdev mode='subsystem' type='pci' managed='yes'>
      <source>
        <address domain='0x0000' bus='0x06' slot='0x00' function='0x0'/>
      </source>
    </hostdev>
    <hostdev mode='subsystem' type='mdev' managed='no' model='vfio-pci'>
      <source>
        <address uuid='{OTHER.upper()}'/>
      </source>
    </hostdev>
  </devices>
</domain>"""


def test_domain_has_its_mdevs_in_order() -> None:
    assert parse_domain(DOMAIN) == Domain(uuid=INSTANCE, mdevs=(ONE, OTHER))


def test_domain_without_devices_has_no_mdevs() -> None:
    xml = f"<domain type='kvm'><uuid>{INSTANCE}</uuid></domain>"
    assert parse_domain(xml) == Domain(uuid=INSTANCE)


@pytest.mark.parametrize(
    ("xml", "problem"),
    [
        ("", "not XML"),
        (DOMAIN[:-5], "not XML"),
        ("<device><name>x</name></device>", "<device>, not <domain>"),
        (DOMAIN.replace(f"<uuid>{INSTANCE}</uuid>", ""), "no <uuid>"),
        (DOMAIN.replace(INSTANCE, "guest"), "its <uuid> is 'guest', not a uuid"),
        (DOMAIN.replace(ONE, "x" * 5000), "not a uuid"),
        (DOMAIN.replace(f"<address uuid='{ONE}'/>", ""), "no <source> with the uuid of an mdev"),
        (
            DOMAIN.replace(f"<address uuid='{ONE}'/>", "<address bus='0x1'/>"),
            "no <source> with the uuid of an mdev",
        ),
    ],
)
def test_invalid_domain_is_refused(xml: str, problem: str) -> None:
    with pytest.raises(InvalidXML) as caught:
        parse_domain(xml)
    assert problem in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "declaration",
    [f"<!DOCTYPE domain [<!ENTITY e '{INSTANCE}'>]>", "<!DOCTYPE domain SYSTEM 'file:///x'>"],
)
def test_entities_and_document_types_are_refused(declaration: str) -> None:
    with pytest.raises(InvalidXML, match="entities or a DTD"):
        parse_domain(declaration + DOMAIN.replace(INSTANCE, "&e;"))


@given(st.text() | st.text().map(lambda text: f"<domain><uuid>{text}</uuid></domain>"))
def test_any_text_is_a_domain_or_refused_in_printable_words(xml: str) -> None:
    try:
        parse_domain(xml)
    except InvalidXML as error:
        assert str(error).isprintable()
