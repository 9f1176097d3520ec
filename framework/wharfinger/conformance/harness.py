"""The harness of a driver's author: a backend that the kit can change and break.

The kit finds it by the entry point with the driver's name in ``wharfinger.conformance_harness``.
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
    """The Placement to which the kit publishes, for backends that use Placement themselves."""

    @property
    def url(self) -> str:
        """The URL. The first access starts to serve Placement over HTTP."""

    @property
    def client(self) -> WritingClient:
        """A client that calls this Placement without HTTP."""


@dataclass(frozen=True, slots=True)
class OldLayout:
    """A node whose inventory and allocations are on the root, before they move to children."""

    #: The inventories of the root, by resource class.
    inventories: Mapping[str, Inventory]
    #: The allocated amounts of the root, by the uuid of the consumer and by class.
    allocations: Mapping[str, Mapping[str, int]]
    #: The amounts that each consumer has to have after the reshape, by consumer, thing and class.
    #: None if unknown: then it is unproven whether the allocations move to the right things.
    uses: Mapping[str, Mapping[str, Mapping[str, int]]] | None = None


@dataclass(frozen=True, slots=True)
class Expected:
    """The totals and traits that a thing's provider must have, read without the driver."""

    #: All resource classes of the provider with their totals.
    totals: Mapping[str, int]
    #: Traits that the provider must have. It may have others.
    traits: frozenset[str] = frozenset()


class Harness(abc.ABC):
    """A backend with things: the nodes or devices that the driver publishes as one provider each.

    The name of a thing is the name of its provider. A method returns when the driver can see its
    effect. If a method raises, the result of the rule is "not run".

    The kit calls ``start`` first, ``reset`` often, and ``stop`` last, all in one thread. Meanwhile
    the driver may wait for the backend in another thread.
    """

    #: Whether a driver in another process reaches the backend with the same configuration.
    other_processes: ClassVar[Capability] = SUPPORTED
    #: Whether a thing can be busy: it exists and cannot be used, as during cleaning or programming.
    busy: ClassVar[Capability] = SUPPORTED
    #: Whether the backend cleans a thing some time after its release, and reports when it did.
    #: Unsupported means that a free thing never has to be cleaned.
    cleaning: ClassVar[Capability] = SUPPORTED
    #: Whether a total or a trait of a thing can change in place (``change``).
    changes: ClassVar[Capability] = SUPPORTED
    #: Whether a consumer can use a part of a thing that does not become busy (``use``).
    uses: ClassVar[Capability] = SUPPORTED
    #: Number of things that the harness can make quickly. The kit makes up to four times as many,
    #: and thousands if ``grow`` adds them in seconds.
    growth: ClassVar[int] = 32
    #: Seconds after which the driver, with this configuration, has given up a call that hangs.
    patience: ClassVar[float] = 5.0

    def __init__(self, directory: Path, placement: Placement) -> None:
        """Keep the arguments. ``directory`` is empty, for files of the harness."""
        self.directory = directory
        self.placement = placement

    @abc.abstractmethod
    def start(self) -> None:
        """Start the backend."""

    def stop(self) -> None:  # noqa: B027 - optional
        """Stop the backend and release what it uses, even if ``start`` has failed."""

    @abc.abstractmethod
    def reset(self) -> None:
        """Restore the first state: no fault, and two or more things, none of them busy.

        The number of things is the same each time. The driver's ``get_problems`` must return
        nothing. Placement is empty: create the providers that the driver needs and does not
        publish. The kit may then remove all things but the first 16.
        """

    @abc.abstractmethod
    def configuration(self, instance: str) -> str:
        """Return the sections of the driver's configuration file; [<instance>] is the first.

        The text must stay valid until ``stop``.
        """

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
        """Make a thing busy until ``make_free``, even if the kit sets the clocks ahead.

        Not called if ``busy`` is unsupported.
        """
        raise NotImplementedError

    def make_free(self, thing: str) -> None:
        """Make a busy thing usable again."""
        raise NotImplementedError

    @abc.abstractmethod
    def restart(self) -> None:
        """Stop the backend and start it again with the same things."""

    @abc.abstractmethod
    def expect(self, at: int | None = None, fault: Fault | None = None) -> None:
        """Clear ``calls``, release calls that hang, and inject ``fault`` from now on.

        The call with the index ``at``, counted from 0, meets the fault; with None, every call.
        """

    @property
    @abc.abstractmethod
    def calls(self) -> Sequence[str]:
        """Return the driver's calls to the backend since the last ``expect``, as short texts."""

    # Optional methods. Without one, rules whose check needs it, or sees more with it, are unproven.

    @property
    def faults(self) -> frozenset[Fault]:
        """The faults that ``expect`` can inject.

        By default, all if an attribute is a Proxy, otherwise COMMON_FAULTS.
        """
        return frozenset(Fault) if self._proxies() else COMMON_FAULTS

    def forget(self) -> None:
        """Forget the earlier answers, so that STALE repeats none of them.

        By default, each attribute that is a Proxy does it.
        """
        for proxy in self._proxies():
            proxy.forget()

    def _proxies(self) -> list[Proxy]:
        return [value for value in vars(self).values() if isinstance(value, Proxy)]

    def expected(self) -> Mapping[str, Expected]:
        """Return the present totals and traits of each thing that is not busy, from the backend.

        Without this method, the kit does not notice that a driver publishes constants.
        """
        raise NotImplementedError

    def change(self, thing: str) -> None:
        """Change a total or a trait of a thing in place, to a value that it did not have before.

        Without this method, the kit does not notice that a driver reads a thing only once.
        """
        raise NotImplementedError

    def use(self, thing: str) -> None:
        """Let a consumer, such as an instance of nova, use a part of a thing.

        The totals stay, and the thing is not busy. Without this method, the kit does not notice
        that a driver publishes only the unused part.
        """
        raise NotImplementedError

    def second_host(self, instance: str) -> str:
        """Return the configuration of the driver on another host, which has other things.

        The names of the nodes and devices differ, too. Without this method, the kit does not
        notice that a driver publishes the same uuids on all hosts.
        """
        raise NotImplementedError

    # Methods for drivers with a certain capability.

    def use_old_layout(self) -> OldLayout:
        """Return an old layout of a node, which the driver has to reshape.

        Let the layout's consumers use the node, if the backend knows consumers. Only for drivers
        that support ``reshape``.
        """
        raise NotImplementedError

    def image(self, thing: str) -> tuple[str, str]:
        """Return the uuid of an image for a thing, and the function of the image.

        The thing must not have this function yet. Only for drivers that support ``programming``.
        """
        raise NotImplementedError
