"""A move of an instance from one node to another."""

from wharfinger.objects.base import WharfingerObject, fields, register


@register
class Migration(WharfingerObject):
    """A move in progress: its source still counts until it is confirmed.

    - ``uuid``: also the consumer that holds the source's allocation.
    - ``instance_uuid``: the instance that moves.
    - ``source_node``, ``dest_node``: ``hypervisor_hostname`` of the two ends.
    - ``status``: where it has got to.
    """

    # 1.0: first version
    VERSION = "1.0"
    uuid: str
    instance_uuid: str
    source_node: str
    dest_node: str
    status: str
    fields = {
        "uuid": fields.UUIDField(),
        "instance_uuid": fields.UUIDField(),
        "source_node": fields.StringField(),
        "dest_node": fields.StringField(),
        "status": fields.StringField(),
    }
