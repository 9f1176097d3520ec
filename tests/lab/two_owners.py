"""A GPU host that the libvirt driver publishes for nova, with devices of a real Cyborg's below."""

import json
from pathlib import Path
from typing import Any, Final

import fixtures

from tests.lab.cycles import everything
from tests.lab.placement import over_http
from tests.lab.program import PROGRAM, SAMPLE, Done, run_command
from wharfinger.conf import parse
from wharfinger.objects import Context, ServiceList, connect
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.embedded import EmbeddedPlacement
from wharfinger.placement.session import make_adapter
from wharfinger.scheduling.gates import gates
from wharfinger_harnesses.cyborg import Cyborg

HOST: Final = "gpu-host-1"
#: What the sample has of each owner: 8 of nova's, and 1 of Cyborg's.
NOVAS, CYBORGS = f"{HOST}_pci_0000_84_00_0", f"{HOST}_af_r0"
#: A device profile of Cyborg's vGPU.
PROFILE: Final = "cyborg-vgpu"


class TwoOwners(fixtures.Fixture):
    """The sample of accelerators, published by the program: by two instances of two drivers."""

    def __init__(self, service: EmbeddedPlacement) -> None:
        super().__init__()
        self._service = service

    def _setUp(self) -> None:
        self.directory = Path(self.useFixture(fixtures.TempDir()).path)
        (self.directory / "host.xml").write_bytes((SAMPLE / "host.xml").read_bytes())
        self.config = self.directory / "accelerators.conf"
        serving = over_http(self._service)
        placement, self.requests = serving.__enter__()
        self.addCleanup(serving.__exit__, None, None, None)
        self._configure(placement, "http://127.0.0.1:1")
        self.sync("--driver", "gpus")  # Cyborg reports below a root that has to be there
        devices = json.loads((SAMPLE / "accelerators.json").read_text())[HOST]
        self.cyborg = self.useFixture(Cyborg(placement, host=HOST, hardware=devices))
        self.cyborg.create_profile(PROFILE, {"resources:VGPU": "1"})
        self._configure(placement, self.cyborg.url)
        self.sync()
        self.conf = parse([str(self.config)])
        self.client = PlacementClient(make_adapter(self.conf), connections=4)
        self.context: Context = connect(self.conf)
        self.addCleanup(self.context.close)

    def _configure(self, placement: str, cyborg: str) -> None:
        sample = (SAMPLE / "accelerators.conf").read_text()
        for name, value in {
            "@demo@": str(self.directory),
            "@placement@": placement,
            "@cyborg@": cyborg,
        }.items():
            sample = sample.replace(name, value)
        # One of nova's GPUs is enough.
        sample += "\n[gpus:nvidia-231]\ndevice_addresses = 0000:84:00.0\n"
        self.config.write_text(sample)

    def run(self, *arguments: str) -> Done:
        """Run the program."""
        command = [PROGRAM, "--config-file", str(self.config), *arguments]
        return run_command(command, self.directory)

    def sync(self, *arguments: str) -> str:
        """Publish everything, without problems; what is printed comes back."""
        done = self.run("sync", *arguments)
        assert (done.code, done.err) == (0, ""), done
        return done.out

    def gates(self) -> dict[str, bool]:
        """Whether the gate of each owner is on."""
        found = gates(ServiceList.get_by_filters(self.context))
        return {owner: gate.is_on for owner, gate in found.items()}

    def provider(self, name: str) -> dict[str, Any]:
        """Everything in Placement of a provider."""
        return everything()[name]
