"""A real Placement that requires Keystone's tokens, in a process of its own."""

from pathlib import Path

from tests.lab.keystone import SERVICE_PROJECT, Keystone
from wharfinger_harnesses.daemons import PythonDaemon

_PROGRAM = Path(__file__).with_name("placement_service.py")
_CONFIGURATION = """\
[api]
auth_strategy = keystone

[placement_database]
connection = sqlite:///{directory}/placement.sqlite
sync_on_startup = true

[keystone_authtoken]
{authtoken}
"""


class GuardedPlacement(PythonDaemon):
    """An empty Placement on 127.0.0.1, registered in the catalog of a Keystone with its ``url``."""

    url: str

    def __init__(self, keystone: Keystone) -> None:
        super().__init__()
        self._keystone = keystone

    def _setUp(self) -> None:
        super()._setUp()
        user = self._keystone.create_user("placement", SERVICE_PROJECT, "service")
        options = self._keystone.authtoken_options(user)
        authtoken = "\n".join(f"{key} = {value}" for key, value in options.items())
        (self.directory / "placement.conf").write_text(
            _CONFIGURATION.format(directory=self.directory, authtoken=authtoken)
        )
        self.start_program(_PROGRAM)
        self.url = f"http://127.0.0.1:{(self.directory / 'port').read_text()}"
        self._keystone.register("placement", "placement", self.url)
