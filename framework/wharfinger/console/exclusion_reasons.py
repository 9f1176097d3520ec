"""Texts for the reasons that exclude providers from a request, and for their remedies."""

from datetime import datetime

import os_traits

from wharfinger.console import reservations
from wharfinger.scheduling.explanation import (
    Belonging,
    Held,
    Misfit,
    Outside,
    Reason,
    Short,
    Small,
    Step,
    Traited,
    Untraited,
)


def words(reason: Reason, now: datetime) -> str:
    """Return the text for a reason; control characters are not escaped yet."""
    match reason:
        case Outside(step=Step.TREE):
            text = "is not in the requested tree"
        case Outside():
            text = "is excluded by its aggregates"
        case Belonging(owners=owners):
            text = f"belongs to {' and '.join(owners) or 'no owner'}"
        case Untraited(choice=choice):
            text = f"lacks {' or '.join(choice)}"
        case Traited(trait=trait):
            text = f"has {trait}"
        case Held(resource_class=kind, by=()):
            text = f"has all {kind} reserved by other programs"
        case Held(by=by):
            held = (f"{one.reason}, {reservations.age(one.since, now)}, {one.holder}" for one in by)
            text = f"is reserved ({'; '.join(held)})"
        case Short(resource_class=kind, used=None):
            text = f"has no {kind} free"
        case Short(resource_class=kind, capacity=capacity, used=used):
            text = f"has {used} of {capacity} {kind} in use"
        case Small(resource_class=kind, most=most):
            text = f"has only {most} {kind}"
        case Misfit(resource_class=kind, asked=asked, figure=""):
            text = f"does not allow {kind}={asked} in one allocation"
        case Misfit(resource_class=kind, figure=figure, value=value):
            text = f"has {figure} {value} for {kind}"
    return text


def remedy(reason: Reason) -> str:
    """Return the remedy for a reason, such as "request the owner OWNER_NOVA"."""
    match reason:
        case Outside(step=step):
            text = f"request {'another tree' if step is Step.TREE else 'other aggregates'}"
        case Belonging(owners=()):
            text = "set the owner trait of the provider"
        case Belonging(owners=(owner,)):
            text = f"request the owner {owner}"
        case Belonging():
            text = "remove an owner trait of the provider"
        case Untraited(choice=choice):
            text = f"do not require {' or '.join(choice)}"
        case Traited(trait=os_traits.COMPUTE_STATUS_DISABLED):
            text = "enable the service of the host"
        case Traited(trait=trait):
            text = f"do not forbid {trait}"
        case Held():
            text = "wait until the reservation ends, or end it"
        case Short(resource_class=kind, asked=asked, capacity=capacity, used=used):
            # If the amount exceeds the capacity, the reasons also have a Small.
            amount = min(asked, capacity)
            text = f"release {amount if used is None else used + amount - capacity} {kind}"
        case Small(resource_class=kind) | Misfit(resource_class=kind, figure="max_unit"):
            text = f"request less {kind} in a group"
        case Misfit(resource_class=kind):
            text = f"request another amount of {kind}"
    return text
