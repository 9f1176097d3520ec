"""Rules on the versions of objects that drivers and the framework exchange (WHF-211 and 212)."""

from collections.abc import Iterator
from typing import Any

from oslo_utils import versionutils

from wharfinger.conformance.exceptions import Violation
from wharfinger.conformance.rules import Level, rule
from wharfinger.conformance.subject import Subject, listed, tree_of, update
from wharfinger.driver import ComputeDriver
from wharfinger.objects import ComputeNode, Flavor, Migration, Service, WharfingerObject
from wharfinger.objects.field_types import now


@rule(
    "WHF-211",
    Level.MUST,
    "Objects that the driver returns set no field that is newer than their declared version. The "
    "driver accepts objects without the fields that are newer than the declared version.",
    "Old and new services run side by side. The version of an object says which fields it has.",
    after=("WHF-202", "WHF-203"),
)
def versions_kept(subject: Subject) -> None:
    """Check that objects keep to the versions that the driver declares."""
    declared = subject.kind.object_versions
    driver = subject.load().driver
    service = Service(host=driver.host, binary="wharfinger", version=1)
    driver.init_host(_at_version(service, declared.get("Service")))
    try:
        for node in listed(driver).nodes:
            resource = driver.get_available_resource(node.name)
            _check_fields(resource, declared)
            migration = _at_version(
                _migration_away(driver.host, node.name), declared.get("Migration")
            )
            update(driver, tree_of(node.name, node.uuid), node.name, migrations=[migration])
    finally:
        driver.cleanup_host()


@rule(
    "WHF-212",
    Level.SHOULD,
    "The driver declares the version of each kind of object that it returns (object_versions).",
    "With the declaration, the framework reports a wrong version when it loads the driver, not "
    "when it uses an object.",
    after=("WHF-202",),
)
def versions_declared(subject: Subject) -> None:
    """Check that the driver declares the versions of the objects that it returns."""
    declared = subject.kind.object_versions
    if subject.kind.get_available_resource is ComputeDriver.get_available_resource:
        return
    with subject.driver() as driver:
        resources = [driver.get_available_resource(node.name) for node in listed(driver).nodes]
    for kind in sorted({kind for one in resources for kind in _kinds(one)} - declared.keys()):
        raise Violation(
            f"the driver returns a {kind}, but its object_versions has no version of {kind}",
            f"an entry of object_versions such as {kind!r}: '1.0'",
        )


def _migration_away(host: str, node: str) -> Migration:
    flavor = Flavor(flavorid="conformance", name="conformance", vcpus=1, memory_mb=1)
    return Migration(
        uuid="a3f0c2fe-55d8-4d4e-8d85-8a1d3a7dbb67",
        instance_uuid="0d5fdc3c-a3d3-4cd9-8ed6-6a3a0b2e7a55",
        migration_type="migration",
        status="accepted",
        source_compute=host,
        source_node=node,
        dest_compute=None,
        dest_node=None,
        old_flavor=flavor,
        new_flavor=flavor,
        created_at=now(),
        updated_at=None,
    )


def _at_version(given: WharfingerObject, version: str | None) -> Any:
    primitive = given.obj_to_primitive(target_version=version)
    return type(given).obj_from_primitive(primitive)


def _kinds(resource: ComputeNode) -> Iterator[str]:
    yield resource.obj_name()
    for field in resource.obj_what_changed():
        value = getattr(resource, field)
        if isinstance(value, WharfingerObject):
            yield value.obj_name()
            yield from (one.obj_name() for one in getattr(value, "objects", ())[:1])


def _check_fields(resource: ComputeNode, declared: Any) -> None:
    version = declared.get(resource.obj_name())
    if version is None:
        return
    target = versionutils.convert_version_to_tuple(version)
    for step in resource.HISTORY:
        if versionutils.convert_version_to_tuple(step.version) > target:
            for field in step.fields:
                if field in resource:
                    raise Violation(
                        f"the driver's object_versions declares version {version} of "
                        f"{resource.obj_name()}, but the driver sets the newer field {field}",
                        f"{field} not set, or version {step.version} in object_versions",
                    )
