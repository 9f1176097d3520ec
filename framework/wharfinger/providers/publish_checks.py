"""Check whether a driver instance may publish a provider."""

from datetime import UTC, datetime
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
from wharfinger.providers.plan_draft import TreeDraft
from wharfinger.providers.provider import DesiredProvider, Provider, PublishingMode, Record

_KEEP_APART: Final = "Publish under another name, or remove that provider first."


def problem(
    draft: TreeDraft, wanted: DesiredProvider, proven_record: Record
) -> WharfingerError | None:
    """Return the error that prevents the publishing of a provider, or None."""
    mine, publisher = wanted.provider, draft.facts.publisher
    live, named = draft.live.get(mine.uuid), draft.facts.name_owners.get(mine.name)
    if live is not None:
        if conflict := _ownership(draft, wanted, live, proven_record):
            return conflict
    elif wanted.mode is not PublishingMode.OWN:
        missing = ""
        if absence := proven_record.absence:
            moment = datetime.fromtimestamp(absence.since, UTC)
            missing = f" since {moment.isoformat(timespec='seconds')}"
        return ProviderMissing(
            provider=mine.name, uuid=mine.uuid, instance=publisher.instance, missing=missing
        )
    if named is None or (live and live.name == mine.name):
        return None
    others = ", ".join(sorted(ownership.owners(named.traits)))
    if named.uuid != mine.uuid:
        return NameTaken(
            provider=mine.name,
            instance=publisher.instance,
            uuid=named.uuid,
            other=others or "an unknown program",
            root_uuid=named.root_uuid,
        )
    if live or ownership.instance_trait(publisher.instance) in named.traits:
        return None
    # A provider with this uuid exists outside of our list, which has only our instance trait.
    others = ", ".join(sorted(ownership.owners(named.traits) - {publisher.owner}))
    return _conflict(
        publisher,
        named,
        other=others or _unproven(publisher, named),
        remedy=_KEEP_APART if others else _adopt(publisher, named),
    )


def _ownership(
    draft: TreeDraft, wanted: DesiredProvider, live: Provider, record: Record
) -> OwnershipConflict | None:
    publisher, dropped = draft.facts.publisher, draft.dropped.get(live.uuid, ())
    owners = ownership.owners(live.traits)
    other = ", ".join(sorted(owners - {publisher.owner}))
    match ownership.standing(live, publisher, record):
        case Standing.OURS if other and live.uuid in draft.facts.allocated:
            return _conflict(
                publisher,
                live,
                other=other,
                problem=f"driver instance {publisher.instance} published the provider as {other} "
                f"before, and now publishes as {publisher.owner}, but the provider has "
                "allocations.",
                remedy="The provider changes its owner when it has no more allocations. Wait for "
                f"that, or set the owner option of the driver instance to {other} again.",
            )
        case Standing.FOREIGN:
            if publisher.owner in owners:
                remedy = (
                    "The provider has both owner traits. If it belongs to this instance, remove "
                    f"{other} from it."
                )
            elif owners <= ownership.owners(record.claimed_traits):
                remedy = (
                    "This instance had that owner before: set its owner option back, or remove the "
                    "trait from the provider."
                )
            else:
                remedy = _KEEP_APART
        case _ if not ownership.is_adoption(publisher, live, wanted, record):
            return None
        case _ if ownership.adopts(publisher, live, wanted, dropped):
            return None
        case _:
            other = _unproven(publisher, live)
            remedy = _adopt(publisher, live)
            if others := ownership.other_instances(live.traits, publisher):
                other = f"another driver instance ({', '.join(sorted(others))})"
                remedy = (
                    "Two instances cannot publish one provider, but one of them can overlay it. If "
                    f"{publisher.instance} is the new name of that instance, replace that trait by "
                    f"{ownership.instance_trait(publisher.instance)} on its providers."
                )
            elif obstacles := list(ownership.obstacles(live, wanted, dropped)):
                remedy = f"The provider cannot be adopted: {'; '.join(obstacles)}. {_KEEP_APART}"
    return _conflict(publisher, live, other=other, remedy=remedy)


def _unproven(publisher: Publisher, live: Provider) -> str:
    if publisher.owner in live.traits:
        return f"another program that also publishes as {publisher.owner}"
    return "an unknown program (it has no owner trait)"


def _adopt(publisher: Publisher, live: Provider) -> str:
    return (
        "Neither the trait of this driver instance nor a record shows that the instance created "
        "the provider. If no other program publishes it any more, adopt it: "
        f"`wharfinger provider adopt {live.uuid} --instance {publisher.instance}`."
    )


def _conflict(
    publisher: Publisher, live: Provider, *, other: str, remedy: str, problem: str = ""
) -> OwnershipConflict:
    return OwnershipConflict(
        provider=live.name,
        uuid=live.uuid,
        owner=publisher.owner,
        other=other,
        instance=publisher.instance,
        problem=problem
        or f"it belongs to {other}, not to driver instance {publisher.instance}, which publishes "
        f"as {publisher.owner}.",
        remedy=remedy,
    )


def misuse(
    publisher: Publisher, wanted: DesiredProvider, live: Provider | None
) -> InvalidTree | None:
    """Return an error if the driver breaks the rules of owner traits, or None."""
    mine = wanted.provider
    there = live.inventories if live and wanted.mode is PublishingMode.OVERLAY else {}
    added = mine.traits - publisher.traits - (live.traits if live else frozenset())
    marks = ownership.owners(added) | set(filter(ownership.is_instance_trait, added))
    if marks:
        reason = (
            f"the driver added {', '.join(sorted(marks))}, but only the framework may add "
            "the traits of owners and driver instances (for this instance: "
            f"{', '.join(sorted(publisher.traits))})"
        )
    elif (
        mine.parent_uuid is None
        and "VCPU" in {**mine.inventories, **there}
        and publisher.owner != ownership.NOVA
    ):
        reason = (
            f"nova schedules to roots with VCPU, so they need {ownership.NOVA}, but this instance "
            f"publishes as {publisher.owner}. Set its owner option to {ownership.NOVA}, or leave "
            "the root to nova"
        )
    else:
        return None
    return InvalidTree(driver=publisher.instance, provider=mine.name, problem=reason)
