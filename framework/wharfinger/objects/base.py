"""The base of all versioned objects.

oslo.versionedobjects reaches oslo.service by way of oslo.messaging, and oslo.service
takes eventlet unless it is told otherwise first: hence the lines before the imports.
"""

import warnings

with warnings.catch_warnings():
    # futurist, below oslo.service, imports eventlet if it is there, to warn of it.
    warnings.filterwarnings("ignore", message="\nEventlet is deprecated")
    import oslo_service.backend

    oslo_service.backend.init_backend(oslo_service.backend.BackendType.THREADING)

from typing import Final

from oslo_versionedobjects import base, fields

#: Registers a class under its name and version; a decorator.
register: Final = base.VersionedObjectRegistry.register


class WharfingerObject(base.VersionedObject):
    """A versioned object of this project.

    Each class lists in a comment what every VERSION brought. Annotations beside
    ``fields`` give the attributes their types.
    """

    OBJ_SERIAL_NAMESPACE = "wharfinger_object"
    OBJ_PROJECT_NAMESPACE = "wharfinger"


__all__ = ["WharfingerObject", "base", "fields", "register"]
