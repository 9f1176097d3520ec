"""Report the service of a host as up, with the owners of the host."""

from collections.abc import Collection
from typing import Final

from tenacity import wait_none

from wharfinger.exceptions import ChangedMeanwhile, ObjectNotFound
from wharfinger.objects import AGENT_BINARY, OWNER_TAG_VERSION, SERVICE_VERSION, Context, Service
from wharfinger.retries import retry_on

_FIRST_VERSION: Final = 1


@retry_on(ChangedMeanwhile, wait=wait_none())
def begin(context: Context, host: str) -> None:
    """Create the service of a host if necessary, and report it as up.

    Raises ObjectError and StateError.
    """
    _find(context, host).report()


@retry_on(ChangedMeanwhile, wait=wait_none())
def report(context: Context, host: str, owners: Collection[str], *, complete: bool) -> None:
    """Report the service of a host as up, and the owners that it publishes for.

    With ``complete``, the host publishes for no other owners. Raises ObjectError and StateError.
    """
    service = _find(context, host)
    known = set() if complete else set(service.owners)
    published = sorted(known.union(owners))
    if complete:
        version = OWNER_TAG_VERSION
    elif known.issuperset(owners):
        version = min(service.version, SERVICE_VERSION)
    else:
        version = _FIRST_VERSION
    stored = (service.known("owners"), service.known("version"))
    if stored != (published, version):  # this repairs a field that cannot be read
        service.owners, service.version = published, version
        service.save()
    service.report()


def _find(context: Context, host: str) -> Service:
    try:
        return Service.get_by_host_and_binary(context, host, AGENT_BINARY)
    except ObjectNotFound:
        service = Service(context, host=host, binary=AGENT_BINARY)
        service.create()
        return service
