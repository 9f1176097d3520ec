"""Instances and moves that go along when a node changes its name, or its host."""

from collections.abc import Iterable, Mapping
from typing import Any

from wharfinger.objects import Context, Instance, InstanceList, Migration, MigrationList

#: Where an object says which host and node it is about.
_ENDS = (("source_compute", "source_node"), ("dest_compute", "dest_node"))


def follow_names(context: Context, host: str, names: Mapping[str, str]) -> None:
    """Have what is on nodes of a host, by their old names, be on them under their new ones.

    Raises ObjectError.
    """
    _follow(context, host, {old: (host, new) for old, new in names.items()})


def follow_host(context: Context, before: str, after: str, names: Iterable[str]) -> None:
    """Have what is on these nodes be where they are now: on another host. Raises ObjectError."""
    _follow(context, before, {name: (after, name) for name in names})


def _follow(context: Context, host: str, places: Mapping[str, tuple[str, str]]) -> None:
    instances = InstanceList.get_by_filters(context, host=host, node=list(places))
    for instance in instances:
        _place(instance, ("host", "node"), host, places)
    instances.save()
    migrations = MigrationList.get_in_progress_by_host(context, host)
    for migration in migrations:
        for end in _ENDS:
            _place(migration, end, host, places)
    migrations.save()


def _place(
    one: Instance | Migration,
    end: tuple[str, str],
    host: str,
    places: Mapping[str, tuple[str, str]],
) -> None:
    found: list[Any] = [getattr(one, name) if name in one else None for name in end]
    if found[0] == host and found[1] in places:
        for name, value in zip(end, places[found[1]], strict=True):
            if getattr(one, name) != value:
                setattr(one, name, value)
