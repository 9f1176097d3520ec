"""Tables of options for Sphinx, from the options that generate the configuration sample.

``options`` has the options of a section, ``service-options`` those that all sections for a service
share. oslo.config's own directive cannot show sections such as [<instance with driver = libvirt>].
"""

from collections.abc import Iterator
from functools import cache, reduce
from importlib.metadata import entry_points
from typing import Any, Final

from docutils.nodes import Node
from oslo_config import cfg
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from tables import markup, table

_DRIVER: Final = "<instance with driver = {}>"
#: Sections with the options of keystoneauth.
_SERVICES: Final = ("placement", "accelerator", _DRIVER.format("cyborg"), _DRIVER.format("ironic"))


class Options(SphinxDirective):
    """The options of a section, without those of ``service-options``."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[Node]:
        section = self.arguments[0]
        shared = _shared() if section in _SERVICES else set()
        options = [one for name, one in _sections()[section].items() if name not in shared]
        return self.parse_text_to_nodes("\n".join(_rows(options)))


class ServiceOptions(SphinxDirective):
    """The options that each section for a service has."""

    def run(self) -> list[Node]:
        shared = _shared()
        options = [one for name, one in _sections()["placement"].items() if name in shared]
        return self.parse_text_to_nodes("\n".join(_rows(options)))


@cache
def _sections() -> dict[str, dict[str, cfg.Opt]]:
    """Return the options by section and name."""
    return {
        section: {option.name: option for option in options}
        for found in entry_points(group="oslo.config.opts")
        if found.name.startswith("wharfinger")
        for section, options in found.load()()
    }


def _shared() -> set[str]:
    """Return the names of the options that each section for a service has."""
    return reduce(set.intersection, (set(_sections()[section]) for section in _SERVICES))


def _rows(options: list[cfg.Opt]) -> Iterator[str]:
    yield from table(
        ("option", "default", "meaning"),
        ((f"``{one.dest}``", _default(one), " ".join(_meaning(one))) for one in options),
    )


def _default(option: cfg.Opt) -> str:
    default = option.default if option.sample_default is None else option.sample_default
    if isinstance(default, list):
        default = ", ".join(default)
    return "" if default in {None, ""} else f"``{default}``"


def _meaning(option: cfg.Opt) -> Iterator[str]:
    yield markup(option.help)
    kind = option.type
    if getattr(kind, "min", None) is not None:
        yield f"At least {kind.min}."
    if getattr(kind, "max", None) is not None:
        yield f"At most {kind.max}."
    for value, says in (getattr(kind, "choices", None) or {}).items():
        if says:
            yield f"``{value}``: {markup(says.rstrip('.'))}."


def setup(app: Sphinx) -> dict[str, Any]:
    """Add the directives."""
    app.add_directive("options", Options)
    app.add_directive("service-options", ServiceOptions)
    return {"parallel_read_safe": True}
