"""Log levels for libraries that would log too much."""

from typing import Final

#: Levels in the format of oslo.log's option default_log_levels, unless an operator sets others.
QUIET_LIBRARIES: Final = (
    # The embedded Placement logs each request at INFO, and warns of each full reservation of a
    # provider with allocations. Placement and oslo.db log tracebacks of errors that we log, too.
    "placement=CRITICAL",
    "oslo_db=CRITICAL",
    # stevedore logs a plugin that cannot be loaded.
    "stevedore=CRITICAL",
    # keystoneauth warns if Keystone does not answer, which we log as an error, too.
    "keystoneauth.identity=ERROR",
    # urllib3 warns when it closes surplus connections of driver instances that run concurrently.
    "urllib3.connectionpool=ERROR",
    # alembic logs its start at INFO.
    "alembic=WARNING",
)
#: Levels for libraries that log whole requests or SQL statements at INFO and DEBUG.
LOUD_LIBRARIES: Final = (
    "keystoneauth=WARNING",
    "openstack=WARNING",
    "requests=WARNING",
    "sqlalchemy=WARNING",
    "urllib3=WARNING",
)
