"""Save instances and migrations in one transaction."""

from collections.abc import Iterable
from typing import ClassVar, Final

from wharfinger.db.row_statements import Change, Rows
from wharfinger.exceptions import ConcurrentSave, ObjectNotFound
from wharfinger.objects import base, field_base
from wharfinger.objects.base import Step, WharfingerObject, register
from wharfinger.objects.compute_node import ComputeNode
from wharfinger.objects.instance import Instance
from wharfinger.objects.migration import Migration
from wharfinger.objects.persistence import object_errors
from wharfinger.objects.provider_record import ProviderRecord

#: The tables in the order of their locks, which is also that of Takeover.
_TABLES: Final = tuple(kind.TABLE for kind in (ComputeNode, ProviderRecord, Instance, Migration))


@register
class NodeClaim(WharfingerObject):
    """Changed instances and migrations, saved in one transaction.

    - ``node``: a node that has to exist, or else nothing is saved; None for no such condition.
      The node has no revision if another program publishes it.
    - ``instances``, ``migrations``: the objects to save.
    """

    HISTORY = (Step("1.0", "first version"),)
    node: ComputeNode | None
    instances: list[Instance]
    migrations: list[Migration]
    fields = {
        "node": field_base.ObjectField("ComputeNode", nullable=True),
        "instances": field_base.ListOfObjectsField("Instance", default=[]),
        "migrations": field_base.ListOfObjectsField("Migration", default=[]),
    }
    obj_relationships: ClassVar[dict[str, list[tuple[str, str]]]] = {
        "node": [("1.0", "1.1")],
        "instances": [("1.0", "1.2")],
        "migrations": [("1.0", "1.1")],
    }

    @base.remotable
    def save(self) -> None:
        """Save instances and migrations; raises ConcurrentSave, ObjectNotFound."""
        self.obj_set_defaults()
        self._context.db.write(_TABLES, self._write)
        for one in (*self.instances, *self.migrations):
            if one.obj_what_changed():
                one._saved()
        self.obj_reset_changes()

    def _write(self, nodes: Rows, records: Rows, instances: Rows, migrations: Rows) -> None:
        if self.node is not None:
            self._hold_node(self.node, nodes, records)
        with object_errors(Instance):
            instances.update(Instance.KEY, _changes(self.instances))
        with object_errors(Migration):
            migrations.update(Migration.KEY, _changes(self.migrations))

    def _hold_node(self, node: ComputeNode, nodes: Rows, records: Rows) -> None:
        place = {"host": node.host, "hypervisor_hostname": node.hypervisor_hostname}
        if "revision" in node:
            held = nodes.hold(ComputeNode.KEY, [node.uuid], {}, list(place))
            if node.uuid in held and not place.items() <= held[node.uuid].items():
                raise ConcurrentSave(kind=ComputeNode.obj_name(), keys=[node.uuid])
        else:  # a node of another program has no row of its own
            overlaid = {"host": node.host, "mode": "overlay"}
            held = records.hold(ProviderRecord.KEY, [node.uuid], overlaid, [])
        if node.uuid not in held:
            raise ObjectNotFound(
                kind=ComputeNode.obj_name(), key=f"{node.hypervisor_hostname} on host {node.host}"
            )


def _changes(objects: Iterable[Instance | Migration]) -> list[Change]:
    return [one._change() for one in objects if one.obj_what_changed()]
