"""[<instance>]: which Ironic, and which of its nodes.

Besides the options here it takes keystoneauth's, as [placement] does: they lead to Ironic.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from oslo_config import cfg

from wharfinger.conf import keystone
from wharfinger.conf.option_reading import read_options
from wharfinger.exceptions import ConfigurationError

_SERVICE_TYPE: Final = "baremetal"

#: 100,000 nodes need a tenth of it where Ironic puts 100 on a page.
MAX_PAGES: Final = 10_000

OPTIONS: Final = (
    cfg.StrOpt(
        "conductor_group",
        help="Only the nodes of this conductor group; nothing after the = is the default group. "
        "Default: those of all groups.",
    ),
    cfg.StrOpt(
        "shard",
        help="Only the nodes of this shard (needs Ironic's API 1.82). Default: those of all.",
    ),
    cfg.StrOpt(
        "node_owner",
        help="Only the nodes whose owner in Ironic this is, a project's id. Credentials that see "
        "the nodes of that project alone are enough then. Default: those of all owners.",
    ),
    cfg.StrOpt(
        "resource_class",
        help="Only the nodes of this resource class, written as Ironic has it. Default: those of "
        "all classes.",
    ),
    cfg.IntOpt(
        "max_pages",
        default=MAX_PAGES,
        min=1,
        help="Largest number of pages in one listing of the nodes; a longer listing is an error. "
        "A page has 1000 nodes, or fewer if Ironic's own [api] max_limit is lower.",
    ),
)

#: Of our options, those that Ironic calls otherwise.
_ITS_NAMES: Final = {"node_owner": "owner"}
#: A node is asked for as ``retired`` since then; everything else here is older.
_NEEDED: Final = "1.61"
#: What needs more.
_NEEDED_BY: Final = {"shard": "1.82"}


@dataclass(frozen=True, slots=True)
class FleetSection:
    """A driver instance's section, validated, less keystoneauth's own options.

    ``selected`` is what nodes have to have, by Ironic's names of it. ``credentials`` is the section
    that says how to authenticate: this one, or what auth_section names. ``microversion`` is the
    lowest of Ironic's API that has all that is asked for, and ``needed_for`` what takes it. A
    listing has ``max_pages`` at most.
    """

    name: str
    selected: dict[str, str]
    credentials: str
    microversion: str
    needed_for: str
    max_pages: int

    @classmethod
    def read(cls, conf: cfg.ConfigOpts, instance: str) -> Self:
        """Read the section of an instance; raises ConfigurationError."""
        keystone.register(conf, instance, _SERVICE_TYPE)
        values = read_options(conf, instance, OPTIONS)
        max_pages = values.pop("max_pages")
        credentials, auth_type = keystone.read_credentials(conf, instance)
        if not auth_type:
            raise ConfigurationError(
                section=credentials,
                key="auth_type",
                value="",
                problem="nothing says how to authenticate to Ironic.",
                remedy="Set auth_type (password, v3applicationcredential, ...) and its options; "
                "for an Ironic without Keystone none and endpoint, or http_basic.",
            )
        given = {key: value for key, value in values.items() if value is not None}
        for key, value in given.items():
            if not value and key != "conductor_group":
                raise ConfigurationError(
                    section=instance,
                    key=key,
                    value=value,
                    problem="no node has nothing there.",
                    remedy="Give a value, or remove the option for all nodes.",
                )
        selected = {_ITS_NAMES.get(key, key): value for key, value in given.items()}
        microversion, needed_for = _NEEDED, "what nodes are asked for"
        for key, more in _NEEDED_BY.items():
            if key in given:
                microversion, needed_for = more, f"[{instance}] {key}"
        return cls(instance, selected, credentials, microversion, needed_for, max_pages)


def list_opts() -> list[tuple[str, Sequence[cfg.Opt]]]:
    """The options by section, for oslo-config-generator."""
    section = "<instance with driver = ironic>"
    return [(section, [*OPTIONS, *keystone.sample_options()])]
