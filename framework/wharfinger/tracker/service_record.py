"""The Service of this host, kept as its cycles went."""

from collections.abc import Collection
from typing import Final

from tenacity import retry, retry_if_exception_type, stop_after_attempt

from wharfinger.exceptions import ConcurrentSave, ObjectExists, ObjectNotFound
from wharfinger.objects import OWNER_TAG_VERSION, SERVICE_VERSION, Context, Service

BINARY: Final = "wharfinger"
_FIRST_VERSION: Final = 1


def is_disabled(context: Context, host: str) -> bool | None:
    """Whether an operator has disabled the service of a host; None where that is not known.

    Raises ObjectError, StateError.
    """
    try:
        service = Service.get_by_host_and_binary(context, host, BINARY)
    except ObjectNotFound:
        return False
    return service.disabled if "disabled" in service else None


_patiently: Final = retry(
    retry=retry_if_exception_type((ConcurrentSave, ObjectExists, ObjectNotFound)),
    stop=stop_after_attempt(5),
    reraise=True,
)


@_patiently
def begin(context: Context, host: str) -> None:
    """Say that the service of a host is up, before its first cycle: other hosts go by that.

    It is created where there is none. What it publishes for is not known yet. Raises ObjectError,
    StateError.
    """
    _find(context, host).report()


@_patiently
def report(context: Context, host: str, owners: Collection[str], *, complete: bool) -> None:
    """Say that the service of a host is up, and what it publishes for.

    It takes the version of the owner trait when it is ``complete``: each of its instances
    published all that it has, as ``owners``. It loses it where it has come to publish for another
    owner, and not all of that is done. Raises ObjectError, StateError.
    """
    service = _find(context, host)
    known = set() if complete else set(service.owners)
    published = sorted(known.union(owners))
    if complete:
        version = OWNER_TAG_VERSION
    else:
        version = min(service.version, SERVICE_VERSION)
        if set(published) != known:
            version = _FIRST_VERSION
    said = [getattr(service, name) for name in ("owners", "version") if name in service]
    if said != [published, version]:  # what cannot be read is mended
        service.owners = published
        service.version = version
        service.save()
    service.report()


def _find(context: Context, host: str) -> Service:
    """The service of a host, made where there is none."""
    try:
        return Service.get_by_host_and_binary(context, host, BINARY)
    except ObjectNotFound:
        service = Service(context, host=host, binary=BINARY)
        service.create()
        return service
