"""Whether a provider may be published as a driver wants it; if not, why not."""

from collections.abc import Collection, Mapping
from typing import Final

from wharfinger.exceptions import (
    InvalidTree,
    NameTaken,
    OwnershipConflict,
    ProviderMissing,
    WharfingerError,
)
from wharfinger.providers import ownership
from wharfinger.providers.ownership import Publisher, Standing
from wharfinger.providers.provider import DesiredProvider, Provider, PublishingMode
from wharfinger.providers.provider_record import Record

_KEEP_APART: Final = "Publish under another name, or remove the other's provider first."


def problem(
    publisher: Publisher,
    wanted: DesiredProvider,
    live: Provider | None,
    record: Record,
    *,
    is_allocated: bool,
    elsewhere: Mapping[str, Provider],
    dropped: Collection[str] = frozenset(),
) -> WharfingerError | None:
    """What keeps a provider from being published; None where nothing does.

    ``is_allocated`` where anything is allocated from it, and its owner is to change.
    ``elsewhere`` are providers in other trees, by name. ``dropped`` are classes that its driver has
    moved away from it.
    """
    return (
        _absence(publisher, wanted, elsewhere)
        if live is None
        else _ownership(publisher, wanted, live, record, is_allocated=is_allocated, dropped=dropped)
    ) or _naming(publisher, wanted, live, elsewhere)


def _absence(
    publisher: Publisher, wanted: DesiredProvider, elsewhere: Mapping[str, Provider]
) -> WharfingerError | None:
    """Return the problem that keeps a provider from being created; None without one.

    Placement may have a provider of its uuid that the listing by our trait does not show.
    """
    mine = wanted.provider
    if wanted.mode is not PublishingMode.OWN:
        return ProviderMissing(provider=mine.name, uuid=mine.uuid, instance=publisher.instance)
    there = elsewhere.get(mine.name)
    mark = ownership.instance_trait(publisher.instance)
    if there is None or there.uuid != mine.uuid or mark in there.traits:
        return None
    others = ownership.owners(there.traits) - {publisher.owner}
    return _conflict(
        publisher,
        there,
        other=", ".join(sorted(others)) or _unproven(publisher, there),
        remedy=_KEEP_APART if others else _adopt(publisher, there),
    )


def _naming(
    publisher: Publisher,
    wanted: DesiredProvider,
    live: Provider | None,
    elsewhere: Mapping[str, Provider],
) -> WharfingerError | None:
    """What keeps it from getting its name."""
    mine = wanted.provider
    taken = elsewhere.get(mine.name)
    if taken is None or taken.uuid == mine.uuid or (live and live.name == mine.name):
        return None
    return NameTaken(
        provider=mine.name,
        instance=publisher.instance,
        uuid=taken.uuid,
        other=", ".join(sorted(ownership.owners(taken.traits))) or "nobody known",
        root_uuid=taken.root_uuid,
    )


def _ownership(
    publisher: Publisher,
    wanted: DesiredProvider,
    live: Provider,
    record: Record,
    *,
    is_allocated: bool,
    dropped: Collection[str],
) -> WharfingerError | None:
    """What keeps it from being written: another owner, or nobody who is known."""
    owners = ownership.owners(live.traits)
    other = ", ".join(sorted(owners - {publisher.owner}))
    match ownership.standing(live, publisher, record):
        case Standing.OURS_BEFORE if is_allocated:
            other += ", as which this instance published it before"
            remedy = (
                "It has allocations, and changes its owner when none is left. Wait for that, or "
                "give the instance its former owner again."
            )
        case Standing.FOREIGN:
            if publisher.owner in owners:
                remedy = "It has the traits of both: take one of them from it."
            elif owners <= ownership.owners(record.claimed_traits):
                remedy = (
                    "This instance tagged it so before: give the instance that owner again, or "
                    "take the trait from the provider."
                )
            else:
                remedy = _KEEP_APART
        case _ if wanted.mode is PublishingMode.OVERLAY:
            return None
        case Standing.OURS if not _is_overlaid(record):
            return None
        case Standing.OURS | Standing.UNPROVEN:
            if ownership.adopts(publisher, live, wanted, dropped):
                return None
            other = _unproven(publisher, live)
            remedy = _adopt(publisher, live)
            if others := ownership.other_instances(live.traits, publisher):
                other = f"another driver instance ({', '.join(sorted(others))})"
                remedy = (
                    "Two instances cannot publish one provider; one of them can overlay it. If "
                    "this is that instance under a new name, replace that trait by "
                    f"{ownership.instance_trait(publisher.instance)} on its providers."
                )
            elif obstacles := list(ownership.obstacles(live, wanted, dropped)):
                remedy = f"It cannot be adopted: {'; '.join(obstacles)}. {_KEEP_APART}"
        case _:
            return None
    return _conflict(publisher, live, other=other, remedy=remedy)


def _is_overlaid(record: Record) -> bool:
    """Return whether this instance has only overlaid a provider that another program created."""
    return record.applied is not None and record.mode is PublishingMode.OVERLAY


def _unproven(publisher: Publisher, live: Provider) -> str:
    """Name the owner of a provider that has no trait of another owner."""
    if publisher.owner in live.traits:
        return f"another program, which publishes as {publisher.owner} too"
    return "an unknown program (it has no owner trait)"


def _adopt(publisher: Publisher, live: Provider) -> str:
    return (
        "Neither the trait of this instance nor a record shows that this instance created it. If "
        f"no other program publishes it any more, adopt it: `{_command(publisher, live)}`."
    )


def _command(publisher: Publisher, live: Provider) -> str:
    return f"wharfinger provider adopt {live.uuid} --instance {publisher.instance}"


def _conflict(
    publisher: Publisher, live: Provider, *, other: str, remedy: str
) -> OwnershipConflict:
    return OwnershipConflict(
        provider=live.name,
        uuid=live.uuid,
        owner=publisher.owner,
        other=other,
        instance=publisher.instance,
        remedy=remedy,
    )


def misuse(
    publisher: Publisher, wanted: DesiredProvider, live: Provider | None
) -> InvalidTree | None:
    """What a driver, or its configuration, must not do; it keeps the whole tree as it is."""
    mine = wanted.provider
    there = live.inventories if live and wanted.mode is PublishingMode.OVERLAY else {}
    added = mine.traits - publisher.traits - (live.traits if live else frozenset())
    marks = ownership.owners(added) | set(filter(ownership.is_instance_trait, added))
    if marks:
        reason = (
            f"the driver added {', '.join(sorted(marks))}; these traits are the framework's to "
            f"add, and this instance's are {', '.join(sorted(publisher.traits))}"
        )
    elif (
        mine.parent_uuid is None
        and "VCPU" in {**mine.inventories, **there}
        and publisher.owner != ownership.NOVA
    ):
        reason = (
            f"a root with VCPU is scheduled to by nova and has to be {ownership.NOVA}'s; this "
            f"instance publishes as {publisher.owner}. Give the instance that owner, or leave the "
            "root to nova"
        )
    else:
        return None
    return InvalidTree(driver=publisher.instance, provider=mine.name, problem=reason)
