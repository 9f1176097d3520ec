"""COMPUTE_STATUS_DISABLED on the roots of a disabled service, as nova has it on its own. Pure."""

from dataclasses import replace
from typing import Final

import os_traits

from wharfinger.providers import DesiredProvider, Provider
from wharfinger.providers.merge import own_view
from wharfinger.providers.record import Record

DISABLED: Final = frozenset([os_traits.COMPUTE_STATUS_DISABLED])


def says_disabled(record: Record | None) -> bool:
    """Whether we have had a root say so; what others put there is theirs."""
    return record is not None and record.claimed_traits >= DISABLED


def with_status(root: Provider, *, disabled: bool) -> Provider:
    """The root, saying so or not."""
    return replace(root, traits=root.traits | DISABLED if disabled else root.traits - DISABLED)


def as_it_is(live: Provider, record: Record, *, disabled: bool) -> DesiredProvider:
    """A provider as Placement has it, wanted with nothing changed but, perhaps, that it says so."""
    mine = own_view(live, record)
    return DesiredProvider(
        provider=with_status(mine, disabled=True) if disabled else mine,
        mode=record.mode,
        reservations=record.reservations,
    )
