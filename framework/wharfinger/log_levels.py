"""Levels of the loggers of libraries, which would repeat our own errors or log whole requests."""

from typing import Final

#: As oslo.log's option default_log_levels has them; wanted unless an operator asks for all.
QUIET_LIBRARIES: Final = (
    # The embedded Placement logs each request at INFO, and warns of each full reservation over an
    # allocation; it and oslo.db log a traceback of what is raised and logged as our own error.
    "placement=CRITICAL",
    "oslo_db=CRITICAL",
    # stevedore logs a plugin that cannot be loaded.
    "stevedore=CRITICAL",
    # keystoneauth warns of a Keystone that does not answer, which is logged as our own error.
    "keystoneauth.identity=ERROR",
    # urllib3 warns where it closes connections: driver instances publish at the same time.
    "urllib3.connectionpool=ERROR",
    # alembic logs its own set-up at INFO.
    "alembic=WARNING",
)
#: Libraries whose INFO and DEBUG have whole requests and statements.
LOUD_LIBRARIES: Final = (
    "keystoneauth=WARNING",
    "openstack=WARNING",
    "requests=WARNING",
    "sqlalchemy=WARNING",
    "urllib3=WARNING",
)
