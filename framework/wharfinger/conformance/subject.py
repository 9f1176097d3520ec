"""The driver under test, its backend and a Placement."""

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Final

from wharfinger import conf
from wharfinger.conf import DefaultSection, InstanceSection, Options
from wharfinger.conformance import clock_shift
from wharfinger.conformance.driver_observer import CallObserver, calling, observe
from wharfinger.conformance.exceptions import NotShown, Violation
from wharfinger.conformance.harness import COMMON_FAULTS, Fault, Harness
from wharfinger.conformance.placement import RunPlacement
from wharfinger.conformance.placement_diff import Contents, trees
from wharfinger.conformance.process_observer import ProcessObserver
from wharfinger.conformance.quick_databases import staying_open
from wharfinger.conformance.tree_invariants import TreeInvariants
from wharfinger.driver import Capabilities, ComputeDriver, loader
from wharfinger.driver.signatures import takes_migrations
from wharfinger.exceptions import ConfigurationError, DriverLoadError, WharfingerError
from wharfinger.objects import Migration
from wharfinger.objects.database_context import local
from wharfinger.placement.model import ProviderSummary
from wharfinger.providers import DesiredProvider, Inventory, Provider, ProviderTree, PublishingMode
from wharfinger.providers.ownership import NOVA
from wharfinger.providers.removal import RemovalPolicy
from wharfinger.reconcile import driver_instance_loader
from wharfinger.reconcile.cycle import Reconciler
from wharfinger.reconcile.cycle_result import CycleResult
from wharfinger.reconcile.desire import REPORTED
from wharfinger.reconcile.driver_calls import check_names
from wharfinger.reconcile.driver_calls import describe as describe_nodes
from wharfinger.reconcile.driver_instance_loader import Instance
from wharfinger.reconcile.node_list import NodeList

#: The name of the driver instance, unless a configuration file enables one of the driver.
INSTANCE: Final = "conformance"
#: The least number of things of a harness.
_FEWEST: Final = 2
#: Full cycles, and seconds by the clocks, after which a driver must no longer reserve a free thing.
FREE_CYCLES: Final = 10
FREE_SECONDS: Final = 600
#: Seconds to wait after each of those cycles, except the first _PROMPT: a driver may have a timer.
_PAUSE: Final = 1.0
_PROMPT: Final = 3
#: The most things that stay before most rules, and the seconds that removing the others may take.
_MANY: Final = 16
_SHRINKING: Final = 20.0


class Subject:
    """One driver under test, with a backend and a Placement."""

    def __init__(
        self,
        name: str,
        directory: Path,
        placement: RunPlacement,
        *,
        config_file: Path | None = None,
        harness: Harness | None = None,
        seed: int = 0,
        examples: int = 10,
        thorough: bool = False,
    ) -> None:
        self.name: Final = name
        self.placement: Final = placement
        self.seed: Final = seed
        self.examples: Final = examples
        self.thorough: Final = thorough
        #: The ids of the rules that were found broken.
        self.broken: Final[set[str]] = set()
        self.process: Final = ProcessObserver()
        #: The observers of every call to the driver's instances.
        self.observers: Final[list[CallObserver]] = [self.process]
        self._harness: Final = harness
        self._config_file: Final = config_file
        self._directory: Final = directory
        self._begun = 0
        self._count: int | None = None
        #: The providers in Placement after a reset; None if the backend may have changed since.
        self._fresh: list[ProviderSummary] | None = None

    @property
    def harness(self) -> Harness:
        """The harness, for callers that may change the backend. Raises NotShown."""
        self._fresh = None
        if self._harness is None:
            raise NotShown("there is no harness")
        return self._harness

    @property
    def declared(self) -> Harness | None:
        """The harness, if any, for callers that change nothing."""
        return self._harness

    @property
    def has_harness(self) -> bool:
        """Whether there is a harness."""
        return self._harness is not None

    def can(self, method_or_fault: str) -> bool:
        """Return whether the harness overrides this method or can inject this fault."""
        if self._harness is None:
            return False
        if method_or_fault in [*Fault]:
            return method_or_fault in self._harness.faults
        kind = getattr(self._harness, "kind", type(self._harness))
        return getattr(kind, method_or_fault, None) is not getattr(Harness, method_or_fault)

    def is_impossible(self, method: str) -> bool:
        """Return whether ``method`` is change or use, and declared unsupported."""
        if self._harness is None:
            return False
        declared = {"change": self._harness.changes, "use": self._harness.uses}
        return method in declared and not declared[method].supported

    def possible(self, faults: Iterable[Fault]) -> list[Fault]:
        """Select the faults that the harness can inject."""
        return [fault for fault in faults if fault in COMMON_FAULTS or self.can(fault)]

    @cached_property
    def kind(self) -> type[ComputeDriver]:
        """The driver's class. Raises DriverLoadError."""
        return loader.load(self.name)

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities that the driver declares. Raises DriverLoadError."""
        return self.kind.capabilities

    # Configuration.

    @cached_property
    def instance_name(self) -> str:
        """The name of the driver instance. Raises ConfigurationError and ConfigurationFileError."""
        if self._config_file is None:
            return INSTANCE
        found = conf.parse([str(self._config_file)], [])
        names = [
            name
            for name in DefaultSection.read(found).enabled_drivers
            if InstanceSection.read(found, name).driver == self.name
        ]
        if len(names) > 1:
            raise ConfigurationError(
                section="DEFAULT",
                key="enabled_drivers",
                value=", ".join(names),
                problem=f"{self._config_file} enables several instances of driver {self.name}.",
                remedy="Use a copy of this file that enables only one of these instances.",
            )
        return names[0] if names else self.name

    def configured(self) -> Options:
        """Read the configuration. Raises ConfigurationError and ConfigurationFileError."""
        return conf.parse([str(file) for file in self.files()], [])

    def files(self) -> list[Path]:
        """Write the kit's configuration files; return all configuration files."""
        name = self.instance_name
        # Later files override earlier ones: the author's state_path is not used.
        ours = self._directory / "ours.conf"
        ours.write_text(
            f"[DEFAULT]\nenabled_drivers = {name}\nstate_path = {self.state_path}\n"
            f"[{name}]\ndriver = {self.name}\n"
        )
        files = [ours]
        if self._config_file is not None:
            files.insert(0, self._config_file)
        elif self._harness is not None:
            theirs = self._directory / "harness.conf"
            theirs.write_text(self._harness.configuration(name))
            files.insert(0, theirs)
        return files

    @property
    def state_path(self) -> Path:
        """The state directory of the present check."""
        return self._directory / f"state-{self._begun}"

    def begin_check(self) -> None:
        """Like ``begin``, but may skip the reset of an unchanged Placement and harness."""
        if self._fresh is not None and self._fresh == self.placement.listed():
            self._begin_state()
        else:
            self.begin()
            # Without a harness, the backend may change at any time.
            self._fresh = None if self._harness is None else self.placement.listed()

    def begin(self, *, keep_all_things: bool = False) -> None:
        """Reset Placement, the state directory, and the harness if any. Raises NotShown."""
        self._fresh = None
        self._begin_state()
        self.placement.empty()
        if self._harness is not None:
            self._harness.reset()
            self._harness.forget()
            self._check_things(self._harness.things())
            if not keep_all_things:
                self._remove_most_things(self._harness)
            self._harness.expect()
        else:
            self._create_overlaid_roots()

    def _remove_most_things(self, harness: Harness) -> None:
        deadline = time.monotonic() + _SHRINKING
        for thing in reversed([*harness.things()][_MANY:]):
            if time.monotonic() > deadline:
                return
            try:
                harness.remove(thing)
            except NotShown:  # the harness cannot remove it: the rule uses the things that exist
                return

    def _begin_state(self) -> None:
        self._begun += 1
        shutil.copytree(self._empty_state, self.state_path)
        if self._harness is not None:
            self._harness.expect()

    @cached_property
    def _empty_state(self) -> Path:
        # It is copied for each check, since creating a database is slow.
        directory = self._directory / "empty"
        local(directory, INSTANCE).close()
        return directory

    def _create_overlaid_roots(self) -> None:
        try:
            with self.driver() as driver:
                described = describe(driver)
        except (Exception, SystemExit):
            return
        if not described:
            raise NotShown("the driver lists no node, but the kit needs one")
        for name, one in described.items():
            is_overlaid = not one.stated or one.mode is PublishingMode.OVERLAY
            if one.provider.parent_uuid is None and is_overlaid:
                self.placement.create(
                    name, {"VCPU": Inventory(total=8)}, frozenset({NOVA}), uuid=one.provider.uuid
                )

    def add(self) -> str:
        """Let the harness add a node or device; return the name. Raises NotShown."""
        before = [*self.harness.things()]
        thing = self.harness.add()
        if thing in before or thing not in self.harness.things():
            raise NotShown(f"the harness should add a thing, but returned {thing!r}")
        return thing

    def _check_things(self, things: Sequence[str]) -> None:
        if len({*things}) < _FEWEST or len({*things}) != len(things):
            raise NotShown(
                f"the harness has the things {[*things]}, not {_FEWEST} or more different ones"
            )
        if self._count not in (None, len(things)):
            raise NotShown(f"the harness has {len(things)} things after a reset, not {self._count}")
        self._count = len(things)

    def load(self) -> Instance:
        """Return a new driver instance that is not connected."""
        conf = self.configured()
        with suppress(DriverLoadError):
            _ = self.kind  # imports the driver, so that observers do not see the import
        with calling("__init__", self.observers):
            instance = driver_instance_loader.load(conf, self.instance_name)
        observe(instance.driver, self.observers)
        return instance

    @contextmanager
    def driver(self) -> Iterator[ComputeDriver]:
        """Yield a new connected driver instance."""
        driver = self.load().driver
        with driver_instance_loader.connected(driver):
            yield driver

    def in_another_process(self) -> AbstractContextManager[None]:
        """Count the time of the block as the driver's."""
        clocks = [one for one in self.observers if one is not self.process]
        return calling("work in another process", clocks)

    @contextmanager
    def driver_elsewhere(self, host: str, configuration: str) -> Iterator[ComputeDriver]:
        """Yield a connected driver instance that has this host name."""
        state = self._directory / f"state-{self._begun}-{host}"
        state.mkdir(exist_ok=True)
        theirs, there = self._directory / "elsewhere.conf", self._directory / "host.conf"
        theirs.write_text(configuration)
        there.write_text(f"[DEFAULT]\nhost = {host}\nstate_path = {state}\n")
        options = conf.parse([str(file) for file in (theirs, *self.files()[1:], there)], [])
        with calling("__init__", self.observers):
            instance = driver_instance_loader.load(options, self.instance_name)
        observe(instance.driver, self.observers)
        with driver_instance_loader.connected(instance.driver):
            yield instance.driver

    @contextmanager
    def publishing(self) -> Iterator["Publishing"]:
        """Yield a started Publishing; stop it after the block."""
        publishing = Publishing(self)
        try:
            publishing.start()
            yield publishing
        finally:
            publishing.stop()


class Publishing:
    """A driver instance that publishes to the kit's Placement."""

    def __init__(self, subject: Subject) -> None:
        self._subject: Final = subject
        self._open = ExitStack()
        self._theirs: Final = subject.placement.contents()
        self._invariants: TreeInvariants | None = None
        self._ahead = 0
        self.cycle: Reconciler
        self.driver: ComputeDriver

    def start(self) -> None:
        """Start a new driver instance."""
        instance = self._subject.load()
        self.publisher = instance.publisher
        self._invariants = self._invariants or TreeInvariants(
            self._theirs, self.publisher, may_rename=not self._subject.has_harness
        )
        with staying_open():
            context = local(self._subject.state_path, instance.driver.host)
        self._open.callback(context.close)
        self.driver = instance.driver
        self.cycle = self._open.enter_context(
            driver_instance_loader.running(
                instance,
                self._subject.placement.client,
                context,
                policy=RemovalPolicy(delay=0, allow_mass=True),
            )
        )

    def stop(self) -> None:
        """Stop the driver instance, and set the clocks back."""
        try:
            self._open.close()
        finally:
            self.advance(-self._ahead)

    def restart(self) -> None:
        """Stop the driver instance and start a new one."""
        self._open.close()
        self.start()

    def advance(self, seconds: int) -> None:
        """Set the clocks of this process ahead, until ``stop``."""
        if seconds:
            self._ahead += seconds
            clock_shift.advance(seconds)

    def sync(self) -> CycleResult:
        """Run a full cycle, and check the published providers. Raises Violation and DriverError."""
        outcome = sound(self.cycle.sync(), ignore_reported=not self._subject.has_harness)
        if self._invariants is not None:
            harness = self._subject.declared
            things = [] if harness is None else harness.things()
            self._invariants.check(
                self.driver,
                self._subject.placement.contents(),
                things,
                checks_compute_nodes="WHF-302" not in self._subject.broken,
            )
        return outcome

    def settle(self) -> Contents:
        """Run full cycles until no removal is pending; return the contents of Placement."""
        while self.sync().pending:
            pass
        return self._subject.placement.contents()

    def settle_free(self, is_free: Callable[[Contents], bool]) -> Contents:
        """Settle until ``is_free`` accepts the contents of Placement, or time is over."""
        contents = self.settle()
        for cycle in range(FREE_CYCLES):
            if is_free(contents):
                break
            time.sleep(_PAUSE if cycle >= _PROMPT else 0)
            self.advance(FREE_SECONDS // FREE_CYCLES)
            contents = self.settle()
        return contents


def sound(outcome: CycleResult, *, ignore_reported: bool = False) -> CycleResult:
    """Return the result of a cycle. Raises Violation if there are problems."""
    for problem in problems(outcome, ignore_reported=ignore_reported):
        raise Violation(f"the cycle reports a problem: {problem}", "a cycle without a problem")
    return outcome


def problems(outcome: CycleResult, *, ignore_reported: bool) -> list[WharfingerError]:
    """Return the problems of a cycle."""
    return [
        problem
        for problem in outcome.problems
        if not (ignore_reported and getattr(problem, "operation", None) == REPORTED)
    ]


def describe(
    driver: ComputeDriver,
    live: Contents = MappingProxyType({}),
    *,
    refresh: bool = True,
    migrations: Sequence[Migration] = (),
) -> dict[str, DesiredProvider]:
    """Let the driver describe its nodes; return the providers by name. Raises Violation."""
    listing = listed(driver, refresh=refresh)
    by_root = trees(live)
    described: dict[str, DesiredProvider] = {}
    for node in listing.nodes:
        its = by_root.get(live[node.name].root_uuid, {}) if node.name in live else {}
        tree = tree_of(node.name, node.uuid, its)
        update(driver, tree, node.name, migrations=migrations)
        described |= {one.provider.name: one for one in tree.desired()}
    return described


def provider_of(described: Mapping[str, DesiredProvider], thing: str) -> Provider:
    """Return the described provider of a node or device. Raises NotShown."""
    if thing not in described:
        raise NotShown(f"the harness has a thing {thing}, and the driver does not report it")
    return described[thing].provider


def uuid_of(subject: Subject, driver: ComputeDriver, thing: str) -> str:
    """Return the uuid that the driver gives a node or device. Raises NotShown."""
    return provider_of(describe(driver, subject.placement.contents()), thing).uuid


def as_contents(described: Mapping[str, DesiredProvider]) -> Contents:
    """Return the described providers by name."""
    return {name: one.provider for name, one in described.items()}


def listed(driver: ComputeDriver, *, refresh: bool = True) -> NodeList:
    """Return the driver's nodes. Raises BackendError and Violation."""
    names = driver.get_available_nodes(refresh=refresh)
    check_names(driver, "get_available_nodes", names)
    listing = describe_nodes(driver, names)
    for problem in listing.problems:
        raise Violation(
            f"a node cannot be used: {problem}", "a valid name, uuid and ComputeNode of each node"
        )
    return listing


def tree_of(node: str, uuid: str, live: Contents = MappingProxyType({})) -> ProviderTree:
    """Return the provider tree of a node, for the driver."""
    root = live.get(node, Provider(uuid=uuid, name=node, root_uuid=uuid))
    theirs = [one for one in live.values() if one.root_uuid == root.root_uuid]
    return ProviderTree.from_providers(theirs or [root])


def update(
    driver: ComputeDriver, tree: ProviderTree, node: str, *, migrations: Sequence[Migration] = ()
) -> None:
    """Call ``update_provider_tree``, with migrations if the driver takes them."""
    more = {"migrations": migrations} if takes_migrations(type(driver)) else {}
    driver.update_provider_tree(tree, node, allocations=None, **more)
