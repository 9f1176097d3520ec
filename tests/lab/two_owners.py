"""A GPU host with the owner nova by the libvirt driver, and devices of a real Cyborg below it."""

import json
from pathlib import Path
from typing import Any, Final

import fixtures

from tests.lab import inprocess
from tests.lab.cyborg_harness import Harness
from tests.lab.cycles import everything
from tests.lab.placement import empty
from tests.lab.program import SAMPLE, Done, Program
from wharfinger.conf import parse
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.objects import Context, ServiceList, connect
from wharfinger.placement.session import make_adapter
from wharfinger.scheduling.owner_tagging_gates import gates

HOST: Final = "gpu-host-1"
#: A provider with VGPUs of nova, and one with a VGPU of Cyborg.
NOVAS, CYBORGS = f"{HOST}_pci_0000_84_00_0", f"{HOST}_af_r0"
#: A device profile for a vGPU of Cyborg.
PROFILE: Final = "cyborg-vgpu"


class TwoOwners(fixtures.Fixture):
    """Publishes the GPUs and accelerators of the demo, with the libvirt and the Cyborg driver."""

    def __init__(self, harness: Harness) -> None:
        super().__init__()
        self._harness = harness

    def _setUp(self) -> None:
        directory = Path(self.useFixture(fixtures.TempDir()).path)
        self._harness.begin()
        empty()
        self._program = Program(directory)
        self._configure(directory)
        self.sync("--driver", "gpus")  # Cyborg reports below an existing root provider
        devices = json.loads((SAMPLE / "accelerators.json").read_text())[HOST]
        self._harness.report({HOST: devices})
        self._harness.cyborg.create_profile(PROFILE, {"resources:VGPU": "1"})
        self.sync()
        self.conf = parse([str(self.config)])
        self.client = WritingClient(make_adapter(self.conf), connections=4)
        self.context: Context = connect(self.conf)
        self.addCleanup(self.context.close)

    @property
    def config(self) -> Path:
        return self._program.config

    def _configure(self, directory: Path) -> None:
        sample = (SAMPLE / "demo.conf").read_text()
        for name, value in {
            "gpus, metal, fpgas": "gpus, fpgas",
            "@demo@": str(directory),
            "@cyborg@": self._harness.cyborg.url,
        }.items():
            assert name in sample
            sample = sample.replace(name, value)
        url = self._harness.placement_url
        placement = f"embedded = false\nauth_type = admin_token\ntoken = admin\nendpoint = {url}\n"
        self.config.write_text(f"{sample}\n[placement]\n{placement}")

    def run(self, *arguments: str) -> Done:
        """Run the program with these arguments in this process; return its output."""
        return inprocess.run(self._program, *arguments)

    def sync(self, *arguments: str) -> str:
        """Run ``wharfinger sync``, require that it succeeds, and return its output."""
        done = self.run("sync", *arguments)
        assert (done.code, done.err) == (0, ""), done
        return done.out

    def gates(self) -> dict[str, bool]:
        """Return whether the gate of each owner is on: all of its providers have owner traits."""
        found = gates(ServiceList.get_by_filters(self.context))
        return {owner: gate.is_on for owner, gate in found.items()}

    def provider(self, name: str) -> dict[str, Any]:
        """Return a provider in Placement as ``everything`` does."""
        return everything()[name]
