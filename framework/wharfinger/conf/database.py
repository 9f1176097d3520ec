"""Options in [database], most of them of oslo.db."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isnan
from typing import Any, Final, Self

from oslo_config import cfg
from oslo_db.options import database_opts

from wharfinger.conf.option_reading import read_options
from wharfinger.exceptions import ConfigurationError
from wharfinger.masking import MASK

GROUP: Final = "database"

_POOL: Final = (
    "max_pool_size",
    "max_overflow",
    "pool_timeout",
    "connection_recycle_time",
    "mysql_sql_mode",
)

OPTIONS: Final[tuple[cfg.Opt, ...]] = (
    cfg.StrOpt(
        "connection",
        secret=True,
        help="URL of the database for SQLAlchemy: postgresql+psycopg://user:password@host/name, "
        "or mysql+pymysql://user:password@host/name. This database must exist; run `wharfinger db "
        "upgrade` to create and upgrade its tables. Default: the SQLite file wharfinger.sqlite in "
        "state_path, which Wharfinger creates and upgrades itself.",
    ),
    cfg.FloatOpt(
        "timeout",
        default=30,
        min=1,
        max=2**31 - 1,
        help="Seconds that a transaction on PostgreSQL or MySQL may take, including connecting, "
        "waiting for locks, and reading answers; a longer one fails. No effect with SQLite, where "
        "a transaction waits up to 30 seconds for another writer.",
    ),
    *(option for option in database_opts if option.dest in _POOL),
)

#: The supported kinds of databases, each with the remedy if its driver is not installed.
_KINDS: Final = {
    "sqlite": "write sqlite:////path",
    "postgresql": "write postgresql+psycopg://..., and install wharfinger[postgresql]",
    "mysql": "write mysql+pymysql://..., and install wharfinger[mysql]",
    "mariadb": "write mariadb+pymysql://..., and install wharfinger[mysql]",
}


@dataclass(frozen=True, slots=True)
class DatabaseSection:
    """The validated options in [database]."""

    #: None for the SQLite file in state_path.
    connection: str | None = field(repr=False)
    #: The options of oslo.db.
    options: Mapping[str, Any]
    #: In seconds.
    timeout: float = 30.0

    @classmethod
    def read(cls, conf: cfg.ConfigOpts) -> Self:
        """Read and check the section. Raises ConfigurationError."""
        values = read_options(conf, GROUP, OPTIONS)
        connection = values.pop("connection") or None
        if connection is not None:
            _check(connection)
        timeout = values.pop("timeout")
        if isnan(timeout):
            raise ConfigurationError(
                section=GROUP,
                key="timeout",
                value=timeout,
                problem="the timeout is not a number.",
                remedy="Set a number of seconds, 1 or above.",
            )
        return cls(connection, values, timeout)


_ABSOLUTE: Final = "Use an absolute path: sqlite:////path."


def _check(connection: str) -> None:
    # Slow to import, and not needed for the file in state_path.
    from sqlalchemy.engine import make_url  # noqa: PLC0415
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError  # noqa: PLC0415

    try:
        url = make_url(connection)
    except (ArgumentError, ValueError):
        # Do not show the cause, whose text may contain a part of the password.
        raise _wrong("this is not a URL.") from None
    kind = url.get_backend_name()
    if kind not in _KINDS:
        raise _wrong(f"{kind} is not a supported kind of database.")
    try:
        url.get_dialect().import_dbapi()
    except NoSuchModuleError as error:
        raise _wrong(f"there is no driver {url.drivername}.") from error
    except ImportError as error:
        raise _wrong(f"{error}.", f"Install it; or {_KINDS[kind]}.") from error
    if kind == "sqlite" and not (url.database or "").startswith("/"):
        raise _wrong("it is not the absolute path of a file.", _ABSOLUTE)


def _wrong(
    problem: str,
    remedy: str = "Start it with postgresql+psycopg:// or mysql+pymysql://, and add the user, a "
    "colon, the password, @, the host, / and the name. Write special characters of a password as "
    "%40 and the like.",
) -> ConfigurationError:
    return ConfigurationError(
        section=GROUP, key="connection", value=MASK, problem=problem, remedy=remedy
    )
