"""Make the databases and the Placement of a run faster."""

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import sqlalchemy
from sqlalchemy import Pool, QueuePool, event


@contextmanager
def staying_open() -> Iterator[list[Pool]]:
    """Let new SQLite engines of oslo.db keep connections open; yield their pools."""
    pools: list[Pool] = []

    class Unlimited(QueuePool):
        def __init__(self, creator: Any, **options: Any) -> None:
            super().__init__(creator, **{**options, "pool_size": 0})
            pools.append(self)

    with _replaced(sqlalchemy.pool, "NullPool", Unlimited):
        yield pools


@contextmanager
def without_sync() -> Iterator[None]:
    """In the block, keep SQLite from waiting for the disk."""

    def turn_off_sync(connection: Any, *_: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA synchronous=OFF").close()

    event.listen(Pool, "checkout", turn_off_sync)
    try:
        yield
    finally:
        event.remove(Pool, "checkout", turn_off_sync)


@contextmanager
def quick_placement() -> Iterator[None]:
    """In the block, make the embedded Placement faster with caches."""
    # Both are installed only with the extra "conformance".
    from jsonschema.validators import validator_for  # type: ignore[import-untyped]  # noqa: PLC0415
    from placement import policy  # noqa: PLC0415

    validator = validator_for({})
    check, checked = validator.check_schema, dict[int, object]()

    def check_once(schema: object) -> None:
        if id(schema) not in checked:
            check(schema)
            checked[id(schema)] = schema

    alias, known = sqlalchemy.alias, dict[tuple[Any, ...], Any]()

    def alias_once(selectable: Any, name: str | None = None, flat: bool = False) -> Any:
        if name is None or not isinstance(selectable, sqlalchemy.Table):
            return alias(selectable, name, flat)
        key = (selectable, name, flat)
        return known[key] if key in known else known.setdefault(key, alias(*key))

    authorize, allowed = policy.authorize, dict[tuple[Any, ...], Any]()

    def authorize_once(context: Any, action: str, target: Any, do_raise: bool = True) -> Any:
        caller = (*sorted(context.roles), context.project_id, context.user_id)
        key = (action, *sorted(target.items()), *caller)
        if key not in allowed:
            answer = authorize(context, action, target, do_raise)
            if not answer:
                return answer
            allowed[key] = answer
        return allowed[key]

    with ExitStack() as stack:
        stack.enter_context(_replaced(validator, "check_schema", staticmethod(check_once)))
        stack.enter_context(_replaced(sqlalchemy, "alias", alias_once))
        stack.enter_context(_replaced(policy, "authorize", authorize_once))
        yield


@contextmanager
def _replaced(owner: Any, name: str, value: object) -> Iterator[None]:
    before = vars(owner)[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
