"""Texts of the reasons that exclude providers from a request."""

from datetime import datetime

from wharfinger.console import reservations
from wharfinger.scheduling.explanation import (
    Belonging,
    Held,
    Lacking,
    Misfit,
    Outside,
    Reason,
    Short,
    Small,
    Step,
    Traited,
    Unknown,
    Untraited,
)
from wharfinger.scheduling.provider_details import Reserved


def words(reason: Reason, now: datetime) -> str:
    """Return the text of one reason; control characters are not escaped yet."""
    match reason:
        case Lacking(classes=classes):
            text = f"has no {' and no '.join(classes)}"
        case Unknown():
            text = "was not examined"
        case Outside(step=step):
            text = f"is not in the {'tree' if step is Step.TREE else 'aggregates'}"
        case Belonging(owners=owners):
            text = f"belongs to {' and '.join(owners) or 'no owner'}"
        case Untraited(choice=choice):
            text = f"lacks {' or '.join(choice)}"
        case Traited(trait=trait):
            text = f"has {trait}"
        case Held():
            text = _held(reason, now)
        case Short():
            text = _short(reason)
        case Small(resource_class=kind, asked=asked, most=most):
            text = f"has {most} {kind} at most, {asked} requested"
        case Misfit():
            text = _misfit(reason)
    return text


def holder(one: Reserved, now: datetime) -> str:
    """Return the reason, age and holder of a reservation."""
    return f"{one.reason}, {reservations.age(one.since, now)} ({one.holder})"


def _short(reason: Short) -> str:
    kind, asked = reason.resource_class, reason.asked
    if reason.used is None:
        return f"{kind} is used up"
    return f"{reason.used} of {reason.capacity} {kind} used, {asked} requested"


def _held(reason: Held, now: datetime) -> str:
    if not reason.by:
        return f"{reason.resource_class} is reserved by other programs"
    return f"reserved: {'; '.join(holder(one, now) for one in reason.by)}"


def _misfit(reason: Misfit) -> str:
    kind, asked = reason.resource_class, reason.asked
    if not reason.figure:
        return f"{kind}={asked} does not fit its units"
    return f"{reason.figure} of {kind} is {reason.value}, {asked} requested"
