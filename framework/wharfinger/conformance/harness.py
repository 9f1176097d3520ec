"""What a driver's author supplies: a backend that the kit can change, and break.

Named by an entry point in the group ``wharfinger.conformance_harness`` that is called as the
driver is. ``wharfinger.conformance.backend_proxy`` breaks what answers over HTTP.
"""

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, Final, Protocol

from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.driver.capabilities import SUPPORTED, Capability
from wharfinger.providers import Inventory


class Fault(StrEnum):
    """What can happen to a call that a driver makes to its backend."""

    #: It is refused, or the connection breaks.
    RAISE = "raise"
    #: It is not answered, until the next ``Harness.expect``; whoever waits still is refused then.
    HANG = "hang"
    #: The answer breaks off in its middle.
    HALF = "half"
    #: It is answered with an error, in the backend's own words: a status, a refusal.
    ERROR = "error"
    #: It is answered that whoever asks may not know.
    DENIED = "denied"


#: The faults that every harness can cause. ``Harness.faults`` names more.
COMMON_FAULTS: Final = frozenset({Fault.RAISE, Fault.HANG, Fault.HALF, Fault.ERROR, Fault.DENIED})


class Placement(Protocol):
    """The real Placement to which the driver is published; for backends that use it themselves."""

    @property
    def url(self) -> str:
        """Where it is served over HTTP, from the first time that this is asked for."""

    @property
    def client(self) -> WritingClient:
        """A client of it in this process."""


@dataclass(frozen=True, slots=True)
class OldLayout:
    """A node as it was published before its inventory moved, and what is allocated from it.

    ``inventories`` are the root's, by resource class. ``allocations`` are amounts by class, by the
    uuid of the consumer. ``uses`` are, by consumer and thing, the amounts by class that the
    consumer uses: after the reshape they are its allocations of the thing's provider. Without them
    it is unproven whether the driver moves allocations to the right things.
    """

    inventories: Mapping[str, Inventory]
    allocations: Mapping[str, Mapping[str, int]]
    uses: Mapping[str, Mapping[str, Mapping[str, int]]] | None = None


@dataclass(frozen=True, slots=True)
class Expected:
    """What the backend has for one thing, read without the driver.

    ``totals`` are all resource classes of the thing's provider with their totals. ``traits`` are
    traits that the provider must have; it may have others.
    """

    totals: Mapping[str, int]
    traits: frozenset[str] = frozenset()


class Harness(abc.ABC):
    """One backend, with things in it: nodes or devices, each the backend of one provider.

    A thing is called as its provider is. Every method returns when a driver that asks sees what
    it has done; whatever it raises ends the rule as an error of the harness. ``start`` comes first
    and ``stop`` last, ``reset`` before each rule, unless nothing can have changed since the last
    one. Called by one thread; ``expect`` and ``calls`` while another waits in the driver.
    """

    #: Whether another process, with this configuration, finds the backend, too.
    other_processes: ClassVar[Capability] = SUPPORTED
    #: Whether a thing can be busy: there, and not to be had. Such as cleaned, or programmed.
    busy: ClassVar[Capability] = SUPPORTED
    #: Whether the backend cleans a thing some time after its release, and reports when that was.
    #: Unsupported: a free thing never has to be cleaned.
    cleaning: ClassVar[Capability] = SUPPORTED
    #: How many things can be made quickly, for what they cost: four times as many are made.
    growth: ClassVar[int] = 32
    #: Seconds after which a driver, configured as here, has given up a call that hangs.
    patience: ClassVar[float] = 5.0
    #: The faults that ``expect`` can cause.
    faults: ClassVar[frozenset[Fault]] = COMMON_FAULTS

    def __init__(self, directory: Path, placement: Placement) -> None:
        """``directory`` is empty, and the harness's to write to."""
        self.directory = directory
        self.placement = placement

    @abc.abstractmethod
    def start(self) -> None:
        """Make the backend."""

    def stop(self) -> None:  # noqa: B027 - optional
        """Let go of it, even where ``start`` has failed."""

    @abc.abstractmethod
    def reset(self) -> None:
        """Have it whole, unbroken, and with things that are free: two or more, as many each time.

        Nothing is in Placement before this. What the driver needs to find there, and does not
        publish, is put there.
        """

    @abc.abstractmethod
    def configuration(self, instance: str) -> str:
        """The text of the driver's sections, [<instance>] first, for as long as it is started."""

    @abc.abstractmethod
    def things(self) -> Sequence[str]:
        """The things that there are."""

    @abc.abstractmethod
    def add(self) -> str:
        """Have one more thing, free and like the others; returns its name."""

    def grow(self, count: int) -> None:
        """Have that many more things."""
        for _ in range(count):
            self.add()

    @abc.abstractmethod
    def remove(self, thing: str) -> None:
        """Have a thing be gone: pulled, or deleted."""

    @abc.abstractmethod
    def put_back(self, thing: str) -> None:
        """Have a thing back that was removed, as it was."""

    def make_busy(self, thing: str) -> None:
        """Have a thing be busy, unless ``busy`` is declared as unsupported.

        It stays busy until ``make_free``, however late it is by the clock.
        """
        raise NotImplementedError

    def make_free(self, thing: str) -> None:
        """Have a busy thing be free again."""
        raise NotImplementedError

    @abc.abstractmethod
    def restart(self) -> None:
        """Stop the backend and start it again; what it knows stays."""

    @abc.abstractmethod
    def expect(self, at: int | None = None, fault: Fault | None = None) -> None:
        """Forget the calls that were made, and let go of one that hangs.

        From now on the call with the index ``at`` meets ``fault``; ``at`` None: every call does.
        Without a fault, all pass.
        """

    @property
    @abc.abstractmethod
    def calls(self) -> Sequence[str]:
        """The calls to the backend since the last ``expect``, each in a few words."""

    # Abilities that a harness may leave out. The rules that need one are reported as unproven then.

    def expected(self) -> Mapping[str, Expected]:
        """Return what the backend has now, by thing: every thing that is not busy."""
        raise NotImplementedError

    def change(self, thing: str) -> None:
        """Change a total or a trait of a thing in place, to a value that it did not have before."""
        raise NotImplementedError

    def use(self, thing: str) -> None:
        """Let an instance use a part of a thing. The thing keeps what it has, and is not busy."""
        raise NotImplementedError

    def second_host(self) -> str:
        """Return the configuration of the driver on another host, with things of its own.

        The text is like that of ``configuration``, for the same instance name.
        """
        raise NotImplementedError

    # What a capability of the driver needs.

    def use_old_layout(self) -> OldLayout:
        """Have instances use what has to move (``reshape``); how all of it was published.

        The driver raises ReshapeNeeded where it finds that.
        """
        raise NotImplementedError

    def image(self, thing: str) -> tuple[str, str]:
        """The uuid of an image that a thing can be programmed with, and its function's name.

        With ``programming``. The function is not the one that the thing has.
        """
        raise NotImplementedError
