"""Run the real Ironic in one process: its conductor and its API.

Usage: `ironic_service.py DIRECTORY [PORT]`. Without PORT, the API uses a free one. The file `port`
has the port. An optional `ironic.conf` in the directory overrides the options of this module. At
SIGUSR1 the process reads `ironic.conf` again.
"""

import gc
import os
import sys

if sys.flags.isolated:
    # With the default thresholds, the search for garbage takes a sixth of the start.
    gc.set_threshold(100_000, 50, 50)
else:
    # -I: the module ironic of this directory must not hide Ironic. -W: libraries warn.
    os.execv(sys.executable, [sys.executable, "-I", "-W", "ignore", *sys.argv])

import importlib.util
import signal
from pathlib import Path
from unittest.mock import patch

# Before all other imports, since it selects the kind of threads of oslo.service.
import ironic.command
from ironic.common import service
from ironic.conductor.rpc_service import RPCService
from ironic.conf import CONF
from ironic.db import migration
from oslo_db.sqlalchemy import enginefacade
from oslo_service import systemd

_DEFAULTS = """\
[DEFAULT]
host = ironic
my_ip = 127.0.0.1
state_path = {directory}
log_file = {directory}/ironic.log
auth_strategy = noauth
rpc_transport = none
enabled_hardware_types = fake-hardware,lab
enabled_bios_interfaces = fake
enabled_boot_interfaces = fake
enabled_console_interfaces = fake
enabled_deploy_interfaces = fake,lab
enabled_firmware_interfaces = fake
enabled_inspect_interfaces = fake
enabled_management_interfaces = fake
enabled_network_interfaces = noop
enabled_power_interfaces = fake
enabled_raid_interfaces = fake
enabled_rescue_interfaces = fake
enabled_storage_interfaces = noop
enabled_vendor_interfaces = fake
default_network_interface = noop

[api]
host_ip = 127.0.0.1

[conductor]
automated_clean = True
check_provision_state_interval = 1
# Ironic does not start with less than 26.
workers_pool_size = 64
node_locked_retry_interval = 1
sync_power_state_interval = 0
send_sensor_data = False

[database]
connection = sqlite:///{directory}/ironic.sqlite
# The database need not survive a crash of the machine.
sqlite_synchronous = False

[deploy]
http_root = {directory}/httpboot
http_url = http://127.0.0.1:9

[oslo_concurrency]
lock_path = {directory}
"""
_HARDWARE = "ironic_hardware"
_ENTRY_POINTS = f"""\
[ironic.hardware.types]
lab = {_HARDWARE}:LabHardware

[ironic.hardware.interfaces.deploy]
lab = {_HARDWARE}:LabDeploy
"""


def install_hardware(directory: Path) -> None:
    """Let Ironic find the hardware type `lab`."""
    distribution = directory / "lab-0.dist-info"
    distribution.mkdir(exist_ok=True)
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: lab\nVersion: 0\n")
    (distribution / "entry_points.txt").write_text(_ENTRY_POINTS)
    sys.path.append(str(directory))


def load_hardware() -> None:
    """Import the module ironic_hardware, which is beside this file."""
    spec = importlib.util.spec_from_file_location(
        _HARDWARE, Path(__file__).with_name(f"{_HARDWARE}.py")
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[_HARDWARE] = module
    spec.loader.exec_module(module)


def configure(directory: Path, port: int) -> None:
    """Configure Ironic with the options of this module and of `ironic.conf`."""
    defaults = directory / "defaults.conf"
    defaults.write_text(_DEFAULTS.format(directory=directory))
    files = [path for path in (defaults, directory / "ironic.conf") if path.exists()]
    options = [f"--config-file={path}" for path in files]
    service.prepare_service("ironic", [ironic.command.__name__, *options])
    CONF.set_override("port", port, "api")
    enginefacade.configure(thread_checkin=False)  # without a sleep after each transaction


def create_schema() -> None:
    """Create the tables if the database is empty."""
    if migration.version() is None:
        # Alembic would redirect the log to the terminal.
        with patch("logging.config.fileConfig"):
            migration.create_schema()


def main(directory: Path, port: int) -> None:
    """Run Ironic until a signal ends the process."""
    said = directory / "port"
    said.unlink(missing_ok=True)
    (directory / "go").mkdir(exist_ok=True)
    install_hardware(directory)
    configure(directory, port)
    load_hardware()
    create_schema()
    conductor = RPCService(
        CONF.host, "ironic.conductor.manager", "ConductorManager", embed_api=True
    )
    conductor.start()
    said.write_text(str(conductor.apiserver.server.bind_addr[1]))
    systemd.notify_once()
    signal.signal(signal.SIGUSR1, lambda *_: CONF.reload_config_files())
    while True:
        signal.pause()


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), int((*sys.argv, "0")[2]))
