"""Every error that Wharfinger raises.

One tree. An error carries its facts as attributes and says what happened, to what,
and what to do about it::

    WharfingerError
    ├── ConfigurationError          a file, key or value is wrong
    ├── DriverError                 something a driver is, said or did
    │   ├── DriverLoadError         its declaration does not fit the contract
    │   ├── BackendError            what it drives does not answer, or not completely
    │   ├── ProgrammingRefused      a device was not programmed, and not touched
    │   └── ProgrammingFailed       a device was not programmed, and may hold anything
    ├── ReshapeNeeded               raised by drivers; see ComputeDriver
    ├── InvalidName                 of a trait, resource class or provider
    ├── InvalidInventory            figures that cannot be
    ├── InvalidTree                 what a driver left behind cannot be published
    ├── ProviderNotFound            in a ProviderTree
    ├── ProviderExists              in a ProviderTree
    ├── ProviderMissing             an overlaid provider that nobody has created yet
    ├── ProviderRenamed             an overlaid provider that another program has renamed
    ├── ChildReplaced               a device has a new uuid, and the old one is reserved
    ├── NameTaken                   by a provider in another tree
    ├── MassRemoval                 too many providers are gone at once
    ├── PartialListing              it lacks nodes that the driver still has
    ├── DetachmentRefused           of a root, or of a provider of another program
    ├── JobRefused                  for a device that cannot be programmed now
    ├── JobUnresolved               a device is reserved until somebody decides
    ├── OwnershipConflict           another owner's, or nobody's: left alone
    ├── InvalidRequest              for resources, that nothing could answer
    ├── NoCandidates                nothing is free for an instance
    ├── AllocationRefused           an instance's allocation is not to be changed so
    │   └── ClaimedAnew             its instance is another one by now
    ├── RequestFilterError          a request filter failed, or is none
    ├── DeviceProfileError          one that cannot be had, or is none
    ├── StateError                  the state directory or its database
    │   └── DatabaseUnavailable     no connection, no answer in time, or no space
    ├── ObjectError                 of a versioned object
    │   ├── InvalidObject           what was received or stored is none
    │   │   └── IncompatibleVersion of a version that is not known here
    │   ├── FieldUnset              nothing is known of a field
    │   ├── ObjectNotFound
    │   ├── ObjectExists            what only one may have is taken
    │   ├── ConcurrentSave          somebody else has saved it since
    │   ├── IntentExpired           a write was planned too long ago
    │   └── RemoteError             the process that holds the database does not do it
    └── PlacementError              Placement's answer, or that there was none
        ├── PlacementUnavailable    no answer, or none now: 429, 502, 503, 504
        ├── UnexpectedAnswer        an answer that cannot be understood
        ├── MicroversionUnsupported
        ├── PermissionRefused       401 and 403
        ├── NotFound                404
        ├── UnknownTrait            a standard trait that the server does not know
        └── Conflict                409
            ├── ConcurrentUpdate    read it again and decide again
            ├── InventoryInUse
            ├── ProviderInUse
            └── DuplicateProvider
"""

import reprlib
from functools import partial
from string import Formatter
from typing import Any, ClassVar, Final

from wharfinger.masking import masked


class _Bounded(reprlib.Repr):
    """Shows the beginning and the end of what is long."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 300

    # Mask before cutting: half a URL does not show that a password is in it.

    def repr_str(self, x: str, level: int) -> str:
        return super().repr_str(masked(x), level)

    def repr_instance(self, x: Any, level: int) -> str:
        try:
            text = masked(repr(x))
        except Exception:
            return super().repr_instance(x, level)  # it needs no __repr__
        half = self.maxother // 2 - 2
        return text if len(text) <= self.maxother else f"{text[:half]}...{text[-half:]}"

    def repr_int(self, x: int, level: int) -> str:
        try:
            return super().repr_int(x, level)
        except ValueError:  # Python writes no more than some thousand digits
            return f"<a whole number of {x.bit_length()} bits>"


_SHOWN: Final = _Bounded()


def shown(value: object) -> str:
    """A value from outside as it can be shown: bounded, and whatever its __repr__ does."""
    return _SHOWN.repr(value)


class _Formatter(Formatter):
    """Shows what is converted with ``!r``, and puts commas between what is with ``!j``."""

    def convert_field(self, value: Any, conversion: Any) -> Any:
        match conversion:
            case "r":
                return shown(value)
            case "j":
                return ", ".join(map(str, value))
            case _:
                return super().convert_field(value, conversion)


_FORMATTER: Final = _Formatter()


def printable(text: str) -> str:
    """The text in one line that a terminal can take: without secrets, the unprintable escaped."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode()
        for char in masked(text)
    )


class WharfingerError(Exception):
    """An error with facts.

    Subclasses give a ``template``; the keyword arguments fill it in and become
    attributes of the same names. Passwords and tokens in them are masked.
    """

    template: ClassVar[str] = "{reason}"

    def __init__(self, **facts: object) -> None:
        super().__init__(printable(_FORMATTER.vformat(self.template, (), facts)))
        facts = {
            name: masked(value) if type(value) is str else value for name, value in facts.items()
        }
        self.facts: Final = facts
        for name, value in facts.items():
            setattr(self, name, value)

    @property
    def identity(self) -> str:
        """Text that is the same whenever the same problem is found again."""
        return str(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what pickle needs: an error may come from another process."""
        return partial(type(self), **self.facts), ()


class ConfigurationError(WharfingerError):
    """Configuration that cannot be used, with the place and the remedy."""

    template = "[{section}] {key} = {value}: {problem} {remedy}"
    section: str
    key: str
    value: object
    problem: str
    remedy: str


class ConfigurationFileError(WharfingerError):
    """A configuration file that cannot be read, or has what nobody reads."""

    template = "configuration: {problem} {remedy}"
    problem: str
    remedy: str


class DriverError(WharfingerError):
    """Something that a driver is, said or did."""

    driver: str


class DriverLoadError(DriverError):
    """A driver that does not fit the contract; raised before it is used.

    ``subject`` is the method, attribute or entry point concerned.
    """

    template = "driver {driver}: {subject}: found {found}; expected {expected}"
    subject: str
    found: str
    expected: str


class BackendError(DriverError):
    """A backend that does not answer, or is not known to have answered completely.

    Drivers raise it: it never means that there is nothing.
    """

    template = "driver {driver}: {operation} failed: {reason}"
    operation: str
    reason: str


class ProgrammingRefused(DriverError):
    """A device that was not programmed, and is as it was before: nothing has been begun.

    Drivers raise it.
    """

    template = "driver {driver}: programming {provider} was refused: {reason}"
    provider: str
    reason: str


class ProgrammingFailed(DriverError):
    """A device that certainly does not hold its new image, and may have lost the old one.

    Drivers raise it.
    """

    template = "driver {driver}: programming {provider} failed: {reason}"
    provider: str
    reason: str


class ReshapeNeeded(WharfingerError):
    """Raised by ``update_provider_tree`` to be called again with the allocations."""

    template = "the provider tree has to be reshaped: call again with the allocations"


class InvalidName(WharfingerError, ValueError):
    """A name that Placement would refuse."""

    template = "{kind} name {name!r}: {problem}"
    kind: str
    name: str
    problem: str


class InvalidInventory(WharfingerError, ValueError):
    """An inventory that cannot be."""

    template = "inventory of {where}: {problem}"
    where: str
    problem: str


class InvalidTree(DriverError):
    """A provider tree that cannot be published as the driver left it."""

    template = "driver {driver}: provider {provider}: {problem}"
    provider: str
    problem: str


class ProviderNotFound(WharfingerError, ValueError):
    """No provider of that name or uuid is in the tree."""

    template = "no provider {name_or_uuid} in this tree"
    name_or_uuid: str


class ProviderExists(WharfingerError, ValueError):
    """A provider of that name or uuid is in the tree already."""

    template = "provider {name_or_uuid} already exists in this tree"
    name_or_uuid: str


class ProviderMissing(WharfingerError):
    """A provider that someone else publishes is not in Placement."""

    template = (
        "provider {provider} ({uuid}) is not in Placement{missing}, and driver instance {instance} "
        "only overlays what someone else publishes: nothing was written below it. It will be when "
        "its publisher has created it."
    )
    provider: str
    uuid: str
    instance: str
    missing: str


class ChildReplaced(WharfingerError):
    """A device has a provider with another uuid than before, and the former one is reserved."""

    template = (
        "provider {provider} ({uuid}) was published as {former} before, which is reserved, and "
        "the driver now gives it another uuid. It may be the same device, so it is fully reserved. "
        "Look at the device. If it may be used, end the former reservation: {commands}. The next "
        "cycle releases the provider. To keep it reserved, first reserve it itself: "
        "`wharfinger provider reserve {uuid} --reason TEXT`."
    )
    provider: str
    uuid: str
    former: str
    commands: str


class ProviderRenamed(WharfingerError):
    """Another program has renamed a root that this instance only overlays."""

    template = (
        "root provider {provider} ({uuid}) has the name {renamed} in Placement, and driver "
        "instance {instance} only overlays it, so it does not restore the name. Its children "
        "are published as before. Give it its name again (openstack resource provider set --name "
        "{provider} {uuid}), or give the node the new name."
    )
    provider: str
    uuid: str
    renamed: str
    instance: str


class RootDeletionBlocked(WharfingerError):
    """Another program has deleted children of ours, and others with allocations keep their root."""

    template = (
        "another program has deleted {deleted}, as nova does when its compute service is deleted. "
        "Root provider {root} ({uuid}) cannot be deleted: {children} below it has allocations. If "
        "the compute service was deleted, nova-compute cannot create a new root until the old one "
        "is gone. In that case run {commands}, and then `openstack resource provider delete "
        "{uuid}`. If not, there is nothing to do: this cycle creates what was deleted."
    )
    root: str
    uuid: str
    deleted: str
    children: str
    commands: str


class NameTaken(WharfingerError):
    """A provider cannot be created: one in another tree has its name."""

    template = (
        "provider {provider} cannot be published by driver instance {instance}: {uuid}, which "
        "belongs to {other} and stands in the tree of {root_uuid}, has that name, and names "
        "are unique in Placement. Rename one of the two."
    )
    provider: str
    instance: str
    uuid: str
    other: str
    root_uuid: str


class MassRemoval(WharfingerError):
    """More of an instance's providers are gone at once than is believed without asking."""

    template = (
        "{count} of the {total} providers of driver instance {instance} are gone from its "
        "backend: too many at once to be believed, and none of them was removed or reserved. If "
        "they are gone indeed, run sync with --allow-mass-removal; if not, mend the backend."
    )
    instance: str
    count: int
    total: int


class PartialListing(WharfingerError):
    """A complete listing lacks nodes or devices that the driver still has.

    The driver was asked for each of them alone. ``names`` are the names of these nodes and child
    providers, which are kept. ``some`` is a text with the first names.
    """

    template = (
        "the listing of driver instance {instance} is partial: it lacks {some} ({count} in all). "
        "The driver still has each of them when asked for it alone, so they are kept. Find out "
        "why the listing lacks them: a proxy, a limit, or missing rights of the driver's "
        "credentials."
    )
    instance: str
    count: int
    names: tuple[str, ...]
    some: str


class NodeTaken(WharfingerError):
    """A node that another host, or another driver instance, publishes; it was left to it."""

    template = (
        "node {node} ({uuid}) is published by driver instance {other} on host {host}, and listed "
        "by {instance} here too: left to {other} on {host}. Configure only one of them to list it. "
        "An instance of the same name takes it over when {other} on {host} no longer lists it, or "
        "when the service of {host} is down. If {instance} is a new name for that instance, "
        "replace the trait of the old name by the trait of the new name on its providers."
    )
    node: str
    uuid: str
    instance: str
    other: str
    host: str


class ClaimRefused(WharfingerError):
    """A claim of an instance on a node that cannot be meant; nothing was written."""

    template = "instance {instance} on node {node} of host {host}: {problem}"
    instance: str
    node: str
    host: str
    problem: str


class ReservationRefused(WharfingerError):
    """A provider that cannot be reserved, or a reservation that cannot be released."""

    template = "provider {provider} ({uuid}): {problem} {remedy}"
    provider: str
    uuid: str
    problem: str
    remedy: str


class DetachmentRefused(WharfingerError):
    """A provider that cannot be made a root of its own."""

    template = "provider {provider} ({uuid}) cannot be detached: {problem}. {remedy}"
    provider: str
    uuid: str
    problem: str
    remedy: str


class JobRefused(WharfingerError):
    """A device job that does not begin, or comes to nothing: the device is as it was before."""

    template = "device {provider} ({uuid}): {problem} {remedy}"
    provider: str
    uuid: str
    problem: str
    remedy: str


class JobUnresolved(WharfingerError):
    """A device job that did not come to an end of its own: somebody has to decide, or has."""

    template = "device {provider} ({uuid}): {problem} {remedy}"
    provider: str
    uuid: str
    problem: str
    remedy: str


class OwnershipConflict(WharfingerError):
    """A provider that is not this instance's to write; it was left exactly as it is."""

    template = (
        "provider {provider} ({uuid}) belongs to {other}, not to driver instance {instance}, "
        "which publishes as {owner}: left as it is. {remedy}"
    )
    provider: str
    uuid: str
    owner: str
    other: str
    instance: str
    remedy: str


class AdoptionRefused(WharfingerError):
    """Providers that an operator named, and that cannot all be adopted; nothing was written."""

    template = "driver instance {instance} adopts nothing, and nothing was written. {problem}"
    instance: str
    problem: str


class InvalidRequest(WharfingerError):
    """A request for resources that cannot be meant, with the place: a flavor, a device profile."""

    template = "{subject}: {key} = {value!r}: {problem}"
    subject: str
    key: str
    value: object
    problem: str


class NoCandidates(WharfingerError):
    """Nothing is free for an instance; it has what it had before."""

    template = "instance {instance}: flavor {flavor}: {problem} {remedy}"
    instance: str
    flavor: str
    problem: str
    remedy: str


class AllocationRefused(WharfingerError):
    """An instance's allocation is not to be changed so, or not now; it has what it had before."""

    template = "instance {instance}: {problem} {remedy}"
    instance: str
    problem: str
    remedy: str


class AllocationLost(WharfingerError):
    """Another program has deleted the allocation of a claimed instance."""

    template = (
        "instance {instance} on node {node} of host {host}: its allocation is gone from Placement, "
        "and no release of ours has deleted it. Reserved fully until that is repaired: "
        "{providers}. `wharfinger instance repair {instance}` allocates the same again; with "
        "--release, it releases the instance."
    )
    instance: str
    node: str
    host: str
    providers: str


class ClaimedAnew(AllocationRefused):
    """An instance was released and claimed anew, by others, under the same uuid."""

    template = "instance {instance}: others have released it, and claimed it anew, meanwhile."


class BeingClaimed(AllocationRefused):
    """Somebody is at work on the claim of an instance, or was until a moment ago."""


class RequestFilterError(WharfingerError):
    """A request filter that failed, or gave what is no answer: a fault of its package."""

    template = "request filter {name}: {reason}. Mend its package, or leave it out of [scheduling]."
    name: str
    reason: str


class DeviceProfileError(WharfingerError):
    """A device profile that cannot be had from where it is kept, or is not what one should be."""

    template = "device profile {name}: {problem}"
    name: str
    problem: str


class StateError(WharfingerError):
    """The state directory, or the database in it, cannot be used."""

    template = "state in {path}: {problem} {remedy}"
    path: str
    problem: str
    remedy: str


class DatabaseUnavailable(StateError):
    """The database does not answer now; it may later."""


class ObjectError(WharfingerError):
    """A versioned object that is not what it should be, or not where."""


class InvalidObject(ObjectError):
    """What was received or stored is no object that is known here.

    From the future, with fields or types that its version has not, or damaged.
    """

    template = "{subject}: {problem} {remedy}"
    subject: str
    problem: str
    remedy: str


class IncompatibleVersion(InvalidObject):
    """An object of a known kind, in a version that is not known here."""


class FieldUnset(ObjectError):
    """A field of which this object knows nothing."""

    template = "{subject}: nothing is known of {field}: {problem}"
    subject: str
    field: str
    problem: str


class ObjectNotFound(ObjectError):
    """There is no such object."""

    template = "there is no {kind} {key}"
    kind: str
    key: str


class ObjectExists(ObjectError):
    """An object cannot be created or renamed: another has what only one may have."""

    template = "{kind} {key} cannot be saved: there is one of that {unique} already"
    kind: str
    key: str
    unique: str


class ConcurrentSave(ObjectError):
    """Somebody else has saved objects since they were read; nothing was written.

    ``keys`` are those of the objects. Read them again and decide again.
    """

    template = "{kind} {keys!j}: somebody else has saved it since it was read: nothing was written"
    kind: str
    keys: tuple[str, ...]


class IntentExpired(ObjectError):
    """An intent to write a provider was too old, and its request was not sent.

    ``seconds`` is how long an intent is valid. Another host may have taken the node over. The cycle
    plans the tree again.
    """

    template = (
        "provider {provider} ({uuid}) was not written: its plan is older than {seconds:g} s, and "
        "another host may have taken it over"
    )
    provider: str
    uuid: str
    seconds: float


class RemoteError(ObjectError):
    """The process that holds the database did not do what was asked, or cannot be reached."""

    template = "objects of another process: {reason}"
    reason: str


class PlacementError(WharfingerError):
    """An answer of Placement that is an error or not understood, or a missing answer.

    ``status`` is the HTTP status (0: no answer), ``code`` Placement's own error code
    ("" where it gave none), ``detail`` its explanation. ``request_id`` is the id by which its log
    has the request, "" where that is not known; it ends the message.
    """

    template = "Placement: {request}: {status}: {detail}"
    request: str
    status: int = 0
    code: str = ""
    detail: str
    request_id: str

    def __init__(self, *, request_id: str = "", **facts: object) -> None:
        super().__init__(request_id=request_id, **facts)
        if request_id:
            self.args = (f"{self} (request {request_id})",)

    @property
    def identity(self) -> str:
        """The message without the id of the request."""
        return str(self).removesuffix(f" (request {self.request_id})")


class PlacementUnavailable(PlacementError):
    """There was no answer, or one that says to come back later.

    Refused, reset, timed out, no endpoint in the catalog (``status`` 0); 429, 502, 503, 504.
    """

    template = "Placement: {request}: {detail}"


class UnexpectedAnswer(PlacementError):
    """An answer that is not what the Placement API describes."""

    template = "Placement: {request}: {status} with an answer that is not understood: {detail}"


class MicroversionUnsupported(PlacementError):
    """The server is too old for what is needed."""

    template = "Placement: {request}: {detail}"


class PermissionRefused(PlacementError):
    """401 or 403: the credentials are not taken, or have not the role that is needed."""

    template = "Placement: {request}: {status}: not allowed: {detail} {remedy}"
    remedy: str


class NotFound(PlacementError):
    """404."""


class UnknownTrait(PlacementError):
    """A standard trait that the server does not know and nobody can create."""

    template = (
        "Placement does not know the trait {trait}, and only CUSTOM_ traits can be created. "
        "{detail}"
    )
    trait: str


class Conflict(PlacementError):
    """409."""


class ConcurrentUpdate(Conflict):
    """Somebody else changed the provider since it was read."""


class InventoryInUse(Conflict):
    """An inventory with allocations cannot be removed."""


class ProviderInUse(Conflict):
    """A provider with allocations, or with children, cannot be removed."""


class DuplicateProvider(Conflict):
    """A provider of that name or uuid exists already."""
