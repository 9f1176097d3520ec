"""Fixtures that start the real services.

Each service starts once and stops after the last integration test of the process. All tests share
it: each test uses its own nodes, devices or databases, or empties the service first. A fixture
``..._starting`` only starts a service. The fixture without this ending waits until the service is
ready.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.lab.background import InBackground
from tests.lab.bare_metal import with_template
from tests.lab.cyborg_harness import Harness, SecondPlacement
from tests.lab.libvirtd import Libvirtd, Mdevs
from tests.lab.mariadb import MariaDB
from tests.lab.postgresql import PostgreSQL
from wharfinger.placement.embedded import EmbeddedPlacement
from wharfinger_harnesses.ironic import Ironic

#: The maximum number of nodes on a page of the shared Ironic.
IRONIC_PAGE = 100
#: The hosts of the shared Cyborg: one name is the prefix of another; the last is nova's GPU host.
CYBORG_HOSTS = ("fpga-host-1", "fpga-host-2", "fpga-host-11", "gpu-host-1")


@pytest.fixture(scope="session", autouse=True)
def _without_sync(without_sync: None) -> None:
    """Let SQLite skip syncing to the disk in all these tests."""


# Databases.


@pytest.fixture(scope="package")
def postgresql_starting() -> Iterator[InBackground[PostgreSQL]]:
    with InBackground(PostgreSQL) as starting:
        yield starting


@pytest.fixture(scope="package")
def postgresql(postgresql_starting: InBackground[PostgreSQL]) -> PostgreSQL:
    return postgresql_starting.ready()


@pytest.fixture(scope="package")
def mariadb_starting() -> Iterator[InBackground[MariaDB]]:
    with InBackground(MariaDB) as starting:
        yield starting


@pytest.fixture(scope="package")
def mariadb(mariadb_starting: InBackground[MariaDB]) -> MariaDB:
    return mariadb_starting.ready()


# Ironic. Each test has nodes with its own owner.


@contextmanager
def _ironic() -> Iterator[Ironic]:
    with Ironic({"api": {"max_limit": IRONIC_PAGE}}) as ironic:
        yield with_template(ironic)


@pytest.fixture(scope="package")
def ironic_starting() -> Iterator[InBackground[Ironic]]:
    with InBackground(_ironic) as starting:
        yield starting


@pytest.fixture
def ironic(ironic_starting: InBackground[Ironic]) -> Ironic:
    """The shared Ironic, which is started again if an earlier test has stopped it."""
    ironic = ironic_starting.ready()
    if ironic.process.poll() is not None:
        ironic.start_again()
    return ironic


@pytest.fixture(scope="package")
def ironic_on_postgresql_starting(
    postgresql_starting: InBackground[PostgreSQL],
) -> Iterator[InBackground[Ironic]]:
    @contextmanager
    def on_postgresql() -> Iterator[Ironic]:
        url = postgresql_starting.ready().create_database()
        with Ironic({"database": {"connection": url}}) as ironic:
            ironic.create_node(None)
            yield ironic

    with InBackground(on_postgresql) as starting:
        yield starting


@pytest.fixture(scope="package")
def ironic_on_postgresql(ironic_on_postgresql_starting: InBackground[Ironic]) -> Ironic:
    """An Ironic on PostgreSQL, which sorts nodes that were never updated to the beginning."""
    return ironic_on_postgresql_starting.ready()


# Cyborg. Each test calls ``begin``, which resets it.


@pytest.fixture(scope="package")
def shared_cyborg(placement_service: EmbeddedPlacement) -> Iterator[Harness]:
    """Start Cyborg in this thread, because it reads this process's Placement when it starts."""
    with Harness(placement_service, *CYBORG_HOSTS) as harness:
        yield harness


@pytest.fixture
def harness(shared_cyborg: Harness) -> Iterator[Harness]:
    """The shared Cyborg, before a test calls ``begin``."""
    before = len(shared_cyborg.cyborg.log())
    yield shared_cyborg
    print(
        shared_cyborg.cyborg.log()[before:][-20_000:]
    )  # pytest shows this output if the test fails


@pytest.fixture(scope="package")
def second_placement_starting() -> Iterator[InBackground[SecondPlacement]]:
    with InBackground(lambda: SecondPlacement(*CYBORG_HOSTS)) as starting:
        yield starting


@pytest.fixture(scope="package")
def second_placement(second_placement_starting: InBackground[SecondPlacement]) -> SecondPlacement:
    """A second Placement, with the root providers of all hosts."""
    return second_placement_starting.ready()


# libvirtd. A test begins without mdevs, but with the domains of the test before.


@pytest.fixture(scope="package")
def libvirtd_starting() -> Iterator[InBackground[Libvirtd]]:
    with InBackground(Libvirtd) as starting:
        yield starting


@pytest.fixture
def libvirtd(libvirtd_starting: InBackground[Libvirtd]) -> Libvirtd:
    """The shared libvirtd, without mdevs; it is started again if an earlier test has stopped it."""
    libvirtd = libvirtd_starting.ready()
    if not libvirtd.is_up:
        libvirtd.start()
    with Mdevs(libvirtd.uri) as mdevs:
        mdevs.clear()
    return libvirtd
