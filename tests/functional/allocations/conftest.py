"""What the tests of claims and moves have in common."""

from collections.abc import Iterator

import pytest

from tests.lab.allocating import Desk
from tests.lab.cycles import Publishing
from tests.lab.drivers import flat


@pytest.fixture
def desk(publishing: Publishing) -> Iterator[Desk]:
    """Over two nodes of two CPUs each."""
    publishing.driver.nodes |= {"cn-0": flat(VCPU=2), "cn-1": flat(VCPU=2)}
    assert not publishing.cycle.sync().problems
    with Desk(publishing.client, publishing.context) as fixture:
        yield fixture
