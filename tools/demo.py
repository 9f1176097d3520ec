"""Show in five steps what Wharfinger does, with a real Ironic and Cyborg on simulated hardware.

`tools/demo` runs this. Each step checks its results. The demo fails at the first result that
differs from the heading of the step.
"""

import json
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
import time
import traceback
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from rich.console import Console

from tests.lab.background import InBackground
from wharfinger.conformance.placement import RunPlacement
from wharfinger.placement.embedded import EmbeddedPlacement
from wharfinger_harnesses.cyborg import Cyborg
from wharfinger_harnesses.daemons import LabError
from wharfinger_harnesses.ironic import Ironic
from wharfinger_harnesses.openstack import OpenStackService

SAMPLE: Final = Path(__file__).parents[1] / "etc" / "wharfinger" / "sample"
PROGRAM: Final = str(Path(sys.executable).with_name("wharfinger"))
WIDTH: Final = 100

HOST: Final = "gpu-host-1"
VGPU_OF_NOVA, VGPU_OF_CYBORG = f"{HOST}_pci_0000_84_00_0", f"{HOST}_af_r0"
FPGA, FPGA_BUS = f"{HOST}_3b_r0", "3b"
NODE, OTHER_NODE = (f"6a1c2e3f-77b0-4c1e-9a55-7c9e0000000{number}" for number in (1, 2))
PROFILE: Final = "cyborg-vgpu"

S = TypeVar("S", bound=OpenStackService)


class DemoError(Exception):
    """A result differs from the heading of the step, or a service did not start."""


class IronicWithNodes(Ironic):
    """An Ironic with two nodes that it is cleaning."""

    def _setUp(self) -> None:
        super()._setUp()
        for node in (NODE, OTHER_NODE):
            self.create_node(None, uuid=node)
        self.make_available(NODE, OTHER_NODE)
        for node in (NODE, OTHER_NODE):
            self.update_node(node, extra={"lab": {"clean": "hold"}})
            for target, state in (("manage", "manageable"), ("provide", "cleaning")):
                self.provision(node, target)
                self.wait_for(node, state)


class Demo:
    """Runs the steps, and prints their commands and results."""

    def __init__(self, directory: Path, services: ExitStack) -> None:
        self._directory = directory
        self._services = services
        self._configuration = directory / "wharfinger.conf"
        nowhere = "http://127.0.0.1:9"
        self._values = {"demo": str(directory.resolve()), "ironic": nowhere, "cyborg": nowhere}
        self._log = services.enter_context((directory / "log").open("w", buffering=1))
        self._console = Console(highlight=False, markup=False, emoji=False, width=WIDTH)
        self._start = time.monotonic()
        self.title = "The start"

    def run(self) -> None:
        """Run all steps. The services start while earlier steps run."""
        ironic = self._services.enter_context(InBackground[Ironic](IronicWithNodes))
        placement = RunPlacement(EmbeddedPlacement(self._directory / "placement.sqlite"))
        self._services.callback(placement.close)
        self.publish()
        hardware = json.loads((SAMPLE / "accelerators.json").read_text())[HOST]
        cyborg = self._services.enter_context(
            InBackground(partial(Cyborg, placement.url, host=HOST, hardware=hardware))
        )
        self.reserve_while_cleaning(ironic)
        self.program(cyborg)
        self.request_without_mixing_owners()
        self.explain_a_refusal()
        self._heading("Each step did what its heading says. See the result:")
        command = f".venv/bin/wharfinger --config-file {self._configuration} provider tree"
        self._console.print(f"{command} --inventory --usage")

    def fail(self, error: Exception) -> None:
        """Log an error, and print its first line."""
        traceback.print_exception(error, file=self._log)
        reason = str(error).partition("\n")[0].rstrip(".:")
        self._console.print(f"\n{self.title}: failed: {reason}. See {self._log.name}.", style="red")

    def publish(self) -> None:
        """Publish a host; the second sync then finds no change."""
        self._heading("1/5 Publish a GPU host")
        shutil.copy(SAMPLE / "host.xml", self._directory)
        self._configure()
        self._wharfinger("sync --driver gpus", "gpus: 6 changes written", show="written")
        self._wharfinger("provider tree --inventory", HOST, f"{VGPU_OF_NOVA}  OWNER_NOVA")
        self._wharfinger("sync --driver gpus", "gpus: no change")

    def reserve_while_cleaning(self, starting: InBackground[Ironic]) -> None:
        """Show that a node is reserved until its cleaning ends."""
        self._heading("2/5 Reserve a bare metal node while Ironic cleans it")
        ironic = self._ready("Ironic", starting)
        self._wharfinger("sync --driver metal", show="written")
        tree = f"provider tree --inventory {NODE}"
        self._wharfinger(tree, "reserved: cleaning", "CUSTOM_BAREMETAL_GOLD 1  fully reserved\n")
        ironic.go(NODE)
        ironic.wait_for(NODE, "available")
        self._say("Ironic has cleaned this node, and is still cleaning another one.")
        self._wharfinger("sync --driver metal", "metal: 1 change written", show="written")
        self._wharfinger(tree, "CUSTOM_BAREMETAL_GOLD 1\n")

    def program(self, starting: InBackground[Cyborg]) -> None:
        """Reserve an FPGA while it is programmed, and set the trait of its new function."""
        self._heading("3/5 Program an FPGA of Cyborg, and reserve it meanwhile")
        cyborg = self._ready("Cyborg", starting)
        function = "d8424dc4-a4a3-c413-f89e-433683f9040b"
        self._wharfinger("sync --driver fpgas", "fpgas: 2 changes written", show="written")
        image = cyborg.create_image(function)
        command = f"device program {FPGA} --image {image} --function {function}"
        programming = self._started(command, " &")
        cyborg.wait_for_programming(FPGA_BUS)
        tree = f"provider tree --inventory {HOST}"
        self._wharfinger(
            tree,
            "reserved: programming image",
            "FPGA 2  fully reserved\n",
            show=f"{HOST}|FPGA|VGPU|reserved:",
        )
        cyborg.go(FPGA_BUS)
        self._say("Cyborg has programmed the FPGA.")
        trait = f"CUSTOM_FPGA_FUNCTION_ID_LAB_{function.replace('-', '').upper()}"
        self._ended(
            programming, f"programmed: {trait}", "released: free", show="programmed|released"
        )
        cyborg.create_profile(PROFILE, {"resources:VGPU": "1"})

    def request_without_mixing_owners(self) -> None:
        """Request a vGPU of nova, then one of Cyborg, then both for an instance."""
        self._heading("4/5 Request vGPUs without mixing owners")
        columns = "-f value -c Provider -c Owner"
        nova, cyborg = f"{VGPU_OF_NOVA} OWNER_NOVA\n", f"{VGPU_OF_CYBORG} OWNER_CYBORG\n"
        self._say("Placement alone offers the vGPUs of both owners. Wharfinger separates them:")
        self._wharfinger(f"candidate list --resource VGPU=1 --no-filters {columns}", nova, cyborg)
        of_nova = self._wharfinger(f"candidate list --resource VGPU=1 {columns}")
        _check(of_nova == nova, "nova does not get its vGPU alone")
        of_cyborg = self._wharfinger(f"candidate list --device-profile {PROFILE} {columns}")
        _check(of_cyborg == cyborg, "Cyborg does not get its vGPU alone")
        self._wharfinger(
            "flavor create two-vgpus --vcpus 2 --ram 2048 --property resources:VGPU=1"
            f" --property accel:device_profile={PROFILE}",
            show="$^",
        )
        vgpus = f"{VGPU_OF_NOVA}: VGPU=1", f"{VGPU_OF_CYBORG}: VGPU=1"
        self._wharfinger("instance claim --flavor two-vgpus", *vgpus, show="=")

    def explain_a_refusal(self) -> None:
        """Explain why there is no candidate for a second instance."""
        self._heading("5/5 Explain a refusal")
        self._wharfinger("instance claim --flavor two-vgpus", "no candidate is free", code=1)
        self._wharfinger(
            f"candidate explain --device-profile {PROFILE}",
            "No candidates.",
            "1 of another owner, 1 used up",
            "Release 1 VGPU",
        )

    def _ready(self, name: str, starting: InBackground[S]) -> S:
        """Wait for a service and add it to the configuration."""
        try:
            with self._console.status(f"Waiting for {name}"):
                service = starting.ready()
        except LabError as error:
            raise DemoError(f"{name} did not start") from error
        self._services.callback(lambda: self._log.write(service.log()))
        self._values[service.name] = service.url
        self._configure()
        return service

    def _configure(self) -> None:
        text = (SAMPLE / "demo.conf").read_text()
        self._configuration.write_text(re.sub("@([a-z]+)@", lambda at: self._values[at[1]], text))

    def _heading(self, title: str) -> None:
        self.title = title
        seconds = time.monotonic() - self._start
        self._console.print(f"\n{title}  ({seconds:.0f} s)", style="bold")

    def _say(self, text: str) -> None:
        self._console.print(f"# {text}", style="dim")

    def _wharfinger(self, command: str, *expected: str, code: int = 0, show: str = "") -> str:
        return self._ended(self._started(command), *expected, code=code, show=show)

    def _started(self, command: str, end: str = "") -> "subprocess.Popen[str]":
        """Print and start a command of wharfinger."""
        lines = textwrap.wrap(f"$ wharfinger {command}{end}", WIDTH - 4, break_on_hyphens=False)
        self._console.print(" \\\n    ".join(lines), style="cyan")
        process = subprocess.Popen(
            [PROGRAM, "--config-file", str(self._configuration), *shlex.split(command)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._services.callback(process.kill)
        return process

    def _ended(
        self, process: "subprocess.Popen[str]", *expected: str, code: int = 0, show: str = ""
    ) -> str:
        """Wait for a command, print its output lines that match `show`, and check its result."""
        output, _ = process.communicate()
        self._log.write(f"$ {process.args!r}\n{output}exit code {process.returncode}\n\n")
        for line in output.splitlines():
            if re.search(show, line):
                self._console.print(line)
        _check(process.returncode == code, f"exit code {process.returncode} instead of {code}")
        for text in expected:
            _check(text in output, f"the output lacks '{text}'")
        return output


def _check(is_so: bool, otherwise: str) -> None:
    if not is_so:
        raise DemoError(otherwise)


def main(directory: Path) -> int:
    """Run the demo in a new directory; return its exit code."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    with ExitStack() as services:
        demo = Demo(directory, services)
        try:
            demo.run()
        except Exception as error:
            demo.fail(error)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
