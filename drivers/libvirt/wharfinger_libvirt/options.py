"""The options of the driver for oslo.config."""

from collections.abc import Sequence
from typing import Any, Final

from oslo_config import cfg, types

from wharfinger.conf.option_reading import read_options


# oslo.config's own type accepts an empty value.
class _Whole(types.Integer):
    def __call__(self, value: Any) -> int | float | None:
        number = super().__call__(value)
        if number is None:
            raise ValueError("the number is missing")
        return number


class _Ratio(types.Float):
    def __call__(self, value: Any) -> int | float | None:
        number = super().__call__(value)
        if number is None or not 0 < number < float("inf"):
            raise ValueError("it has to be a number above 0")
        return number


#: Options in [<instance>] besides those of the framework.
INSTANCE: Final = (
    cfg.StrOpt(
        "connection_uri",
        default="qemu:///system",
        help="The connection URI of libvirt. The driver opens a connection for each reading of the "
        "host, and closes it after that.",
    ),
    cfg.Opt(
        "timeout",
        type=_Ratio(),
        default=30.0,
        help="Seconds to wait for libvirt to describe the host. If libvirt takes longer, the cycle "
        "fails, and the driver publishes nothing new.",
    ),
    cfg.StrOpt(
        "hypervisor_hostname",
        help="The name of the node and of its root provider. Default: the host name that "
        "libvirt reports, which nova-compute uses, too.",
    ),
    cfg.Opt(
        "publish_root",
        type=types.String(
            choices=[
                (
                    "auto",
                    "Like overlay if another program, such as nova-compute, has created the root "
                    "provider, otherwise like own.",
                ),
                ("own", "This driver publishes it, with VCPU and MEMORY_MB."),
                ("overlay", "nova-compute publishes it; this driver writes no inventory to it."),
            ]
        ),
        default="auto",
        help="Which program publishes the host's root provider: this driver (own), another "
        "program such as nova-compute (overlay), or this driver unless another program already "
        "does (auto).",
    ),
    cfg.StrOpt(
        "nova_compute_id_file",
        default="/var/lib/nova/compute_id",
        help="The file in which nova-compute stores the uuid of this host. If another program "
        "publishes the root provider, but with another uuid than in this file, the cycle reports a "
        "problem: nova-compute cannot create its root provider. It also reports a file that cannot "
        "be read. If the file does not exist, or this option is empty, the driver does not compare "
        "the uuids.",
    ),
    cfg.Opt(
        "reserved_host_cpus",
        type=_Whole(min=0),
        default=0,
        help="CPUs reserved for the host itself. Only used if this driver publishes the root "
        "provider (see publish_root).",
    ),
    cfg.Opt(
        "reserved_host_memory_mb",
        type=_Whole(min=0),
        default=512,
        help="MiB of memory reserved for the host itself. Only used if this driver publishes the "
        "root provider (see publish_root).",
    ),
    cfg.Opt(
        "cpu_allocation_ratio",
        type=_Ratio(),
        default=4.0,
        help="The allocation ratio of VCPU. Only used if this driver publishes the root provider "
        "(see publish_root). The default is nova's default for initial_cpu_allocation_ratio.",
    ),
    cfg.Opt(
        "ram_allocation_ratio",
        type=_Ratio(),
        default=1.0,
        help="The allocation ratio of MEMORY_MB. Only used if this driver publishes the root "
        "provider (see publish_root). The default is nova's default for "
        "initial_ram_allocation_ratio.",
    ),
    cfg.ListOpt(
        "enabled_mdev_types",
        default=[],
        help="Mediated device types to offer, as `mdevctl types` shows them, e.g. nvidia-35. "
        "Default: none; then the driver publishes no devices. Each type may have a section "
        "[<instance>:<type>]. A device that can offer several types offers the first of them in "
        "this list, unless device_addresses of a type decide.",
    ),
)

#: Options in [<instance>:<type>], for each enabled mdev type that needs other values.
MDEV_TYPE: Final = (
    cfg.ListOpt(
        "device_addresses",
        default=[],
        help="PCI addresses of the devices that offer this type, e.g. 0000:84:00.0. Default: "
        "each device that can offer this type and is not in device_addresses of another type. If a "
        "device can offer several types that have no device_addresses, the device offers the type "
        "that comes first in enabled_mdev_types.",
    ),
    cfg.StrOpt(
        "resource_class",
        default="VGPU",
        help="The resource class of this type: VGPU or CUSTOM_*.",
    ),
    cfg.ListOpt(
        "traits",
        default=[],
        help="Traits of the devices that offer this type, standard or CUSTOM_*. Name no owner "
        "trait here: Wharfinger adds the owner trait.",
    ),
    cfg.Opt(
        "max_instances",
        type=types.Integer(min=0),
        help="Largest number of mediated devices of this type on the whole host. Active "
        "mediated devices count first. The devices offer the rest of the number in the order of "
        "their addresses. Default: as many as the devices can take.",
    ),
)


def read(conf: cfg.ConfigOpts, section: str, options: Sequence[cfg.Opt]) -> dict[str, Any]:
    """Return the values of a section by option. Raises ConfigurationError.

    Lists become tuples without blank items.
    """
    values = read_options(conf, section, options)
    return {
        key: tuple(item for item in value if item) if isinstance(value, list) else value
        for key, value in values.items()
    }
