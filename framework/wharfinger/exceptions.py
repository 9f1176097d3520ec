"""The errors that Wharfinger raises.

All errors are in one tree. An error carries its facts as attributes. Its message states what
failed and for what, why, and what to do::

    WharfingerError
    ├── CommandFailed               a command that was refused, or done in part
    ├── AgentError                  of the agent itself, or its status
    ├── ConfigurationError          a key or value is wrong
    ├── ConfigurationFileError      a file cannot be read, or has unknown options
    ├── ConfigurationRefused        the agent keeps its old configuration
    ├── DriverError                 a fault of a driver
    │   ├── DriverLoadError         the driver does not fit the contract
    │   ├── BackendError            the backend does not answer, or not completely
    │   ├── ProgrammingRefused      a device was not programmed and is unchanged
    │   ├── ProgrammingFailed       a device was not programmed, and its image is unknown
    │   └── InvalidTree             the tree of a driver cannot be published
    ├── ReshapeNeeded               raised by drivers; see ComputeDriver
    ├── InvalidName                 of a trait, resource class or provider
    ├── InvalidInventory            figures that contradict each other or Placement's limits
    ├── ProviderNotFound            in a ProviderTree
    ├── ProviderExists              in a ProviderTree
    ├── ProviderMissing             an overlaid provider that does not exist yet
    ├── ProviderRenamed             an overlaid provider that another program has renamed
    ├── ChildReplaced               a device has a new uuid, and the old one is reserved
    ├── RootDeletionBlocked         children of ours keep a deleted root
    ├── NameTaken                   by a provider in another tree
    ├── MassRemoval                 too many providers are absent at once
    ├── PartialListing              it lacks nodes that the driver still has
    ├── NodeTaken                   another host or instance publishes the node
    ├── ClaimRefused                an invalid claim of an instance on a node
    ├── ReservationRefused          of a provider, or its release
    ├── DetachmentRefused           of a root, or of a provider of another program
    ├── JobRefused                  for a device that cannot be programmed now
    ├── JobUnresolved               a device is reserved until the operator decides
    ├── OwnershipConflict           a provider of another owner, or of none; not changed
    ├── AdoptionRefused             no provider was adopted
    ├── InvalidRequest              a request for resources that makes no sense
    ├── NoCandidates                nothing is free for an instance
    ├── AllocationRefused           an allocation of an instance cannot be changed this way
    │   ├── ClaimedAnew             another claim has the uuid of the instance now
    │   └── BeingClaimed            another process is working on the claim
    ├── AllocationLost              another program has deleted an allocation
    ├── RequestFilterError          a request filter failed, or is invalid
    ├── DeviceProfileError          a device profile cannot be read, or is invalid
    ├── StateError                  the state directory or its database
    │   └── DatabaseUnavailable     no connection, no answer in time, or no space
    ├── ObjectError                 of a versioned object
    │   ├── InvalidObject           a received or stored object is invalid
    │   │   └── IncompatibleVersion of a version that this process does not know
    │   ├── FieldUnset              a field has no value
    │   ├── ObjectNotFound
    │   ├── ObjectExists            another object has its unique value
    │   ├── ConcurrentSave          another process has saved the object since
    │   ├── IntentExpired           a write was planned too long ago
    │   └── RemoteError             the process that has the database open refused or failed
    └── PlacementError              an error of Placement, or no answer
        ├── PlacementUnavailable    no answer, or a temporary error: 429, 502, 503, 504
        ├── UnexpectedAnswer        an answer that does not follow the API
        ├── MicroversionUnsupported
        ├── PermissionRefused       401 and 403
        ├── NotFound                404
        ├── UnknownTrait            a standard trait that the server does not know
        └── Conflict                409
            ├── ConcurrentUpdate    read the provider again and decide again
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
    """Shows the beginning and the end of long values."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 300

    # Mask before shortening: half a URL does not show that it contains a password.

    def repr_str(self, x: str, level: int) -> str:
        return super().repr_str(masked(x), level)

    def repr_instance(self, x: Any, level: int) -> str:
        try:
            text = masked(repr(x))
        except Exception:
            return super().repr_instance(x, level)  # works without __repr__
        half = self.maxother // 2 - 2
        return text if len(text) <= self.maxother else f"{text[:half]}...{text[-half:]}"

    def repr_int(self, x: int, level: int) -> str:
        try:
            return super().repr_int(x, level)
        except ValueError:  # Python refuses to print very long numbers
            return f"<a whole number of {x.bit_length()} bits>"


_SHOWN: Final = _Bounded()


def shown(value: object) -> str:
    """Return the repr of an untrusted value, shortened, even if its __repr__ fails."""
    return _SHOWN.repr(value)


class _Formatter(Formatter):
    """Formats ``!r`` with ``shown``, and ``!j`` as a list with commas."""

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
    """Return the text as one safe line: secrets masked, unprintable characters escaped."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode()
        for char in masked(text)
    )


class WharfingerError(Exception):
    """Base class of all errors.

    Each subclass has a ``template``. The keyword arguments fill it in and become attributes of the
    same names. Passwords and tokens in them are masked.
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
        """Return a text that is equal for repetitions of the same problem."""
        return str(self)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the parts for pickle, since an error may come from another process."""
        return partial(type(self), **self.facts), ()


class CommandFailed(WharfingerError):
    """A command that was refused, or of which only a part was done; the message says which."""


class AgentError(WharfingerError):
    """A problem of the agent itself, such as its status that cannot be read."""


class ConfigurationRefused(WharfingerError):
    """A new configuration that the agent does not use; it keeps the old one."""


class ConfigurationError(WharfingerError):
    """Configuration that cannot be used, with the place and the remedy."""

    template = "[{section}] {key} = {value}: {problem} {remedy}"
    section: str
    key: str
    value: object
    problem: str
    remedy: str


class ConfigurationFileError(WharfingerError):
    """A configuration file that cannot be read, or has unknown options."""

    template = "configuration: {problem} {remedy}"
    problem: str
    remedy: str


class DriverError(WharfingerError):
    """A fault of a driver."""

    driver: str


class DriverLoadError(DriverError):
    """A driver that does not fit the contract; raised before the driver is used.

    ``subject`` is the faulty method, attribute or entry point.
    """

    template = "driver {driver}: {subject}: found {found}; expected {expected}"
    subject: str
    found: str
    expected: str


class BackendError(DriverError):
    """A backend that does not answer, or whose answer may be incomplete.

    Drivers raise it. It never means that the backend has no nodes.
    """

    template = "driver {driver}: {operation} failed: {reason}"
    operation: str
    reason: str


class ProgrammingRefused(DriverError):
    """A device was not programmed and is unchanged; drivers raise it."""

    template = "driver {driver}: programming {provider} was refused: {reason}"
    provider: str
    reason: str


class ProgrammingFailed(DriverError):
    """A device certainly lacks its new image, and may have lost the old one; drivers raise it."""

    template = "driver {driver}: programming {provider} failed: {reason}"
    provider: str
    reason: str


class ReshapeNeeded(WharfingerError):
    """Raised by ``update_provider_tree`` to request another call with the allocations."""

    template = "the provider tree needs a reshape: call again with the allocations"


class InvalidName(WharfingerError, ValueError):
    """A name that Placement would refuse."""

    template = "{kind} name {name!r}: {problem}"
    kind: str
    name: str
    problem: str


class InvalidInventory(WharfingerError, ValueError):
    """An inventory that Placement would refuse."""

    template = "inventory of {where}: {problem}"
    where: str
    problem: str


class InvalidTree(DriverError):
    """A provider tree of a driver that cannot be published."""

    template = "driver {driver}: provider {provider}: {problem}"
    provider: str
    problem: str


class ProviderNotFound(WharfingerError, ValueError):
    """The tree has no provider with the name or uuid."""

    template = "no provider {name_or_uuid} in this tree"
    name_or_uuid: str


class ProviderExists(WharfingerError, ValueError):
    """The tree already has a provider with the name or uuid."""

    template = "provider {name_or_uuid} already exists in this tree"
    name_or_uuid: str


class ProviderMissing(WharfingerError):
    """A provider that another program publishes is not in Placement."""

    template = (
        "provider {provider} ({uuid}) is not in Placement{missing}, so nothing was written below "
        "it: driver instance {instance} only overlays providers of another program. The next cycle "
        "writes the children once that program has created the provider."
    )
    provider: str
    uuid: str
    instance: str
    missing: str


class ChildReplaced(WharfingerError):
    """A device has a provider with another uuid than before, and the former one is reserved."""

    template = (
        "provider {provider} ({uuid}) was fully reserved: the driver has given it a new uuid, and "
        "its former provider {former} is reserved. It may be the same device, so inspect it. If it "
        "may be used, end the former reservation: {commands}. The next cycle then releases the "
        "provider. To keep it reserved, first reserve the provider itself: "
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
        "are published as before. Restore the name (openstack resource provider set --name "
        "{provider} {uuid}), or rename the node."
    )
    provider: str
    uuid: str
    renamed: str
    instance: str


class RootDeletionBlocked(WharfingerError):
    """Another program has deleted children of ours, and other children block their root."""

    template = (
        "another program has deleted {deleted}, as nova does when its compute service is deleted. "
        "Root provider {root} ({uuid}) cannot be deleted: {children} below it has allocations. If "
        "the compute service was deleted, nova-compute cannot create a new root until the old one "
        "is deleted. In that case run {commands}, and then `openstack resource provider delete "
        "{uuid}`. Otherwise do nothing: this cycle creates the deleted children again."
    )
    root: str
    uuid: str
    deleted: str
    children: str
    commands: str


class NameTaken(WharfingerError):
    """A provider cannot be created: one in another tree has its name."""

    template = (
        "driver instance {instance} cannot create provider {provider}: provider {uuid} of "
        "{other}, in the tree of {root_uuid}, already has this name. Rename one of the two."
    )
    provider: str
    instance: str
    uuid: str
    other: str
    root_uuid: str


class MassRemoval(WharfingerError):
    """More of an instance's providers are absent at once than the removal policy allows."""

    template = (
        "{count} of the {total} providers of driver instance {instance} were not removed: they are "
        "all absent from its backend at once, which may be a fault of the backend. If they are "
        "really gone, run sync with --allow-mass-removal; otherwise repair the backend."
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
    """A node that another host, or another driver instance, publishes; it was not changed."""

    template = (
        "node {node} ({uuid}) is published by driver instance {other} on host {host}, so "
        "{instance}, which lists it, too, does not publish it. Configure one of them to list it. "
        "An instance of the same name takes the node over when {other} on {host} no longer lists "
        "it, or when the service of {host} is down. If {instance} is a new name for that instance, "
        "replace the trait of the old name by the trait of the new name on its providers."
    )
    node: str
    uuid: str
    instance: str
    other: str
    host: str


class ClaimRefused(WharfingerError):
    """An invalid claim of an instance on a node; nothing was written."""

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
    """A device job that did not start, or had no effect; the device is unchanged."""

    template = "device {provider} ({uuid}): {problem} {remedy}"
    provider: str
    uuid: str
    problem: str
    remedy: str


class JobUnresolved(WharfingerError):
    """A device job that did not finish; the operator has to decide its outcome, or has done so."""

    template = "device {provider} ({uuid}): {problem} {remedy}"
    provider: str
    uuid: str
    problem: str
    remedy: str


class OwnershipConflict(WharfingerError):
    """A provider that does not belong to this instance; it was not changed."""

    template = (
        "provider {provider} ({uuid}) was not changed: it belongs to {other}, not to driver "
        "instance {instance}, which publishes as {owner}. {remedy}"
    )
    provider: str
    uuid: str
    owner: str
    other: str
    instance: str
    remedy: str


class AdoptionRefused(WharfingerError):
    """An adoption of providers that is not possible for all of them; nothing was written."""

    template = "driver instance {instance} adopts no provider, and wrote nothing. {problem}"
    instance: str
    problem: str


class InvalidRequest(WharfingerError):
    """An invalid request for resources; ``subject`` is its source, such as a flavor."""

    template = "{subject}: {key} = {value!r}: {problem}"
    subject: str
    key: str
    value: object
    problem: str


class NoCandidates(WharfingerError):
    """No candidate for an instance; its allocations are unchanged."""

    template = "instance {instance}: flavor {flavor}: {problem} {remedy}"
    instance: str
    flavor: str
    problem: str
    remedy: str


class AllocationRefused(WharfingerError):
    """A refused change of an instance's allocations, which are unchanged."""

    template = "instance {instance}: {problem} {remedy}"
    instance: str
    problem: str
    remedy: str


class AllocationLost(WharfingerError):
    """Another program has deleted the allocation of a claimed instance."""

    template = (
        "instance {instance} on node {node} of host {host}: another program has deleted its "
        "allocation from Placement. Its providers are fully reserved until that is repaired: "
        "{providers}. Run `wharfinger instance repair {instance}` to allocate the same again, or "
        "with --release to release the instance."
    )
    instance: str
    node: str
    host: str
    providers: str


class ClaimedAnew(AllocationRefused):
    """Another process has released an instance and claimed it again under the same uuid."""

    template = (
        "instance {instance}: nothing was changed, since another process has released it and "
        "claimed it again. Check its state, and repeat the command."
    )


class BeingClaimed(AllocationRefused):
    """Another process is working on the claim of an instance, or stopped a moment ago."""


class RequestFilterError(WharfingerError):
    """A request filter that failed or returned a wrong type, which is a fault of its package."""

    template = (
        "request filter {name}: {reason}. Repair its package, or remove the filter from "
        "[scheduling] request_filters."
    )
    name: str
    reason: str


class DeviceProfileError(WharfingerError):
    """A device profile that cannot be read from its source, or is invalid."""

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
    """An error of a versioned object."""


class InvalidObject(ObjectError):
    """A received or stored object that this process cannot read.

    It is from a newer release, has fields or types that its version does not have, or is damaged.
    """

    template = "{subject}: {problem} {remedy}"
    subject: str
    problem: str
    remedy: str


class IncompatibleVersion(InvalidObject):
    """An object of a known kind, in a version that this process does not know."""


class FieldUnset(ObjectError):
    """A field of an object that has no value."""

    template = "{subject}: {field} has no value: {problem}"
    subject: str
    field: str
    problem: str


#: Commands that list the objects of a kind.
_LISTS: Final = {
    "ComputeNode": "`wharfinger node list`",
    "DeviceJob": "`wharfinger device jobs`",
    "Flavor": "`wharfinger flavor list`",
    "Instance": "`wharfinger instance list`",
    "Migration": "`wharfinger migration list`",
    "Reservation": "`wharfinger reservation list`",
    "Service": "`wharfinger service list`",
}


class ObjectNotFound(ObjectError):
    """An object that does not exist.

    The message ends with the command that lists the objects of this kind, if there is one.
    """

    template = "there is no {kind} {key}"
    kind: str
    key: str

    def __init__(self, **facts: object) -> None:
        super().__init__(**facts)
        if self.kind in _LISTS:
            self.args = (f"{self}. List all with {_LISTS[self.kind]}.",)


class ObjectExists(ObjectError):
    """An object that cannot be created or renamed, since another object has its unique value."""

    template = "{kind} {key} cannot be saved: another one has the same {unique}. Change one of them"
    kind: str
    key: str
    unique: str


class ConcurrentSave(ObjectError):
    """Another process has saved objects since they were read; nothing was written.

    ``keys`` are those of the objects. Read the objects again and decide again.
    """

    template = (
        "{kind} {keys!j}: nothing was written, since another process has saved it meanwhile. Read "
        "it again, and repeat the change"
    )
    kind: str
    keys: tuple[str, ...]


class IntentExpired(ObjectError):
    """An intent to write a provider was too old, and its request was not sent.

    ``seconds`` is how long an intent is valid. Another host may have taken the node over. The cycle
    plans the tree again.
    """

    template = (
        "provider {provider} ({uuid}) was not written: its plan is older than {seconds:g} s, and "
        "another host may have taken it over. The next cycle plans it again"
    )
    provider: str
    uuid: str
    seconds: float


class RemoteError(ObjectError):
    """The process that has the database open failed to answer a request of this process."""

    template = "request to the process that has the database open: {reason}"
    reason: str


class PlacementError(WharfingerError):
    """An answer of Placement that is an error or not understood, or a missing answer.

    ``status`` is the HTTP status (0: no answer), ``code`` Placement's own error code ("" if there
    is none), ``detail`` its explanation. ``request_id`` is the id of the request in Placement's
    log, "" if unknown; it ends the message.
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
        """Return the message without the id of the request."""
        return str(self).removesuffix(f" (request {self.request_id})")


class PlacementUnavailable(PlacementError):
    """No answer, or an answer that asks for another try later.

    The connection was refused or reset or timed out, the catalog has no endpoint (``status`` 0),
    or the status is 429, 502, 503 or 504.
    """

    template = "Placement: {request}: {detail}"


class UnexpectedAnswer(PlacementError):
    """An answer that does not follow the Placement API."""

    template = "Placement: {request}: {status} with an answer that is not understood: {detail}"


class MicroversionUnsupported(PlacementError):
    """The server is too old for a needed feature."""

    template = "Placement: {request}: {detail}"


class PermissionRefused(PlacementError):
    """401 or 403: invalid credentials, or a missing role."""

    template = "Placement: {request}: {status}: not allowed: {detail} {remedy}"
    remedy: str


class NotFound(PlacementError):
    """Placement answered 404: it does not have what was asked for."""


class UnknownTrait(PlacementError):
    """A standard trait that the server does not know and that cannot be created."""

    template = (
        "Placement does not know the trait {trait}, and only CUSTOM_ traits can be created. "
        "{detail}"
    )
    trait: str


class Conflict(PlacementError):
    """409."""


class ConcurrentUpdate(Conflict):
    """Another process has changed the provider since it was read."""


class InventoryInUse(Conflict):
    """An inventory with allocations cannot be removed."""


class ProviderInUse(Conflict):
    """A provider with allocations, or with children, cannot be removed."""


class DuplicateProvider(Conflict):
    """A provider with the name or uuid already exists."""
