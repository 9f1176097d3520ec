"""Safe parsing of libvirt's XML, for devices and domains.

The XML may come from another machine. It is parsed without entities, and an error repeats only a
short and printable part of it.
"""

from typing import Final
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring

from wharfinger.exceptions import InvalidName
from wharfinger.providers.names import check_uuid

#: Longest part of a value in an error, in characters.
_SHOWN: Final = 80


class InvalidXML(ValueError):
    """A description that differs from libvirt's documented format; the message has the fault."""


def parse_root(xml: str, tag: str) -> Element:
    """Return the root element, which must have this tag; raises InvalidXML."""
    try:
        root: Element = fromstring(xml, forbid_dtd=True)
    except DefusedXmlException as error:
        raise InvalidXML(f"its description declares entities or a DTD ({error})") from None
    except (ParseError, ValueError) as error:  # ValueError: no text either
        raise InvalidXML(f"its description is not XML ({error})") from None
    if root.tag != tag:
        raise InvalidXML(f"it is described by <{shortened(root.tag)}>, not <{tag}>")
    return root


def text_of(element: Element, tag: str) -> str:
    """Return the text of a child element; raises InvalidXML without the child."""
    text = (element.findtext(tag) or "").strip()
    if not text:
        raise InvalidXML(f"it has no <{tag}>")
    return text


def uuid_of(text: str, where: str) -> str:
    """A uuid in its canonical form; ``where`` it stands, for the error."""
    try:
        return check_uuid(text)
    except InvalidName:
        raise InvalidXML(f"its {where} is {shown(text)}, not a uuid") from None


def printable(what: str, text: str) -> str:
    """The text, if it has no control characters."""
    if not text.isprintable():
        raise InvalidXML(f"its {what} {shown(text)} has control characters")
    return text


def shown(text: str) -> str:
    """A value in quotes, as an error repeats it."""
    return repr(shortened(text))


def shortened(text: str) -> str:
    """Return a value for an error, shortened if it is long."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
