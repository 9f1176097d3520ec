"""The life cycle of a node in a real Ironic, and its provider in Placement at each step."""

from pathlib import Path

import pytest

from tests.lab.bare_metal import (
    GOLD,
    TRAITS,
    Metal,
    free,
    is_candidate,
    reserved,
    watching,
)
from tests.lab.cycles import everything
from tests.lab.placement import PlacementFixture
from wharfinger.exceptions import BackendError, InventoryInUse, NodeTaken
from wharfinger_harnesses.ironic import Ironic
from wharfinger_ironic.states import PROVISION_STATES

#: The resource class of nodes of another type.
SILVER = "CUSTOM_SILVER"
NO_POWER = "its power state is unknown"
CLEANING = "cleaning"


def state(name: str) -> str:
    """Return the driver's reason to reserve a node in this provision state."""
    reason = PROVISION_STATES[name]
    assert reason is not None
    return reason


def of(instance: str) -> str:
    return f"it belongs to instance {instance}"


def in_use(metal: Metal, instance: str, **told: str) -> str:
    """Allocate a node for an instance, and deploy it."""
    node = metal.available(**told)
    metal.sync()
    metal.allocate(node, instance)
    metal.ironic.deploy(node, instance)
    metal.ironic.wait_for(node, "active")
    return node


# Nodes that become available.


def test_enrolled_node_is_published_and_free_once_it_was_cleaned(
    metal: Metal, ironic: Ironic
) -> None:
    node = metal.enroll(clean="hold")
    metal.sync()
    assert metal.shows(node) == reserved(state("enroll"), NO_POWER)

    metal.goes(node, "manage", "manageable")
    assert metal.shows(node) == reserved(state("manageable"), NO_POWER)
    metal.switch(node, "power off")
    metal.poll()
    assert metal.shows(node) == reserved(state("manageable"))

    metal.goes(node, "provide", "cleaning")
    assert metal.shows(node) == reserved(CLEANING)
    metal.goes_on(node, "available")
    assert metal.shows(node) == free()


def test_node_cleaned_and_deployed_by_its_ramdisk_is_reserved_throughout(
    metal: Metal, ironic: Ironic, instance: str
) -> None:
    node = metal.enroll(clean="wait")
    metal.sync()
    ironic.provision(node, "manage")
    ironic.wait_for(node, "manageable")
    metal.switch(node, "power off")

    metal.goes(node, "provide", "clean wait")
    assert metal.shows(node) == reserved(state("clean wait"))
    ironic.set_maintenance(node, "a look at its fans")
    metal.poll()
    waiting = reserved(state("clean wait"), "maintenance: a look at its fans")
    assert metal.shows(node) == waiting

    ironic.end_maintenance(node)
    metal.goes_on(node, "available")
    assert metal.shows(node) == free()

    metal.told(node, deploy="wait")
    ironic.deploy(node, instance)
    ironic.wait_for(node, "wait call-back")
    metal.poll()
    assert metal.shows(node) == reserved(state("wait call-back"), of(instance))
    metal.goes_on(node, "active")
    assert metal.shows(node) == reserved(state("active"), of(instance))


def test_node_whose_cleaning_fails_is_reserved_until_an_operator_repairs_it(
    metal: Metal, ironic: Ironic
) -> None:
    node = metal.available(clean="fail")
    metal.sync()
    metal.goes(node, "manage", "manageable")

    metal.goes(node, "provide", "clean failed")
    figures, (failed, *others) = metal.shows(node)
    assert figures == {GOLD: (1, 1)}
    assert failed.startswith(f"{state('clean failed')}: ")
    assert "makes clean fail" in failed
    assert others == ["maintenance", "fault: clean failure"]

    metal.told(node)
    ironic.end_maintenance(node)
    metal.poll()
    assert metal.shows(node) == reserved(failed)
    metal.goes(node, "manage", "manageable")
    assert metal.shows(node) == reserved(state("manageable"))
    metal.goes(node, "provide", "available")
    assert metal.shows(node) == free()


def test_node_in_inspection_stays_published(metal: Metal, ironic: Ironic) -> None:
    node = metal.available()
    metal.sync()
    metal.goes(node, "manage", "manageable")
    with watching(metal.placement, node) as looks:
        metal.goes(node, "inspect", "manageable")
        metal.sync()
    assert all(look.is_full for look in looks)
    metal.goes(node, "provide", "available")
    assert metal.shows(node) == free()


# Nodes in use.


def test_node_is_reserved_from_its_deployment_to_the_end_of_its_cleaning(
    metal: Metal, ironic: Ironic, instance: str
) -> None:
    node = metal.available(deploy="hold", clean="hold", delete="hold")
    metal.sync()
    assert metal.shows(node) == free()

    ironic.update_node(node, instance_uuid=instance)
    metal.poll()
    assert metal.shows(node) == reserved(of(instance))
    metal.goes(node, "active", "deploying")
    assert metal.shows(node) == reserved(state("deploying"), of(instance))
    metal.goes_on(node, "active")
    assert metal.shows(node) == reserved(state("active"), of(instance))

    metal.goes(node, "deleted", "deleting")
    assert metal.shows(node) == reserved(state("deleting"), of(instance))
    metal.goes_on(node, "cleaning")
    assert metal.shows(node) == reserved(CLEANING)
    metal.goes_on(node, "available")
    assert metal.shows(node) == free()


def test_node_whose_deployment_failed_is_reserved_until_it_is_torn_down_and_cleaned(
    metal: Metal, ironic: Ironic, instance: str
) -> None:
    node = metal.available(deploy="fail", delete="fail")
    metal.sync()
    ironic.deploy(node, instance)
    ironic.wait_for(node, "deploy failed")
    metal.poll()
    figures, (failed, owner) = metal.shows(node)
    assert (figures, owner) == ({GOLD: (1, 1)}, of(instance))
    assert failed.startswith(f"{state('deploy failed')}: ")

    metal.goes(node, "deleted", "error")
    figures, [failed] = metal.shows(node)
    assert figures == {GOLD: (1, 1)}
    assert failed.startswith(f"{state('error')}: ")

    metal.told(node)
    metal.goes(node, "deleted", "available")
    assert metal.shows(node) == free()


def test_node_in_use_may_be_rescued_serviced_and_put_into_maintenance(
    metal: Metal, ironic: Ironic, instance: str
) -> None:
    node = in_use(metal, instance)
    metal.poll()
    active = reserved(state("active"), of(instance))
    assert metal.shows(node) == active

    ironic.provision(node, "rescue", rescue_password="a-password")
    ironic.wait_for(node, "rescue")
    metal.poll()
    assert metal.shows(node) == reserved(state("rescue"), of(instance))
    metal.goes(node, "unrescue", "active")
    assert metal.shows(node) == active

    ironic.set_maintenance(node, "its disk is failing")
    metal.poll()
    maintenance = "maintenance: its disk is failing"
    assert metal.shows(node) == reserved(state("active"), maintenance, of(instance))
    ironic.end_maintenance(node)
    metal.poll()
    assert metal.shows(node) == active
    assert everything()[node]["allocations"] == {(instance, GOLD): 1}


def test_adopted_node_is_in_use_without_an_instance(metal: Metal, ironic: Ironic) -> None:
    node = metal.enroll()
    ironic.provision(node, "manage")
    ironic.wait_for(node, "manageable")
    metal.switch(node, "power on")
    image = {"image_source": "http://127.0.0.1:9/image", "image_checksum": "0" * 32}
    ironic.update_node(node, instance_info=image)
    metal.sync()

    metal.goes(node, "adopt", "active")
    assert metal.shows(node) == reserved(state("active"))


# Nodes that an operator withholds.


def test_free_node_in_maintenance_is_reserved_for_the_operators_reason(
    metal: Metal, ironic: Ironic
) -> None:
    node = metal.available()
    metal.sync()
    for reason in ("rack 7 moves", "rack 7 has moved, and has no network"):
        ironic.set_maintenance(node, reason)
        metal.poll()
        assert metal.shows(node) == reserved(f"maintenance: {reason}")
    ironic.end_maintenance(node)
    metal.poll()
    assert metal.shows(node) == free()


def test_retired_node_stays_reserved(metal: Metal, ironic: Ironic, instance: str) -> None:
    node = in_use(metal, instance)
    ironic.update_node(node, retired=True, retired_reason="out of warranty")
    metal.poll()
    retired = "retired: out of warranty"
    assert metal.shows(node) == reserved(state("active"), retired, of(instance))

    metal.goes(node, "deleted", "manageable")
    metal.release(instance)
    metal.sync()
    metal.sync()
    assert set(metal.reasons(node)) >= {state("manageable"), retired}
    assert metal.figures(node) == {GOLD: (1, 1)}

    ironic.update_node(node, retired=False)
    metal.goes(node, "provide", "available")
    assert metal.shows(node) == free()


# Properties.


def test_traits_are_published_and_an_operators_traits_kept(metal: Metal, ironic: Ironic) -> None:
    node = metal.available()
    metal.sync()
    ours = {"OWNER_NOVA", "CUSTOM_WHARFINGER_METAL"}
    assert everything()[node]["traits"] == ours | set(TRAITS)

    client = metal.placement.client
    client.create_trait("CUSTOM_NEAR_THE_DOOR")
    found = client.get_traits(node)
    traits = {*found.traits, "CUSTOM_NEAR_THE_DOOR"}
    client.set_traits(node, found.resource_provider_generation, traits)
    ironic.set_traits(node, "CUSTOM_QUIET")
    metal.poll()
    assert everything()[node]["traits"] == ours | {"CUSTOM_QUIET", "CUSTOM_NEAR_THE_DOOR"}

    ironic.set_maintenance(node, "a trait too many")
    metal.poll()
    ironic.set_traits(node)
    metal.sync()
    assert everything()[node]["traits"] == ours | {"CUSTOM_NEAR_THE_DOOR"}


def test_node_without_a_class_is_reported_and_the_others_are_synced(
    metal: Metal, ironic: Ironic
) -> None:
    other = metal.available()
    node = metal.available()
    ironic.update_node(node, resource_class=None)

    outcome = metal.cycle.sync()
    [problem] = outcome.problems
    assert isinstance(problem, BackendError)
    assert node in str(problem)
    assert metal.shows(other) == free()
    assert metal.figures(node) is None

    ironic.set_maintenance(other, "a look at its fans")
    metal.cycle.poll()
    assert metal.shows(other) == reserved("maintenance: a look at its fans")
    ironic.update_node(node, resource_class="baremetal.gold")
    metal.poll()
    assert metal.shows(node) == free()


def test_node_that_loses_its_class_keeps_its_inventory_reserved(
    metal: Metal, ironic: Ironic
) -> None:
    other = metal.available()
    node = metal.available(clean="hold")
    metal.sync()
    with watching(metal.placement, node) as looks:
        ironic.update_node(node, resource_class="???")
        ironic.set_maintenance(other, "a look at its fans")
        metal.poll()
        figures, [problem] = metal.shows(node)
        assert figures == {GOLD: (1, 1)}
        assert "resource class" in problem
        assert metal.shows(other) == reserved("maintenance: a look at its fans")

        metal.goes(node, "manage", "manageable")
        metal.goes(node, "provide", "cleaning")
        assert metal.figures(node) == {GOLD: (1, 1)}
        assert set(metal.reasons(node)) == {problem, CLEANING}
        metal.goes_on(node, "available")
        assert metal.shows(node) == reserved(problem)
        metal.restarted()
        metal.sync()
        assert metal.shows(node) == reserved(problem)
    assert all(look.figures for look in looks)

    ironic.update_node(node, resource_class="baremetal.gold")
    metal.poll()
    assert metal.shows(node) == free()


def test_node_in_use_whose_class_changes_is_reported_and_stays_reserved(
    metal: Metal, ironic: Ironic, instance: str
) -> None:
    """Placement refuses to remove a class with allocations."""
    other = metal.available()
    node = in_use(metal, instance)
    metal.poll()
    metal.write(node, resource_class="silver")
    ironic.set_maintenance(other, "a look at its fans")

    [problem] = metal.cycle.poll().problems
    assert isinstance(problem, InventoryInUse)
    assert node in str(problem)
    assert metal.shows(other) == reserved("maintenance: a look at its fans")
    assert metal.figures(node) == {GOLD: (1, 1)}

    ironic.provision(node, "deleted")
    ironic.wait_for(node, "available")
    metal.release(instance)
    metal.sync()
    assert metal.shows(node) == free(SILVER)

    with watching(metal.placement, node, SILVER) as looks:
        ironic.update_node(node, resource_class="baremetal.gold")
        metal.poll()
    assert all(look.figures for look in looks)
    assert metal.shows(node) == free()


# Releases.


@pytest.mark.parametrize("is_polled", [True, False])
def test_released_node_is_reserved_before_its_allocation_is_deleted_and_until_it_is_clean(
    is_polled: bool, metal: Metal, ironic: Ironic, instance: str
) -> None:
    """Includes a node that no poll has reported as in use."""
    node = in_use(metal, instance, delete="hold", clean="hold")
    if is_polled:
        metal.poll()
    ironic.provision(node, "deleted")
    ironic.wait_for(node, "deleting")

    with watching(metal.placement, node) as looks:
        metal.release(instance)
        for arrives in ("cleaning", "available"):
            metal.poll()
            metal.sync()
            assert metal.figures(node) == {GOLD: (1, 1)}
            assert not is_candidate(metal.placement, node)
            ironic.go(node)
            ironic.wait_for(node, arrives)
    [before] = [look for look in looks if look.when == "before POST /allocations"]
    after = looks[looks.index(before) + 1 :]
    assert after
    assert all(look.is_full for look in (before, *after))
    assert not any(look.is_candidate for look in looks)
    assert everything()[node]["allocations"] == {}

    metal.poll()
    assert metal.shows(node) == free()


def test_released_node_available_before_the_next_poll_is_free_after_it(
    metal: Metal, ironic: Ironic, instance: str
) -> None:
    node = in_use(metal, instance)
    metal.poll()
    metal.release(instance)
    ironic.provision(node, "deleted")
    ironic.wait_for(node, "available")
    metal.poll()
    metal.poll()
    assert metal.shows(node) == free()


def test_released_node_never_seen_in_use_is_free_after_the_next_full_cycle(
    metal: Metal, ironic: Ironic, instance: str
) -> None:
    """The node was in use only between two polls."""
    node = in_use(metal, instance)
    ironic.provision(node, "deleted")
    ironic.wait_for(node, "available")
    metal.release(instance)
    assert metal.figures(node) == {GOLD: (1, 1)}
    metal.poll()
    metal.sync()
    assert metal.shows(node) == free()


def test_node_released_after_its_cleaning_is_free_after_the_next_full_cycle(
    metal: Metal, ironic: Ironic, instance: str
) -> None:
    node = in_use(metal, instance)
    metal.poll()
    metal.goes(node, "deleted", "available")
    with watching(metal.placement, node) as looks:
        metal.release(instance)
    assert not any(look.is_candidate for look in looks)
    metal.poll()
    metal.sync()
    assert metal.shows(node) == free()


def test_released_node_after_a_failed_cleaning_is_free_once_another_has_succeeded(
    metal: Metal, ironic: Ironic, instance: str
) -> None:
    node = in_use(metal, instance, clean="fail")
    metal.poll()
    metal.release(instance)
    metal.goes(node, "deleted", "clean failed")
    assert metal.figures(node) == {GOLD: (1, 1)}
    metal.told(node)
    ironic.end_maintenance(node)
    metal.goes(node, "manage", "manageable")
    assert metal.figures(node) == {GOLD: (1, 1)}
    metal.goes(node, "provide", "available")
    metal.poll()
    assert metal.shows(node) == free()


# Deleted nodes.


def test_deleted_node_is_removed_by_the_second_listing_without_it(
    metal: Metal, ironic: Ironic
) -> None:
    node, other = metal.available(), metal.available()
    metal.sync()
    ironic.delete_node(node)
    metal.poll()
    assert metal.figures(node) == {GOLD: (1, 0)}
    [pending] = metal.sync().pending
    assert pending.uuid == node
    assert metal.figures(node) is not None
    metal.sync()
    assert metal.figures(node) is None
    assert metal.shows(other) == free()


def test_deleted_node_in_use_stays_reserved_until_its_release(
    metal: Metal, ironic: Ironic, instance: str
) -> None:
    node = in_use(metal, instance)
    metal.poll()
    metal.forget(node)
    with watching(metal.placement, node) as looks:
        for _ in range(3):
            metal.sync()
        [reason] = metal.reasons(node)
        assert "allocations" in reason
        metal.release(instance)
    assert all(look.is_full for look in looks)
    assert not any(look.is_candidate for look in looks)
    metal.sync()
    assert metal.figures(node) is None


# Several instances.


def test_two_instances_share_a_fleet_by_conductor_group(
    placement: PlacementFixture, ironic: Ironic, tmp_path: Path
) -> None:
    """A node that changes its group is removed by its instance, and then published by the other."""
    path = tmp_path / "state"
    with (
        Metal(placement, ironic, path, name="north", conductor_group="") as north,
        Metal(
            placement, ironic, path, name="south", conductor_group="South", owner=north.owner
        ) as south,
    ):
        node, other, third = (north.available() for _ in range(3))
        north.write(other, conductor_group="South")
        north.sync()
        south.sync()
        assert {one: mark(one) for one in (node, third, other)} == {
            node: "NORTH",
            third: "NORTH",
            other: "SOUTH",
        }

        north.write(node, conductor_group="South")
        [problem] = south.cycle.sync().problems
        assert isinstance(problem, NodeTaken)
        assert north.shows(node) == free()
        north.poll()
        for _ in range(2):
            north.sync()
        south.sync()
        assert mark(node) == "SOUTH"
        assert south.shows(node) == free()


@pytest.mark.parametrize("is_allocated", [False, True])
def test_two_hosts_share_a_fleet_by_conductor_group(
    is_allocated: bool,
    placement: PlacementFixture,
    ironic: Ironic,
    tmp_path: Path,
    instance: str,
) -> None:
    """A node that changes its group moves with its allocations; it is never offered twice."""
    path = tmp_path / "state"
    with (
        Metal(placement, ironic, path, host="north", conductor_group="") as north,
        Metal(
            placement, ironic, path, host="south", conductor_group="South", owner=north.owner
        ) as south,
    ):
        node, third = (north.available() for _ in range(2))
        north.sync()
        south.sync()
        if is_allocated:
            north.allocate(node, instance)
        north.write(node, conductor_group="South", maintenance=True, maintenance_reason="it moves")
        with watching(placement, node) as looks:
            north.poll()
            for _ in range(2):
                north.sync()
                south.sync()
        assert all(look.figures for look in looks)
        assert south.shows(node) == reserved("maintenance: it moves")
        south.write(node, maintenance=False, maintenance_reason=None)
        north.sync()
        south.poll()
        assert south.shows(node) == free()
        assert north.shows(third) == free()
        assert bool(everything()[node]["allocations"]) is is_allocated


def mark(node: str) -> str:
    """Return the name of the driver instance that publishes the node."""
    prefix = "CUSTOM_WHARFINGER_"
    [found] = [trait for trait in everything()[node]["traits"] if trait.startswith(prefix)]
    return str(found).removeprefix(prefix)
