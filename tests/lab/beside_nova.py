"""The program wharfinger beside nova's services, with devices below nova's root providers."""

import json
import shutil
from pathlib import Path
from typing import Final
from uuid import uuid4

import fixtures

from tests.lab.cycles import everything
from tests.lab.placement import adapter_to
from tests.lab.program import PROGRAM, Done, run_command
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.providers import Inventory

EXAMPLES: Final = Path(__file__).resolve().parents[2] / "docs" / "examples"
HOST: Final = "host1"
#: Two drivers: the example cards of the documentation, and the same with nova's class VGPU.
_DRIVERS: Final = """\
[wharfinger.drivers]
cards = wharfinger_cards:CardsDriver
gpus = wharfinger_lab_gpus:GpusDriver
"""
_GPUS: Final = '''\
"""The cards of the documentation, as devices of a class that nova knows."""

from wharfinger_cards import CardsDriver


class GpusDriver(CardsDriver):
    def update_provider_tree(self, provider_tree, nodename, allocations=None, migrations=None):
        super().update_provider_tree(provider_tree, nodename, allocations, migrations)
        for slot, card in self._cards.items():
            inventory = {"VGPU": {"total": card["units"], "max_unit": card["units"]}}
            provider_tree.update_inventory(f"{nodename}_card_{slot}", inventory)
'''


class Wharfinger(fixtures.Fixture):
    """The program wharfinger of one host, with its own configuration, database and devices.

    ``options`` are written to the driver's section.
    """

    def __init__(self, url: str, driver: str = "cards", host: str = HOST, **options: str) -> None:
        super().__init__()
        self._url = url
        self._driver = driver
        self._host = host
        self._options = options

    def _setUp(self) -> None:
        self.directory = Path(self.useFixture(fixtures.TempDir()).path)
        self._install_drivers(self.directory / "site")
        if self._driver in _DRIVERS:
            self._options["file"] = str(self.directory / "devices.json")
        self.configure()
        self.has_devices({"1": 4, "2": 4})

    def _install_drivers(self, site: Path) -> None:
        information = site / "wharfinger_lab-1.dist-info"
        information.mkdir(parents=True)
        (information / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: wharfinger-lab\nVersion: 1\n"
        )
        (information / "entry_points.txt").write_text(_DRIVERS)
        shutil.copy(EXAMPLES / "wharfinger_cards.py", site)
        (site / "wharfinger_lab_gpus.py").write_text(_GPUS)
        self.useFixture(fixtures.EnvironmentVariable("PYTHONPATH", str(site)))

    def configure(self, host: str | None = None) -> None:
        """Write the configuration; with ``host``, for another host from now on."""
        self._host = host or self._host
        options = "\n".join(f"{name} = {value}" for name, value in self._options.items())
        (self.directory / "wharfinger.conf").write_text(
            f"""
[DEFAULT]
enabled_drivers = {self._driver}
host = {self._host}
state_path = {self.directory / "state"}
service_down_time = 60
[placement]
embedded = false
auth_type = admin_token
endpoint = {self._url}
endpoint_override = {self._url}
token = admin
[{self._driver}]
{options}
"""
        )

    def has_devices(self, units: dict[str, int]) -> None:
        """Replace the devices of the host; ``units`` has the number of units by slot."""
        devices = {slot: {"units": count} for slot, count in units.items()}
        (self.directory / "devices.json").write_text(json.dumps(devices))

    def run(self, *words: str) -> Done:
        """Run the program with these arguments; return its exit code and output."""
        config = str(self.directory / "wharfinger.conf")
        return run_command([PROGRAM, "--config-file", config, *words], self.directory)

    def do(self, *words: str) -> str:
        """Run the program, require that it succeeds, and return its output."""
        done = self.run(*words)
        assert (done.code, done.err) == (0, ""), done
        return done.out

    def sync(self) -> str:
        """Run ``wharfinger sync``, require that it succeeds, and return its output."""
        return self.do("sync")

    def reserve(self, device: str) -> None:
        """Run ``wharfinger provider reserve`` for a device."""
        self.do("provider", "reserve", "--reason", "burns", device)

    def claim(self, resource_class: str) -> str:
        """Claim one unit of a device for a new instance of Wharfinger; return its uuid."""
        nothing = [f"resources:{name}=0" for name in ("VCPU", "MEMORY_MB", "DISK_GB")]
        properties = [*nothing, f"resources1:{resource_class}=1"]
        options = [part for one in properties for part in ("--property", one)]
        self.do("flavor", "create", *options, "device")
        claim = self.do("instance", "claim", "--flavor", "device", "-f", "json")
        return str(json.loads(claim)["uuid"])


def devices() -> dict[str, tuple[int, int]]:
    """Return total and reserved units of each device in Placement, by the name of its provider."""
    return {
        name: figures
        for name, provider in everything().items()
        for resource_class, figures in provider["inventories"].items()
        if resource_class in ("CUSTOM_CARD_UNIT", "VGPU")
    }


def use(url: str, name: str, consumer: str | None = None) -> str:
    """Allocate a unit of a device to a consumer, by default a new one; return the consumer."""
    provider, consumer = everything()[name], consumer or str(uuid4())
    [resource_class] = provider["inventories"]
    answer = adapter_to(url).request(
        f"/allocations/{consumer}",
        "PUT",
        microversion="1.39",
        json={
            "allocations": {provider["uuid"]: {"resources": {resource_class: 1}}},
            "project_id": "project",
            "user_id": "user",
            "consumer_generation": None,
            "consumer_type": "INSTANCE",
        },
    )
    assert answer.status_code == 204, answer.text
    return consumer


def create_device_of_cyborg(url: str, name: str) -> None:
    """Create a device with one VGPU below nova's root, with the owner trait of Cyborg."""
    client = WritingClient(adapter_to(url))
    provider = str(uuid4())
    client.create_provider(provider, name, everything()[HOST]["uuid"])
    generation = client.set_inventories(provider, 0, {"VGPU": Inventory(total=1, max_unit=1)})
    client.set_traits(provider, generation, ["OWNER_CYBORG"])


def delete_provider(url: str, uuid: str) -> None:
    """Delete a provider, as ``openstack resource provider delete`` does."""
    adapter_to(url).request(f"/resource_providers/{uuid}", "DELETE", microversion="1.39")


def delete_allocations(url: str, consumer: str) -> None:
    """Delete a consumer's allocations, as ``openstack resource provider allocation delete``."""
    adapter_to(url).request(f"/allocations/{consumer}", "DELETE", microversion="1.39")


def users(name: str) -> dict[str, int]:
    """Return the units that each consumer has of a device, by the consumer's uuid."""
    allocations: dict[tuple[str, str], int] = everything()[name]["allocations"]
    return {consumer: used for (consumer, _), used in allocations.items()}
