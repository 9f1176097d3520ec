"""The errors that Wharfinger raises.

An error has its facts as attributes::

    WharfingerError
    ├── ChangedMeanwhile
    ├── CommandFailed
    ├── AgentError
    ├── ConfigurationError
    ├── ConfigurationFileError
    ├── ConfigurationRefused
    ├── DriverError
    │   ├── DriverLoadError
    │   ├── BackendError
    │   ├── ProgrammingRefused
    │   ├── ProgrammingFailed
    │   └── InvalidTree
    ├── ReshapeNeeded
    ├── InvalidName
    ├── InvalidInventory
    ├── ProviderNotFound
    ├── ProviderExists
    ├── ProviderMissing
    ├── ProviderRenamed
    ├── ChildReplaced
    ├── RootDeletionBlocked
    ├── NameTaken
    ├── MassRemoval
    ├── PartialListing
    ├── NodeTaken
    ├── ClaimRefused
    ├── ReservationRefused
    ├── DetachmentRefused
    ├── JobRefused
    ├── JobUnresolved
    ├── OwnershipConflict
    ├── AdoptionRefused
    ├── InvalidRequest
    ├── NoCandidates
    ├── AllocationRefused
    │   ├── ClaimedAnew
    │   └── BeingClaimed
    ├── AllocationLost
    ├── RequestFilterError
    ├── DeviceProfileError
    ├── StateError
    │   └── DatabaseUnavailable
    ├── ObjectError
    │   ├── InvalidObject
    │   │   └── IncompatibleVersion
    │   ├── FieldUnset
    │   ├── ObjectNotFound
    │   ├── ObjectExists
    │   ├── ConcurrentSave
    │   ├── IntentExpired
    │   └── RemoteError
    └── PlacementError
        ├── PlacementUnavailable
        ├── UnexpectedAnswer
        ├── MicroversionUnsupported
        ├── PermissionRefused
        ├── NotFound
        ├── UnknownTrait
        └── Conflict
            ├── ConcurrentUpdate
            ├── InventoryInUse
            ├── ProviderInUse
            └── DuplicateProvider
"""

import reprlib
from functools import partial
from string import Formatter
from typing import Any, ClassVar, Final

from wharfinger.masking import masked


class _ShortAndMasked(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 300

    # Mask before shortening, since a password in a part of a URL is not recognised.

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


_SHOWN: Final = _ShortAndMasked()


def shown(value: object) -> str:
    """Return a short repr of an untrusted value, with secrets masked."""
    return _SHOWN.repr(value)


class _Formatter(Formatter):
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
    """Return the text as one line, with secrets masked and unprintable characters escaped."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode()
        for char in masked(text)
    )


class WharfingerError(Exception):
    """Base class of all errors.

    The keyword arguments are the values of ``template``, and become attributes. Passwords and
    tokens in text are masked.
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
        """Return a text that is the same when the same problem occurs again."""
        return str(self)

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickle would pass the message, which __init__ does not accept.
        return partial(type(self), **self.facts), ()


class ChangedMeanwhile(WharfingerError):
    """Base of errors that a write of another process can cause: read again before a next attempt.

    Each of these errors also has the base that the tree shows.
    """


class CommandFailed(WharfingerError):
    """A command was not done, or only in part."""


class AgentError(WharfingerError):
    """A problem of the agent itself."""


class ConfigurationRefused(WharfingerError):
    """The agent does not use a new configuration, and keeps the old one."""


class ConfigurationError(WharfingerError):
    """An option has a value that cannot be used."""

    template = "[{section}] {key} = {value}: {problem} {remedy}"
    section: str
    key: str
    value: object
    problem: str
    remedy: str


class ConfigurationFileError(WharfingerError):
    """A configuration file cannot be used."""

    template = "configuration: {problem} {remedy}"
    problem: str
    remedy: str


class DriverError(WharfingerError):
    """An error of a driver or a backend.

    ``driver`` is the driver instance, or in DriverLoadError the driver.
    """

    driver: str


class DriverLoadError(DriverError):
    """A driver cannot be imported, or does not fit the driver contract."""

    template = "driver {driver} cannot be loaded: {subject}: found {found}; expected {expected}"
    subject: str
    found: str
    expected: str


class BackendError(DriverError):
    """A backend does not answer, or its answer may be incomplete. Drivers raise this error.

    The framework raises it for unexpected exceptions and results of a driver, too.
    """

    template = "driver {driver}: {operation} failed: {reason}"
    operation: str
    reason: str


class ProgrammingRefused(DriverError):
    """A device was not programmed and is unchanged. Drivers raise this error."""

    template = "driver {driver}: programming of provider {provider} was refused: {reason}"
    provider: str
    reason: str


class ProgrammingFailed(DriverError):
    """A device does not have the new image, and may have lost the old one. Drivers raise this."""

    template = (
        "driver {driver}: programming of provider {provider} failed, and the device may have "
        "lost its old image: {reason}"
    )
    provider: str
    reason: str


class ReshapeNeeded(WharfingerError):
    """A driver raises this in ``update_provider_tree`` to be called again with the allocations."""

    template = (
        "the provider tree needs a reshape: call update_provider_tree again with the allocations"
    )


class InvalidName(WharfingerError, ValueError):
    """A name, uuid or reservation reason is invalid."""

    template = "{kind} {name!r}: {problem}"
    kind: str
    name: str
    problem: str


class InvalidInventory(WharfingerError, ValueError):
    """An inventory is invalid."""

    template = "inventory of {where}: {problem}"
    where: str
    problem: str


class InvalidTree(DriverError):
    """A provider tree of a driver cannot be published."""

    template = "driver {driver}: provider {provider}: {problem}"
    provider: str
    problem: str


class ProviderNotFound(WharfingerError, ValueError):
    """A ProviderTree has no provider with the name or uuid."""

    template = "the provider tree has no provider with the name or uuid {name_or_uuid}"
    name_or_uuid: str


class ProviderExists(WharfingerError, ValueError):
    """A ProviderTree already has a provider with the name or uuid."""

    template = "the provider tree already has a provider with the name or uuid {name_or_uuid}"
    name_or_uuid: str


class ProviderMissing(WharfingerError):
    """A provider that another program publishes is not in Placement."""

    template = (
        "provider {provider} ({uuid}) is not in Placement{missing}, so nothing was written below "
        "the provider. Another program publishes the provider, and driver instance {instance} only "
        "overlays it. When that program has created the provider, the next cycle writes the "
        "children."
    )
    provider: str
    uuid: str
    instance: str
    missing: str


class ChildReplaced(WharfingerError):
    """A new provider was fully reserved, since it may have the device of a reserved provider."""

    template = (
        "provider {provider} ({uuid}) was fully reserved: the driver reports it in place of "
        "provider {former}, which has a reservation, and both may be the same device. Inspect the "
        "device. If the device may be used, end the former reservation with {commands}; the next "
        "cycle then releases the new provider. To keep the new provider reserved, run `wharfinger "
        "provider reserve {uuid} --reason TEXT` before you end the former reservation."
    )
    provider: str
    uuid: str
    former: str
    commands: str


class ProviderRenamed(WharfingerError):
    """A root provider that a driver instance overlays has another name than its node."""

    template = (
        "root provider {provider} ({uuid}) has another name in Placement: {renamed}. Driver "
        "instance {instance} only overlays this root, and does not restore the name. The children "
        "of the root are published as before. Restore the name with `openstack resource provider "
        "set --name {provider} {uuid}`, or rename the node."
    )
    provider: str
    uuid: str
    renamed: str
    instance: str


class RootDeletionBlocked(WharfingerError):
    """Allocations below a root prevent another program from deleting that root."""

    template = (
        "another program has deleted providers {deleted}, as nova does when a compute service is "
        "deleted. Their root provider {root} ({uuid}) cannot be deleted, because of allocations "
        "from {children} below the root. If the compute service was deleted, run {commands}, "
        "which keeps the allocations, and then `openstack resource provider delete {uuid}`: "
        "nova-compute cannot create a new root before. If the compute service was not deleted, do "
        "nothing: this cycle creates the deleted providers again."
    )
    root: str
    uuid: str
    deleted: str
    children: str
    commands: str


class NameTaken(WharfingerError):
    """Another provider has the name that a provider needs."""

    template = (
        "driver instance {instance} cannot publish provider {provider}: provider {uuid} of "
        "{other}, in the tree of root {root_uuid}, already has this name. Rename one of the two "
        "providers."
    )
    provider: str
    instance: str
    uuid: str
    other: str
    root_uuid: str


class MassRemoval(WharfingerError):
    """Too many providers are absent at once, so none of them is removed."""

    template = (
        "{count} of the {total} providers of driver instance {instance} were not removed: they are "
        "all absent from its backend at once, which may be a fault of the backend. If the hardware "
        "is really gone, stop the agent and run `wharfinger sync --driver {instance} "
        "--allow-mass-removal`; otherwise repair the backend."
    )
    instance: str
    count: int
    total: int


class PartialListing(WharfingerError):
    """A listing of a driver lacks nodes or devices that still exist."""

    template = (
        "the listing of driver instance {instance} is partial: the listing lacks {some} ({count} "
        "in all), but the driver still has each of these when asked for it alone. These providers "
        "stay published. Find out why the listing is partial: a proxy, a limit, or missing rights "
        "of the driver's credentials."
    )
    instance: str
    count: int
    names: tuple[str, ...]
    some: str


class NodeTaken(WharfingerError):
    """Another host or driver instance publishes a node."""

    template = (
        "node {node} ({uuid}) is published by driver instance {other} on host {host}, so driver "
        "instance {instance} on this host does not publish the node. {remedy}"
    )
    node: str
    uuid: str
    instance: str
    other: str
    host: str
    remedy: str


class ClaimRefused(WharfingerError):
    """An instance cannot claim a node, or cannot drop a claim."""

    template = "instance {instance} on node {node} of host {host}: {problem}"
    instance: str
    node: str
    host: str
    problem: str


class ReservationRefused(WharfingerError):
    """A provider cannot be reserved, or a reservation cannot be ended."""

    template = "provider {provider} ({uuid}): {problem} {remedy}"
    provider: str
    uuid: str
    problem: str
    remedy: str


class DetachmentRefused(WharfingerError):
    """A provider cannot be detached from its root."""

    template = "provider {provider} ({uuid}) cannot be detached from its root: {problem}. {remedy}"
    provider: str
    uuid: str
    problem: str
    remedy: str


class JobRefused(WharfingerError):
    """A programming job did not start or had no effect, or cannot be resolved."""

    template = "device {provider} ({uuid}): {problem} {remedy}"
    provider: str
    uuid: str
    problem: str
    remedy: str


class JobUnresolved(WharfingerError):
    """The outcome of a programming job is unknown or was not stored."""

    template = "device {provider} ({uuid}): {problem} {remedy}"
    provider: str
    uuid: str
    problem: str
    remedy: str


class OwnershipConflict(WharfingerError):
    """A provider was not changed, because of its ownership."""

    template = "provider {provider} ({uuid}) was not changed: {problem} {remedy}"
    provider: str
    uuid: str
    owner: str
    other: str
    instance: str
    problem: str
    remedy: str


class AdoptionRefused(WharfingerError):
    """A provider cannot be adopted."""

    template = "driver instance {instance} {outcome}: {problem}"
    instance: str
    outcome: str
    problem: str


class InvalidRequest(WharfingerError):
    """A request for resources is invalid."""

    template = "{subject}: {key} = {value!r}: {problem}"
    subject: str
    key: str
    value: object
    problem: str


class NoCandidates(WharfingerError):
    """There is no free candidate for an instance; its allocations are unchanged."""

    template = "instance {instance}: flavor {flavor}: {problem} {remedy}"
    instance: str
    flavor: str
    problem: str
    remedy: str


class AllocationRefused(WharfingerError):
    """A change of the allocations of an instance was refused."""

    template = "instance {instance}: {problem} {remedy}"
    instance: str
    problem: str
    remedy: str


class AllocationLost(WharfingerError):
    """Another program has deleted the allocation of an instance."""

    template = (
        "instance {instance} on node {node} of host {host}: another program has deleted its "
        "allocation from Placement. Until the instance is repaired or released, these providers "
        "are fully reserved: {providers}. To restore the allocation, run `wharfinger instance "
        "repair {instance}`. To release the instance, add --release."
    )
    instance: str
    node: str
    host: str
    providers: str


class ClaimedAnew(AllocationRefused):
    """Another process has released an instance and claimed it again."""

    template = (
        "instance {instance}: the command stopped, since another process has released the instance "
        "and claimed it again. Check the instance (`wharfinger instance show {instance}`), then "
        "repeat the command."
    )


class BeingClaimed(AllocationRefused):
    """Another process is claiming the instance, or has died during the claim."""


class RequestFilterError(WharfingerError):
    """A request filter failed or returned a wrong type."""

    template = (
        "request filter {name}: {reason}. Repair the package of the filter, or remove the filter "
        "from [scheduling] request_filters."
    )
    name: str
    reason: str


class DeviceProfileError(WharfingerError):
    """A device profile cannot be read from its source, or is invalid."""

    template = "device profile {name}: {problem}"
    name: str
    problem: str


class StateError(WharfingerError):
    """State in the state directory or in a database cannot be used."""

    template = "state in {path}: {problem} {remedy}"
    path: str
    problem: str
    remedy: str


class DatabaseUnavailable(StateError):
    """The database does not answer now, but may answer later."""


class ObjectError(WharfingerError):
    """An error of a versioned object."""


class InvalidObject(ObjectError):
    """An object, or a filter for objects, is invalid."""

    template = "{subject}: {problem} {remedy}"
    subject: str
    problem: str
    remedy: str


class IncompatibleVersion(InvalidObject):
    """An object has a version that this process does not know."""


class FieldUnset(ObjectError):
    """A field of an object has no value."""

    template = "{subject}: {field} has no value: {problem}"
    subject: str
    field: str
    problem: str


_LISTS: Final = {
    "ComputeNode": "`wharfinger node list`",
    "DeviceJob": "`wharfinger device jobs`",
    "Flavor": "`wharfinger flavor list`",
    "Instance": "`wharfinger instance list`",
    "Migration": "`wharfinger migration list`",
    "Reservation": "`wharfinger reservation list`",
    "Service": "`wharfinger service list`",
}


class ObjectNotFound(ObjectError, ChangedMeanwhile):
    """An object does not exist."""

    template = "there is no {kind} {key}"
    kind: str
    key: str

    def __init__(self, **facts: object) -> None:
        super().__init__(**facts)
        if self.kind in _LISTS:
            self.args = (f"{self}. List all with {_LISTS[self.kind]}.",)


class ObjectExists(ObjectError, ChangedMeanwhile):
    """Another object has the same unique value."""

    template = (
        "{kind} {key} cannot be saved: another {kind} has the same {unique}. Change the {unique} "
        "of one of the two"
    )
    kind: str
    key: str
    unique: str


class ConcurrentSave(ObjectError, ChangedMeanwhile):
    """Another process has changed stored objects, so nothing was written.

    ``keys`` identifies the affected objects.
    """

    template = (
        "{kind} {keys!j}: nothing was written, since another process has saved the {kind} "
        "meanwhile. Read the {kind} again, and repeat the change"
    )
    kind: str
    keys: tuple[str, ...]


class IntentExpired(ObjectError, ChangedMeanwhile):
    """A provider was not written, since the plan is older than ``seconds``."""

    template = (
        "provider {provider} ({uuid}) was not written: its plan is older than {seconds:g} s, and "
        "another host may have taken the node over. The next cycle plans the provider again"
    )
    provider: str
    uuid: str
    seconds: float


class RemoteError(ObjectError):
    """A request to the agent's main process failed."""

    template = (
        "a request to the agent's main process, which has the database open, failed: {reason}"
    )
    reason: str


class PlacementError(WharfingerError):
    """A request to Placement failed."""

    template = "Placement: {request}: {status}: {detail}"
    #: The method and path, or the purpose.
    request: str
    #: The HTTP status (0: no answer).
    status: int = 0
    #: Placement's error code, empty without one.
    code: str = ""
    detail: str
    #: The request's id in Placement's log, empty without one.
    request_id: str

    def __init__(self, *, request_id: str = "", **facts: object) -> None:
        super().__init__(request_id=request_id, **facts)
        if request_id:
            self.args = (f"{self} (request {request_id})",)

    @property
    def identity(self) -> str:
        """Return the message without the request id."""
        return str(self).removesuffix(f" (request {self.request_id})")


class PlacementUnavailable(PlacementError):
    """Placement or Keystone is not available now, but may be later."""

    template = "Placement: {request}: {detail}"


class UnexpectedAnswer(PlacementError):
    """An answer does not follow the Placement API, or is too large."""

    template = "Placement: {request}: {status} with an answer that is not understood: {detail}"


class MicroversionUnsupported(PlacementError):
    """The Placement server is too old for a request."""

    template = "Placement: {request}: {detail}"


class PermissionRefused(PlacementError):
    """The credentials for Placement are invalid, or lack a role."""

    template = "Placement: {request}: {status}: not allowed: {detail} {remedy}"
    remedy: str


class NotFound(PlacementError, ChangedMeanwhile):
    """The requested object does not exist in Placement (404, or 200 with an empty list)."""


class UnknownTrait(PlacementError):
    """Placement does not know a standard trait."""

    template = (
        "Placement does not know the trait {trait}, and only CUSTOM_ traits can be created. "
        "{detail}"
    )
    trait: str


class Conflict(PlacementError):
    """Placement answered 409: the request conflicts with Placement's present state."""


class ConcurrentUpdate(Conflict, ChangedMeanwhile):
    """Another process has changed the provider or consumer since it was read."""


class InventoryInUse(Conflict):
    """An inventory with allocations cannot be removed."""


class ProviderInUse(Conflict):
    """A provider with allocations or children cannot be deleted."""


class DuplicateProvider(Conflict, ChangedMeanwhile):
    """A provider with the name or uuid already exists."""
