"""The service that runs a driver instance."""

from typing import Final

from wharfinger.objects.base import WharfingerObject, fields, register

#: Rises with each step that others have to know of before they rely on it.
SERVICE_VERSION: Final = 1


@register
class Service(WharfingerObject):
    """A process that publishes for driver instances on a host.

    - ``host``: the host's name, as configured.
    - ``binary``: the program's name.
    - ``version``: SERVICE_VERSION of its code.
    """

    # 1.0: first version
    VERSION = "1.0"
    host: str
    binary: str
    version: int
    fields = {
        "host": fields.StringField(),
        "binary": fields.StringField(),
        "version": fields.NonNegativeIntegerField(default=SERVICE_VERSION),
    }
