"""Safe parsing of libvirt's XML: entities and a DTD are refused."""

from typing import Final
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from wharfinger.exceptions import InvalidName
from wharfinger.providers.names import check_uuid

#: The largest number of characters of a value in an error.
_SHOWN: Final = 80


class InvalidXML(ValueError):
    """XML that differs from libvirt's documented format."""


def parse_root(xml: str, tag: str) -> Element:
    """Return the root element, which must have this tag. Raises InvalidXML."""
    try:
        root: Element = fromstring(xml, forbid_dtd=True)
    except DefusedXmlException as error:
        raise InvalidXML(f"its description declares entities or a DTD ({error})") from None
    except (ParseError, ValueError) as error:  # ValueError: it is not text
        raise InvalidXML(f"its description is not XML ({error})") from None
    if root.tag != tag:
        raise InvalidXML(f"it is described by <{shortened(root.tag)}>, not <{tag}>")
    return root


def text_of(element: Element, tag: str) -> str:
    """Return the text of a child element. Raises InvalidXML if there is no text."""
    text = (element.findtext(tag) or "").strip()
    if not text:
        raise InvalidXML(f"it has no <{tag}>")
    return text


def uuid_of(text: str, where: str) -> str:
    """Return a uuid in canonical form. Raises InvalidXML."""
    try:
        return check_uuid(text)
    except InvalidName:
        raise InvalidXML(f"its {where} is {shown(text)}, not a uuid") from None


def printable(what: str, text: str) -> str:
    """Return the text if it is printable. Raises InvalidXML."""
    if not text.isprintable():
        raise InvalidXML(f"its {what} {shown(text)} has a character that is not printable")
    return text


def shown(text: str) -> str:
    """Return a value for an error, in quotes, and shortened if it is long."""
    return repr(shortened(text))


def shortened(text: str) -> str:
    """Return a value for an error, shortened if it is long."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
