"""Options of an Ironic driver instance."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from oslo_config import cfg

from wharfinger.conf import keystone
from wharfinger.conf.option_reading import read_options
from wharfinger.exceptions import ConfigurationError

_SERVICE_TYPE: Final = "baremetal"

#: With 100 nodes on a page, 100,000 nodes need a tenth of these pages.
MAX_PAGES: Final = 10_000

OPTIONS: Final = (
    cfg.StrOpt(
        "conductor_group",
        help="Publish only the nodes of this conductor group. An empty value means Ironic's "
        "default group. Default: the nodes of all groups.",
    ),
    cfg.StrOpt(
        "shard",
        help="Publish only the nodes of this shard, or of several with commas between them (needs "
        "Ironic's API 1.82). Default: the nodes of all shards.",
    ),
    cfg.StrOpt(
        "node_owner",
        help="Publish only the nodes whose owner in Ironic is the project with this id. Then "
        "credentials that may list only the nodes of that project are enough. Default: the nodes "
        "of all owners.",
    ),
    cfg.StrOpt(
        "resource_class",
        help="Publish only the nodes of this resource class, written as in Ironic. Default: the "
        "nodes of all classes.",
    ),
    cfg.IntOpt(
        "max_pages",
        default=MAX_PAGES,
        min=1,
        help="Largest number of pages that the driver reads for a list of all nodes. If the list "
        "is longer, the cycle fails. A page has 1000 nodes, or fewer if Ironic's own [api] "
        "max_limit is lower.",
    ),
)

#: Ironic's names of fields whose options have another name.
_IRONIC_NAMES: Final = {"node_owner": "owner"}
#: The lowest microversion that has all fields that the driver reads: ``retired`` is the newest.
_NEEDED: Final = "1.61"
#: Options that need a later microversion.
_NEEDED_BY: Final = {"shard": "1.82"}


@dataclass(frozen=True, slots=True)
class FleetSection:
    """The validated options of a driver instance, without those of keystoneauth."""

    name: str
    #: The values that nodes must have, by Ironic's field names.
    selected: dict[str, str]
    #: The name of the section with the credentials.
    credentials: str
    #: The lowest microversion with all requested fields, and the fields or option that need it.
    microversion: str
    needed_for: str
    max_pages: int

    @classmethod
    def read(cls, conf: cfg.ConfigOpts, instance: str) -> Self:
        """Read the section of a driver instance. Raises ConfigurationError."""
        keystone.register(conf, instance, _SERVICE_TYPE)
        values = read_options(conf, instance, OPTIONS)
        max_pages = values.pop("max_pages")
        credentials, auth_type = keystone.read_credentials(conf, instance)
        if not auth_type:
            raise ConfigurationError(
                section=credentials,
                key="auth_type",
                value="",
                problem="no authentication for Ironic is configured.",
                remedy="Set auth_type (password, v3applicationcredential, ...) and its options; "
                "for an Ironic without Keystone, set auth_type = none and endpoint, or http_basic.",
            )
        given = {key: value for key, value in values.items() if value is not None}
        for key, value in given.items():
            if not value and key != "conductor_group":
                raise ConfigurationError(
                    section=instance,
                    key=key,
                    value=value,
                    problem="an empty value selects no node.",
                    remedy="Set a value, or remove the option.",
                )
        selected = {_IRONIC_NAMES.get(key, key): value for key, value in given.items()}
        microversion, needed_for = _NEEDED, "the requested fields of nodes"
        for key, more in _NEEDED_BY.items():
            if key in given:
                microversion, needed_for = more, f"[{instance}] {key}"
        return cls(instance, selected, credentials, microversion, needed_for, max_pages)


def list_opts() -> list[tuple[str, Sequence[cfg.Opt]]]:
    """Return the options by section, for oslo-config-generator."""
    section = "<instance with driver = ironic>"
    return [(section, [*OPTIONS, *keystone.sample_options(_SERVICE_TYPE)])]
