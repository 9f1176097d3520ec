"""The database rows that are stored with the plan of a tree."""

from dataclasses import dataclass
from typing import Any

from tests.unit.reconcile.states import child, published, root, state_of
from wharfinger.providers.plan import Plan, TreePlan
from wharfinger.reconcile.node_list import NodeList
from wharfinger.reconcile.tree_write import tree_writes
from wharfinger.tracker.node_rows import Node


@dataclass
class ChangedRow:
    uuid: str
    is_renamed: bool = False


class Rows:
    """Rows of nodes whose figures have changed."""

    def changed_row(self, node: Node, _root: object) -> ChangedRow:
        return ChangedRow(node.uuid)


def test_tree_writes_of_a_tree_have_its_node_row_only_with_the_record_of_the_root() -> None:
    node, rows = root("n"), Rows()
    gpu = child("gpu", node)
    records = published(node, gpu)
    nodes = NodeList(nodes=(Node("n", node.uuid),))
    state = state_of(node, gpu, records=records, roots={"n": node.uuid}, nodes=nodes)

    def changed(*uuids: str) -> list[str]:
        tree = TreePlan(root_uuid=node.uuid, records={uuid: records[uuid] for uuid in uuids})
        fake: Any = rows
        [write] = tree_writes(state, Plan(trees=(tree,)), fake)
        return [row.uuid for row in write.result_rows.changed_nodes]

    assert changed(gpu.uuid) == []
    assert changed(node.uuid, gpu.uuid) == [node.uuid]
