"""Call a driver's methods to observe their effects on the process."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final
from weakref import WeakSet

from wharfinger.conformance import process_state
from wharfinger.conformance.backend_frames import BackendFrames
from wharfinger.conformance.harness import Fault
from wharfinger.conformance.idle_observer import IdleObserver
from wharfinger.conformance.placement_diff import Contents
from wharfinger.conformance.print_observer import PrintObserver
from wharfinger.conformance.process_observer import Misuse
from wharfinger.conformance.rules import can_be_busy
from wharfinger.conformance.sleep_observer import SleepObserver
from wharfinger.conformance.subject import Subject, as_contents, describe, tree_of
from wharfinger.driver import ComputeDriver
from wharfinger.providers import Provider
from wharfinger.reconcile import driver_instance_loader

#: Methods that may sleep while they wait for the backend.
_MAY_WAIT: Final = frozenset({"program"})
#: Faults that all calls meet in turn. Not HANG, which takes long and which other rules inject.
_FAULTS: Final = (Fault.RAISE, Fault.ERROR, Fault.DENIED, Fault.HALF)
#: Errors to ignore: other rules check the exceptions of a driver.
_ANY: Final = Exception
_DONE: Final[WeakSet[Subject]] = WeakSet()


def exercise(subject: Subject) -> None:
    """Let ``subject.process`` record the effects of the driver's methods."""
    if subject not in _DONE:
        _Exercise(subject).run()
        _DONE.add(subject)


class _Exercise:
    def __init__(self, subject: Subject) -> None:
        kind = subject.kind
        self._subject: Final = subject
        backend = BackendFrames(subject.declared, kind)
        self._sleeps = SleepObserver(subject.process, backend, _MAY_WAIT)
        self._idle = IdleObserver(backend, _MAY_WAIT)
        self._prints = PrintObserver(subject.process, kind.__module__.partition(".")[0])
        self._live: Contents = subject.placement.contents()
        self._mark: str | None = None
        self._driver: ComputeDriver

    def run(self) -> None:
        observers = self._subject.observers
        kept, before = [*observers], process_state.snapshot()
        with self._prints.watching(), self._sleeps.watching_select(), self._idle.watching():
            observers += [self._prints, self._sleeps, self._idle]
            try:
                self._call_all()
                if waits := self._idle.take():
                    # Other programs may have made the driver wait.
                    self._subject.begin()
                    self._call_all()
                    for where in waits & self._idle.take():
                        self._subject.process.note(Misuse.SLEEP, f"it waits ({where})", "some call")
            finally:
                observers[:] = kept
        self._subject.process.look_at_patches("some call")
        self._subject.process.see_later_changes(before)

    def _call_all(self) -> None:
        for work in (self._everything, self._call_reading_methods):
            with self._connected():
                work()

    @contextmanager
    def _connected(self) -> Iterator[None]:
        self._driver = self._subject.load().driver
        with ExitStack() as stack:
            stack.enter_context(driver_instance_loader.connected(self._driver))
            yield

    def _everything(self) -> None:
        self._call_reading_methods()
        self._call_reading_methods()
        if self._subject.has_harness:
            self._change_things()
            self._break_backend()
            self._program()
            self._reshape()

    def _change_things(self) -> None:
        harness, subject = self._subject.harness, self._subject
        thing = harness.things()[0]
        if can_be_busy(subject):
            for _ in range(2):
                harness.make_busy(thing)
                self._call_reading_methods()
                harness.make_free(thing)
                self._call_reading_methods()
        for method in ("use", "change"):
            if subject.can(method):
                getattr(harness, method)(thing)
                self._call_reading_methods()
        new = subject.add()
        self._call_reading_methods()
        for _ in range(2):
            harness.remove(new)
            self._call_reading_methods()
            harness.put_back(new)
            self._call_reading_methods()

    def _break_backend(self) -> None:
        harness = self._subject.harness
        for fault in _FAULTS:
            harness.expect(None, fault)
            # The driver may sleep between two attempts.
            self._sleeps.backend_fails = self._idle.is_off = True
            self._call_reading_methods()
            harness.expect()
            self._call_reading_methods()  # the driver may connect again here
            self._sleeps.backend_fails = self._idle.is_off = False
            self._call_reading_methods()

    def _program(self) -> None:
        if self._driver.capabilities.supports("programming") and self._subject.can("image"):
            thing = self._subject.harness.things()[0]
            if thing not in self._live:
                return
            uuid, function = self._subject.harness.image(thing)
            for _ in range(2):
                self._call(self._driver.program, self._live[thing].uuid, uuid, function)
                self._call_reading_methods()

    def _reshape(self) -> None:
        subject, driver = self._subject, self._driver
        root = next((one for one in self._live.values() if one.parent_uuid is None), None)
        can_move = driver.capabilities.supports("reshape") and subject.can("use_old_layout")
        if root is None or not can_move:
            return
        layout = subject.harness.use_old_layout()
        allocations = {
            consumer: {"allocations": {root.uuid: {"resources": {**amounts}}}}
            for consumer, amounts in layout.allocations.items()
        }
        self._call(driver.get_available_nodes, True)
        for its in (None, allocations):
            before = replace(root, inventories=layout.inventories)
            tree = tree_of(root.name, root.uuid, {root.name: before})
            self._call(driver.update_provider_tree, tree, root.name, its)

    def _call_reading_methods(self) -> None:
        driver, before = self._driver, self._live
        with suppress(_ANY):
            self._live = as_contents(describe(driver, before))
        self._call(driver.capabilities_as_traits)
        self._call(driver.get_problems)
        for provider in {**before, **self._live}.values():
            self._call_reading_methods_of(provider)
        if driver.capabilities.supports("change_feed"):
            with suppress(_ANY):
                _, self._mark = driver.changed_nodes(self._mark)

    def _call_reading_methods_of(self, provider: Provider) -> None:
        driver = self._driver
        if provider.parent_uuid is None:
            self._call(driver.get_available_resource, provider.name)
            self._call(driver.node_is_available, provider.name)
        else:
            self._call(driver.provider_is_available, provider.uuid, provider.name)
        if driver.capabilities.supports("cleans_after_release"):
            self._call(driver.is_clean, provider.uuid, datetime.now(UTC))
        if driver.capabilities.supports("programming"):
            self._call(driver.current_function, provider.uuid)
            self._call(driver.programming_scope, provider.uuid)

    def _call(self, method: Callable[..., Any], *arguments: Any) -> None:
        with suppress(_ANY):
            method(*arguments)
