"""Records as the objects that keep them, and back."""

from wharfinger.objects import ProviderRecord
from wharfinger.providers.absence import Absence
from wharfinger.providers.provider import Provider, PublishingMode
from wharfinger.providers.record import (
    Record,
    decode,
    decode_absence,
    encode,
    encode_absence,
)


def to_object(uuid: str, record: Record) -> ProviderRecord:
    """The object of a provider's record."""
    return ProviderRecord(
        provider_uuid=uuid,
        mode=str(record.mode),
        applied=_document(record.applied),
        intended=_document(record.intended),
        live=_document(record.live),
        own_reserved=dict(record.own_reserved),
        reservations=list(record.reservations),
        reserved_since=dict(record.reserved_since),
        absent_since=record.absent_since,
        absence=None if record.absence is None else encode_absence(record.absence),
    )


def to_record(stored: ProviderRecord) -> Record:
    """The record that an object keeps; raises FieldUnset, ValueError where it is damaged."""
    return Record(
        applied=_provider(stored.applied),
        intended=_provider(stored.intended),
        live=_provider(stored.live),
        own_reserved=dict(stored.own_reserved),
        reservations=tuple(stored.reservations),
        reserved_since=_since(stored),
        mode=PublishingMode(stored.mode),
        absence=_absence(stored),
    )


def _document(provider: Provider | None) -> str | None:
    return None if provider is None else encode(provider)


def _provider(document: str | None) -> Provider | None:
    return None if document is None else decode(document)


def _since(stored: ProviderRecord) -> dict[str, float]:
    """Since when, for the reasons that there are: an old release leaves those that have ended."""
    since = stored.reserved_since if "reserved_since" in stored else {}
    return {reason: since[reason] for reason in stored.reservations if reason in since}


def _absence(stored: ProviderRecord) -> Absence | None:
    """Return the absence; without an uptime where an old release was the last to write it."""
    if stored.absent_since is None:
        return None
    document = stored.absence if "absence" in stored else None
    counted = None if document is None else decode_absence(document)
    if counted is not None and counted.since == stored.absent_since:
        return counted
    return Absence(stored.absent_since)
