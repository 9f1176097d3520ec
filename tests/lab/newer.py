"""Versioned objects of a later release, for a process that is upgraded before others.

Import this module only in that process. It registers newer versions of two objects, which the
process uses from then on.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from wharfinger import objects
from wharfinger.objects import Context, field_types
from wharfinger.objects.base import Step, register

RACK = "R7"


@register
class ComputeNode(objects.ComputeNode):
    """A ComputeNode with a new field for its rack."""

    HISTORY = (  # type: ignore[assignment]
        *objects.ComputeNode.HISTORY,
        Step("1.2", "the rack", ("rack",)),
    )
    rack: str
    fields = {"rack": field_types.name(default=RACK)}

    @classmethod
    def _from_row(cls, context: Context, row: Mapping[str, Any]) -> Self:
        self = super()._from_row(context, row)
        self.rack = RACK
        self.obj_reset_changes(["rack"])
        return self


@register
class ComputeNodeList(objects.ComputeNodeList):
    """A ComputeNodeList of nodes with the new field."""

    HISTORY = (  # type: ignore[assignment]
        *objects.ComputeNodeList.HISTORY,
        Step("1.4", "ComputeNode 1.2"),
    )
    KIND = ComputeNode
    child_versions: ClassVar[dict[str, str]] = {
        **objects.ComputeNodeList.child_versions,
        "1.4": "1.2",
    }
