"""The harness that a driver's author supplies: a backend that the kit can change and break.

The kit finds it by an entry point in the group ``wharfinger.conformance_harness`` that has the
driver's name. ``wharfinger.conformance.backend_proxy`` injects faults into HTTP backends.
"""

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, Protocol

from wharfinger.conformance.backend_proxy import Proxy
from wharfinger.conformance.fault import Fault
from wharfinger.conformance.other_program_client import WritingClient
from wharfinger.driver.capabilities import SUPPORTED, Capability
from wharfinger.providers import Inventory

__all__ = ["COMMON_FAULTS", "Expected", "Fault", "Harness", "OldLayout", "Placement"]

#: The faults that every harness can cause. ``Harness.faults`` names more.
COMMON_FAULTS: Final = frozenset({Fault.RAISE, Fault.HANG, Fault.HALF, Fault.ERROR, Fault.DENIED})


class Placement(Protocol):
    """The real Placement to which the driver is published; for backends that use it themselves."""

    @property
    def url(self) -> str:
        """The URL. The first access starts to serve Placement over HTTP."""

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
    """The figures of one thing in the backend, read without the driver.

    ``totals`` are all resource classes of the thing's provider with their totals. ``traits`` are
    traits that the provider must have; it may have others.
    """

    totals: Mapping[str, int]
    traits: frozenset[str] = frozenset()


class Harness(abc.ABC):
    """A backend with things: the nodes or devices that the driver publishes as one provider each.

    A thing has the name of its provider. A method returns when the driver can see its effect. An
    exception ends the rule as an error of the harness, not of the driver. The kit calls ``start``
    first, ``reset`` before each rule that may find changes, and ``stop`` last. It calls all methods
    in one thread, and ``expect`` and ``calls`` also while a driver's call waits in another thread.
    """

    #: Whether another process with this configuration finds the backend, too.
    other_processes: ClassVar[Capability] = SUPPORTED
    #: Whether a thing can be busy: it exists and cannot be used, as during cleaning or programming.
    busy: ClassVar[Capability] = SUPPORTED
    #: Whether the backend cleans a thing some time after its release, and reports when that was.
    #: Unsupported: a free thing never has to be cleaned.
    cleaning: ClassVar[Capability] = SUPPORTED
    #: Number of things that the harness can add quickly. The kit adds up to four times as many, and
    #: thousands where ``grow`` adds them in seconds.
    growth: ClassVar[int] = 32
    #: Seconds after which the driver, configured as here, has given up a call that hangs.
    patience: ClassVar[float] = 5.0

    def __init__(self, directory: Path, placement: Placement) -> None:
        """Keep the arguments. ``directory`` is empty, and the harness may write there."""
        self.directory = directory
        self.placement = placement

    @abc.abstractmethod
    def start(self) -> None:
        """Start the backend."""

    def stop(self) -> None:  # noqa: B027 - optional
        """Stop the backend and release what it uses, even if ``start`` has failed."""

    @abc.abstractmethod
    def reset(self) -> None:
        """Restore the first state: nothing broken, and two or more things, none of them busy.

        The number of things is the same each time. Placement is empty before this call. Create the
        providers there that the driver needs and does not publish itself. Where there are very many
        things, the kit removes most of them before each rule but the rule of many things.
        """

    @abc.abstractmethod
    def configuration(self, instance: str) -> str:
        """Return the driver's sections, [<instance>] first; the text holds until ``stop``."""

    @abc.abstractmethod
    def things(self) -> Sequence[str]:
        """Return the names of the things that exist now."""

    @abc.abstractmethod
    def add(self) -> str:
        """Add a thing that is like the others and not busy; return its name."""

    def grow(self, count: int) -> None:
        """Add ``count`` things."""
        for _ in range(count):
            self.add()

    @abc.abstractmethod
    def remove(self, thing: str) -> None:
        """Remove a thing, as if it were unplugged or deleted."""

    @abc.abstractmethod
    def put_back(self, thing: str) -> None:
        """Add a removed thing again, unchanged."""

    def make_busy(self, thing: str) -> None:
        """Make a thing busy. Not called if ``busy`` is unsupported.

        It stays busy until ``make_free``, however late it is by the clock.
        """
        raise NotImplementedError

    def make_free(self, thing: str) -> None:
        """End the reason why a thing is busy."""
        raise NotImplementedError

    @abc.abstractmethod
    def restart(self) -> None:
        """Stop the backend and start it again with the same things."""

    @abc.abstractmethod
    def expect(self, at: int | None = None, fault: Fault | None = None) -> None:
        """Clear ``calls``, end a call that hangs, and break the calls from now on.

        The call with the index ``at`` meets ``fault``; with ``at`` None, every call does. Without a
        fault, every call passes.
        """

    @property
    @abc.abstractmethod
    def calls(self) -> Sequence[str]:
        """Return the driver's calls since the last ``expect``, in a few words each."""

    # Abilities that a harness may leave out. The rules that need one are reported as unproven then.

    @property
    def faults(self) -> frozenset[Fault]:
        """The faults that ``expect`` can cause: all of them where an attribute is a Proxy."""
        return frozenset(Fault) if self._proxies() else COMMON_FAULTS

    def forget(self) -> None:
        """Forget all answers, so that none of them is given as a stale one.

        Called after ``reset`` where ``faults`` has STALE. Inherited: each Proxy forgets.
        """
        for proxy in self._proxies():
            proxy.forget()

    def _proxies(self) -> list[Proxy]:
        return [value for value in vars(self).values() if isinstance(value, Proxy)]

    def expected(self) -> Mapping[str, Expected]:
        """Return the present figures of each thing that is not busy, read from the backend.

        Without it, the kit compares figures only with earlier figures of the same driver. A driver
        passes that publishes a constant, or the figures of another device.
        """
        raise NotImplementedError

    def change(self, thing: str) -> None:
        """Change a total or a trait of a thing in place, to a value that it did not have before.

        Without it, a driver passes that reads a thing once and remembers it. Where all things are
        alike, a driver also passes that confuses them.
        """
        raise NotImplementedError

    def use(self, thing: str) -> None:
        """Let an instance use a part of a thing. Its totals stay the same, and it is not busy.

        Before this, the kit has allocated a part of the thing in Placement. Without it, a driver
        passes that asks its backend for what is used, and publishes the rest.
        """
        raise NotImplementedError

    def second_host(self, instance: str) -> str:
        """Return the configuration of the driver on another host, with things of its own.

        The text is like that of ``configuration``. The two hosts have no name in common.

        Without it, the kit only gives this host another name. Names and uuids that do not depend
        on the name of the host are then the same on all hosts, and the driver passes.
        """
        raise NotImplementedError

    # Methods that a capability of the driver needs.

    def use_old_layout(self) -> OldLayout:
        """Let instances use inventory that has to move; return how it was published (``reshape``).

        The driver raises ReshapeNeeded when it finds this.
        """
        raise NotImplementedError

    def image(self, thing: str) -> tuple[str, str]:
        """Return the uuid of an image for a thing and the name of its function (``programming``).

        The function is not the one that the thing has.
        """
        raise NotImplementedError
