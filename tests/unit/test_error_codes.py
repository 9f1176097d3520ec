"""Codes of errors: each class has one, and none changes."""

import logging
import pickle
import re

import pytest

from wharfinger import exceptions
from wharfinger.error_codes import add_codes, code, with_code
from wharfinger.exceptions import BackendError, ObjectNotFound, WharfingerError

CLASSES = {
    name: one
    for name, one in vars(exceptions).items()
    if isinstance(one, type) and issubclass(one, WharfingerError)
}
#: Operators search for these codes, so none may be removed. A new class adds its code.
CODES = """
    AdoptionRefused AgentError AllocationLost AllocationRefused BackendError BeingClaimed
    ChangedMeanwhile ChildReplaced ClaimRefused ClaimedAnew CommandFailed ConcurrentSave
    ConcurrentUpdate
    ConfigurationError ConfigurationFileError ConfigurationRefused Conflict DatabaseUnavailable
    DetachmentRefused DeviceProfileError DriverError DriverLoadError DuplicateProvider
    FieldUnset IncompatibleVersion IntentExpired InvalidInventory InvalidName InvalidObject
    InvalidRequest InvalidTree InventoryInUse JobRefused JobUnresolved MassRemoval
    MicroversionUnsupported NameTaken NoCandidates NodeTaken NotFound ObjectError ObjectExists
    ObjectNotFound OwnershipConflict PartialListing PermissionRefused PlacementError
    PlacementUnavailable ProgrammingFailed ProgrammingRefused ProviderExists ProviderInUse
    ProviderMissing ProviderNotFound ProviderRenamed RemoteError RequestFilterError
    ReservationRefused ReshapeNeeded RootDeletionBlocked StateError UnexpectedAnswer
    UnknownTrait WharfingerError
"""


def test_each_code_is_a_class_and_each_class_has_a_code() -> None:
    assert CLASSES.keys() == set(CODES.split())


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_reference_has_the_meaning_of_each_code(name: str) -> None:
    # autodoc leaves out a class without docstring.
    assert "__doc__" in vars(CLASSES[name]) and CLASSES[name].__doc__
    assert not name.startswith("_")


def test_tree_in_the_reference_has_each_class_below_its_base() -> None:
    parents: dict[str, str] = {}
    above: list[str] = []
    for branch, name in re.findall(r"^    ([│├└─ ]*)(\w+)", exceptions.__doc__ or "", re.MULTILINE):
        depth = len(branch) // 4
        above[depth:] = [name]
        parents[name] = above[depth - 1] if depth else "Exception"

    assert parents == {name: one.__bases__[0].__name__ for name, one in CLASSES.items()}


class PoweredOff(BackendError):
    """An error of a driver."""


def test_code_of_a_class_of_a_driver_is_that_of_its_base() -> None:
    error = PoweredOff(driver="lab", operation="list", reason="off.")

    assert code(error) == "BackendError"
    assert with_code(error) == "driver lab: list failed: off. [BackendError]"


def test_code_of_another_error_is_absent() -> None:
    assert with_code(KeyError("x")) == "'x'"


@pytest.mark.parametrize(
    ("logged", "text"),
    [
        (("%s: %s", "lab", ObjectNotFound(kind="Card", key="x")), "lab: {error}"),
        ((ObjectNotFound(kind="Card", key="x"),), "{error}"),
        (("%d of %d", 1, 2), "1 of 2"),
    ],
)
def test_log_record_has_the_code_of_its_error_once(logged: tuple[object, ...], text: str) -> None:
    record = logging.LogRecord("x", logging.ERROR, "x.py", 1, logged[0], logged[1:], None)

    assert add_codes(record) and add_codes(record)  # two handlers get the same record

    assert record.getMessage() == text.format(error="there is no Card x [ObjectNotFound]")


def test_missing_object_names_the_command_that_lists_its_kind() -> None:
    error = ObjectNotFound(kind="Flavor", key="x")

    assert str(error) == "there is no Flavor x. List all with `wharfinger flavor list`."
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
