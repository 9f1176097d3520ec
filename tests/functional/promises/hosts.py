"""Hosts that list the same fleet; each has the program and a configuration."""

from pathlib import Path

from tests.lab import inprocess
from tests.lab.cycles import make_state
from tests.lab.program import Done, Program
from wharfinger.db.database import FILE_NAME


class FleetHost(Program):
    """A host that publishes the fleet ``metal``; hosts in one directory share a database."""

    def __init__(
        self, directory: Path, name: str, placement_url: str, service_down_time: int = 60
    ) -> None:
        self.directory = directory / name
        self.directory.mkdir()
        self.config = self.directory / "wharfinger.conf"
        make_state(directory)
        self.config.write_text(
            f"[DEFAULT]\nenabled_drivers = metal\nhost = {name}\nstate_path = {self.directory}\n"
            f"service_down_time = {service_down_time}\n"
            f"[database]\nconnection = sqlite:///{directory / FILE_NAME}\n"
            "[metal]\ndriver = fleet\n"
            "[placement]\nembedded = false\nauth_type = admin_token\n"
            f"endpoint = {placement_url}\ntoken = admin\nendpoint_override = {placement_url}\n"
        )

    def sync(self, *options: str) -> Done:
        return inprocess.run(self, "sync", *options)
