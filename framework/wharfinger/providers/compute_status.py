"""The trait COMPUTE_STATUS_DISABLED on the roots of a disabled service."""

from dataclasses import replace
from typing import Final

import os_traits

from wharfinger.providers.provider import DesiredProvider, Provider
from wharfinger.providers.provider_merge import own_view
from wharfinger.providers.provider_record import Record

DISABLED: Final = frozenset([os_traits.COMPUTE_STATUS_DISABLED])


def records_disabled(record: Record) -> bool:
    """Return whether we have set or may have set COMPUTE_STATUS_DISABLED."""
    return record.claimed_traits >= DISABLED


def with_status(root: Provider, *, disabled: bool) -> Provider:
    """Return the root with or without COMPUTE_STATUS_DISABLED."""
    return replace(root, traits=root.traits | DISABLED if disabled else root.traits - DISABLED)


def desired_from_record(live: Provider, record: Record, *, disabled: bool) -> DesiredProvider:
    """Return ``own_view`` as desired, plus COMPUTE_STATUS_DISABLED if ``disabled``."""
    mine = own_view(live, record)
    return DesiredProvider(
        provider=with_status(mine, disabled=True) if disabled else mine,
        mode=record.mode,
        reservations=record.reservations,
    )
