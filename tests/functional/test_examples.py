"""Examples in the documentation: each command prints what its page shows."""

import io
import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest
from stevedore import ExtensionManager

from tests.lab.examples import Shell, blocks, check
from tests.lab.inprocess import logging_of_its_own
from tests.lab.placement import Requests
from tests.lab.program import SAMPLE
from tests.lab.samples import device_job, uuid
from tests.lab.sqlite import StayingOpen
from wharfinger.cli import app, upgrade_check
from wharfinger.conf import load
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.objects import JOB_HOLDER, DeviceJobList, connect
from wharfinger.placement.embedded import EmbeddedPlacement
from wharfinger.providers import Inventory
from wharfinger.reconcile.reserve_and_release import Reservations

ROOT: Final = SAMPLE.parents[2]
#: The page whose examples tests/packaging runs, with wheels.
ELSEWHERE: Final = "docs/tutorials/writing-a-driver.rst"
PAGES: Final = {
    str(path.relative_to(ROOT)): tuple(blocks(path.read_text()))
    for path in (
        ROOT / "README.md",
        *sorted((ROOT / "docs" / "tutorials").glob("*.rst")),
        *sorted((ROOT / "docs" / "how-to").glob("*.rst")),
    )
}
#: The home directory of the reader, on the pages.
HOME: Final = "/home/you"
_SAMPLE: Final = (SAMPLE / "wharfinger.conf").read_text()
#: The root of the sample host, and a GPU below it.
ROOT_UUID: Final = "be0f8ff3-60f9-5d30-b039-82553ac6c6ab"
GPU: Final = "gpu-host-1_pci_0000_84_00_0"
FPGA, IMAGE = "gpu-host-1_3b_r0", "1a7e2b6c-93b4-4a2f-8a57-6a5f0c2f9d11"
#: Two nodes of nova's ironic driver: one with an instance, and one without.
USED, FREE = "359e2170-8f4f-48b1-b27d-96e69ae7fe46", "c21d0780-4890-41e8-adb6-820318262f79"
DIFFERENCE: Final = 2
_EXIT_CODE: Final = '; echo "exit code $?"'


@dataclass
class Reader(Shell):
    """A shell for the commands of a page; Wharfinger's programs run in this process."""

    client: WritingClient

    def run(self, command: str) -> str:
        """Run a command; return what it prints."""
        plain = command.removesuffix(_EXIT_CODE)
        program, *arguments = shlex.split(plain.replace("\\\n", ""))
        if program not in {"wharfinger", "wharfinger-status"}:
            return super().run(command)
        main = app.main if program == "wharfinger" else upgrade_check.main
        out = io.StringIO()
        os.chdir(self.directory)
        with logging_of_its_own(), redirect_stdout(out), redirect_stderr(out):
            code = main(arguments)
        if plain != command:
            return f"{out.getvalue()}exit code {code}\n"
        expected = {0, DIFFERENCE} if "--dry-run" in arguments else {0}
        assert code in expected, f"$ {command}\n{out.getvalue()}exit code {code}"
        return out.getvalue()

    @property
    def home(self) -> Path:
        """Return the home directory."""
        return Path(self.environment["HOME"])


# Functions that prepare what a page requires.


def a_clone(reader: Reader) -> None:
    """Link the samples into the directory, as in a clone of the repository."""
    for name in ("docs", "etc"):
        (reader.directory / name).symlink_to(ROOT / name)


def a_host(reader: Reader) -> None:
    """Publish the sample host."""
    _configure(reader, _SAMPLE)
    reader.run("wharfinger sync")


def a_host_of_nova(reader: Reader) -> None:
    """Configure the sample host, and publish its root as nova-compute does."""
    _configure(reader, _SAMPLE)
    totals = {"MEMORY_MB": Inventory(total=262144), "VCPU": Inventory(total=64)}
    _publish(reader.client, ROOT_UUID, "gpu-host-1", None, totals, "OWNER_NOVA", "COMPUTE_NODE")


def a_published_host_of_nova(reader: Reader) -> None:
    """Publish the devices of the sample host below a root of nova-compute."""
    a_host_of_nova(reader)
    reader.run("wharfinger sync")


def a_host_of_two_owners(reader: Reader) -> None:
    """Publish the sample host with one GPU, and below it a vGPU of Cyborg."""
    profile = {"name": "cyborg-vgpu", "groups": [{"resources:VGPU": "1"}]}
    profiles = reader.home / "device-profiles.json"
    profiles.write_text(json.dumps({"device_profiles": [profile]}))
    first = _SAMPLE[: _SAMPLE.index("# The second GPU")].replace(", nvidia-232", "")
    _configure(
        reader,
        f"{first}device_addresses = 0000:84:00.0\n[accelerator]\ndevice_profiles = {profiles}\n",
    )
    reader.run("wharfinger sync")
    vgpus = {"VGPU": Inventory(total=1)}
    _publish(reader.client, uuid("af"), "gpu-host-1_af_r0", ROOT_UUID, vgpus, "OWNER_CYBORG")


def a_rack(reader: Reader) -> None:
    """Publish twelve machines of a rack; then remove seven of them from the rack."""
    machines = {f"rack1-node{number}": {"class": "CUSTOM_BAREMETAL_GOLD"} for number in range(12)}
    _install_rack(reader, machines, "lab", "removal_delay = 0\n")
    reader.run("wharfinger sync")
    left = dict(list(machines.items())[:5])
    (reader.directory / "rack.json").write_text(json.dumps(left))
    reader.run("wharfinger sync")
    reader.run(f"wharfinger sync{_EXIT_CODE}")


def a_fleet(reader: Reader) -> None:
    """Write the file of two nodes for the driver; one node is being cleaned."""
    machine = {"class": "CUSTOM_BAREMETAL_GOLD"}
    machines = {
        "3a44b44e-48ed-4c9a-a642-8b04e84e3866": {**machine, "busy": "cleaning"},
        "6a831f96-e8df-477f-bdab-214247f6f8f7": machine,
    }
    _install_rack(reader, machines, "metal", "owner = OWNER_NOVA\n")


def a_fleet_of_nova(reader: Reader) -> None:
    """Publish two nodes as nova does; the first is in use, and the driver reports both."""
    machine = {"class": "CUSTOM_BAREMETAL_GOLD"}
    machines = {USED: {**machine, "busy": "active"}, FREE: machine}
    _install_rack(reader, machines, "metal", "owner = OWNER_NOVA\n")
    reader.client.create_resource_class("CUSTOM_BAREMETAL_GOLD")
    for node, reserved in {USED: 0, FREE: 1}.items():
        inventories = {"CUSTOM_BAREMETAL_GOLD": Inventory(total=1, reserved=reserved, max_unit=1)}
        _publish(reader.client, node, node, None, inventories, "OWNER_NOVA")


def an_fpga(reader: Reader) -> None:
    """Publish an FPGA for Cyborg."""
    _install_rack(reader, {FPGA: {"class": "FPGA"}}, "fpgas", "owner = OWNER_CYBORG\n")
    reader.run("wharfinger sync")


def _install_rack(reader: Reader, machines: dict[str, Any], instance: str, more: str) -> None:
    shutil.copytree(ROOT / "docs" / "examples" / "rack", reader.directory, dirs_exist_ok=True)
    reader.run("pip install .")
    file = reader.directory / "rack.json"
    file.write_text(json.dumps(machines))
    _write_configuration(
        reader,
        f"[DEFAULT]\nenabled_drivers = {instance}\nhost = metal-host-1\n"
        f"state_path = {reader.home}\n[{instance}]\ndriver = rack\nfile = {file}\n{more}",
    )


def _configure(reader: Reader, sample: str) -> None:
    _write_configuration(reader, sample.replace("@demo@", str(reader.home)))
    shutil.copy(SAMPLE / "host.xml", reader.home)


def _write_configuration(reader: Reader, text: str) -> None:
    directory = reader.home / ".wharfinger"
    directory.mkdir()
    (directory / "wharfinger.conf").write_text(text)


def _publish(
    client: WritingClient,
    uuid: str,
    name: str,
    parent: str | None,
    inventories: Mapping[str, Inventory],
    *traits: str,
) -> None:
    """Create a provider as another program."""
    generation = client.create_provider(uuid, name, parent).generation
    generation = client.set_traits(uuid, generation, traits)
    client.set_inventories(uuid, generation, inventories)


# Functions that run before a single block.


def a_gpu_is_reserved(reader: Reader) -> None:
    reader.run(f"wharfinger provider reserve {GPU} --reason 'a fan is loud' --until 2h")


def another_program_reserves_a_gpu(reader: Reader) -> None:
    reader.run(f"wharfinger provider release {GPU}")
    [gpu] = reader.client.list_providers(name=GPU)
    live = reader.client.get_inventories(gpu.uuid)
    full = {name: replace(one, reserved=one.total) for name, one in live.inventories.items()}
    reader.client.set_inventories(gpu.uuid, live.resource_provider_generation, full)


def an_instance_uses_a_gpu(reader: Reader) -> None:
    reader.run("wharfinger flavor create small --property resources:VGPU=1")
    reader.run("wharfinger instance claim --flavor small")


def a_job_is_interrupted(reader: Reader) -> None:
    [fpga] = reader.client.list_providers(name=FPGA)
    with closing(connect(load([str(reader.home / ".wharfinger" / "wharfinger.conf")]))) as context:
        for job in DeviceJobList.get_by_filters(context):
            job.destroy()
        device_job(
            context,
            provider_uuid=fpga.uuid,
            provider_name=FPGA,
            image=IMAGE,
            state="unknown",
            trait="CUSTOM_FPGA_FUNCTION_ID_NEW",
        ).create()
        reservations = Reservations(reader.client, context)
        reservations.reserve(fpga, holder=JOB_HOLDER, reason="programming")


def nova_deletes_a_node_and_the_agent_creates_it_again(reader: Reader) -> None:
    reader.client.delete_provider(FREE)
    assert "metal: 3 changes written" in reader.run("wharfinger sync")


SETUPS: Final[dict[str, Callable[[Reader], None]]] = {
    "README.md": a_clone,
    "docs/tutorials/first-sync.rst": a_clone,
    "docs/how-to/bare-metal.rst": a_fleet,
    "docs/how-to/confine-nova-flavors.rst": a_host,
    "docs/how-to/fpga.rst": an_fpga,
    "docs/how-to/migrate-from-nova-ironic.rst": a_fleet_of_nova,
    "docs/how-to/reserve.rst": a_host,
    "docs/how-to/resize-between-owners.rst": a_host_of_two_owners,
    "docs/how-to/resolve-conflicts.rst": a_published_host_of_nova,
    "docs/how-to/upgrade.rst": a_host,
    "docs/how-to/vgpu.rst": a_host_of_nova,
    "docs/how-to/when-something-goes-wrong.rst": a_rack,
}
STEPS: Final[dict[str, Callable[[Reader], None]]] = {
    step.__name__.replace("_", " ").replace("gpu", "GPU"): step
    for step in (
        a_gpu_is_reserved,
        a_job_is_interrupted,
        an_instance_uses_a_gpu,
        another_program_reserves_a_gpu,
        nova_deletes_a_node_and_the_agent_creates_it_again,
    )
}


@pytest.fixture(scope="module", autouse=True)
def files_stay_open() -> Iterator[None]:
    """Keep SQLite files open between commands."""
    with StayingOpen():
        yield


@pytest.fixture
def reader(
    placement_url: tuple[str, Requests],
    placement_service: EmbeddedPlacement,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Reader]:
    """A reader whose commands use the tests' embedded Placement.

    pip installs into a directory from which this process imports.
    """
    home, directory, site = (tmp_path / name for name in ("home", "work", "site"))
    home.mkdir()
    directory.mkdir()
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setattr(ExtensionManager, "ENTRY_POINT_CACHE", {})
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    pip = {"TARGET": str(site), "QUIET": "2", "NO_DEPS": "1", "NO_INDEX": "1"}
    for name, value in {**pip, "NO_BUILD_ISOLATION": "0"}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    url = placement_url[0]
    service = {"EMBEDDED": "false", "AUTH_TYPE": "admin_token", "TOKEN": "admin", "ENDPOINT": url}
    for name, value in {**service, "ENDPOINT_OVERRIDE": url}.items():
        monkeypatch.setenv(f"OS_PLACEMENT__{name}", value)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(directory)
    yield Reader(directory, dict(os.environ), WritingClient(placement_service.adapter))
    sys.modules.pop("wharfinger_rack", None)


@pytest.mark.parametrize(
    "page", [one for one, found in PAGES.items() if found and one != ELSEWHERE]
)
def test_commands_of_a_page_print_what_it_shows(page: str, reader: Reader) -> None:
    if page in SETUPS:
        SETUPS[page](reader)
    for block in PAGES[page]:
        if block.before:
            STEPS[block.before](reader)
        for command, shown in () if block.run_by else block.commands:
            check(command, shown, reader.run(command), str(reader.home), HOME)


def test_setups_are_of_pages() -> None:
    assert SETUPS.keys() <= PAGES.keys()
