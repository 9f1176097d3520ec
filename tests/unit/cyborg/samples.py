"""Deployables in Cyborg's format, and a simulated Cyborg whose answers a test sets."""

import json
from typing import Any, Final

import msgspec

from tests.lab.samples import uuid
from wharfinger_cyborg.client import AcceleratorRequest
from wharfinger_cyborg.deployable import Deployable

HOST: Final = "fpga-host-1"
VENDOR_TRAIT: Final = "CUSTOM_FPGA_INTEL"
FUNCTION: Final = "CUSTOM_FPGA_FUNCTION_ID_INTEL_LOOP"


def attributes(*pairs: tuple[str, str]) -> str:
    """Return an ``attributes_list`` with these keys and values."""
    return json.dumps([{key: value} for key, value in pairs])


def deployable(number: int = 0, **fields: Any) -> Deployable:
    """Return an FPGA with one region that Cyborg has published, with these fields changed."""
    one = Deployable(
        uuid=uuid(f"deployable {number}"),
        name=f"{HOST}_0000:{number:02x}:00.0",
        num_accelerators=1,
        device_id=number,
        rp_uuid=uuid(f"provider {number}"),
        driver_name="intel",
        attributes_list=attributes(("rc", "FPGA"), ("trait0", VENDOR_TRAIT)),
    )
    return msgspec.structs.replace(one, **fields)


def request(number: int = 0, **fields: Any) -> AcceleratorRequest:
    """Return an accelerator request that is being bound to the first deployable."""
    one = AcceleratorRequest(uuid(f"request {number}"), "BindStarted", uuid("provider 0"))
    return msgspec.structs.replace(one, **fields)


class ScriptedCyborg:
    """A Cyborg in memory.

    ``fails`` has the errors by name of the listing; ``asked`` has the listings in order.
    """

    def __init__(self, *deployables: Deployable) -> None:
        self.listed = list(deployables)
        self.requests: list[AcceleratorRequest] = []
        self.named = frozenset({HOST})
        self.asked: list[str] = []
        self.fails: dict[str, Exception] = {}

    def hosts(self) -> frozenset[str]:
        self._asked("hosts")
        return self.named

    def deployables(self) -> list[Deployable]:
        self._asked("deployables")
        return list(self.listed)

    def binding(self) -> list[AcceleratorRequest]:
        self._asked("binding")
        return list(self.requests)

    def _asked(self, what: str) -> None:
        self.asked.append(what)
        if what in self.fails:
            raise self.fails[what]
