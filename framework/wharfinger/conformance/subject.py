"""The driver under test: configured, with its backend and a Placement to publish to."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Final

from wharfinger import conf
from wharfinger.conf import DefaultSection, InstanceSection, Options
from wharfinger.conformance import clock_shift
from wharfinger.conformance.driver_observer import CallObserver, calling, observe
from wharfinger.conformance.exceptions import NotShown, Violation
from wharfinger.conformance.harness import Fault, Harness
from wharfinger.conformance.placement import RunPlacement
from wharfinger.conformance.placement_diff import Contents, trees
from wharfinger.conformance.process_observer import ProcessObserver
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
from wharfinger.reconcile.cycle import CycleResult, Reconciler
from wharfinger.reconcile.desire import REPORTED
from wharfinger.reconcile.driver_calls import check_names
from wharfinger.reconcile.driver_calls import describe as describe_nodes
from wharfinger.reconcile.driver_instance_loader import Instance
from wharfinger.reconcile.node_list import NodeList

#: The name of the driver instance, unless a configuration file enables one of the driver.
INSTANCE: Final = "conformance"
#: How many things a harness has to have.
_FEWEST: Final = 2
#: Complete cycles, and seconds by its clocks, after which a driver offers what is free again.
FREE_CYCLES: Final = 10
FREE_SECONDS: Final = 600
#: Seconds to wait between the last of those cycles, for drivers that have a timer.
_PAUSE: Final = 1.0
#: The first of those cycles, after which nothing is waited for.
_PROMPT: Final = 3
#: More things than that are removed before most rules, and the seconds that this may take.
_MANY: Final = 16
_SHRINKING: Final = 20.0


class Subject:
    """One driver. Every check begins with an empty Placement and a reset backend.

    Placement is not empty if the backend itself publishes there.

    ``config_file`` names a real backend, which the kit only reads. Without it, the ``harness`` has
    a backend. ``seed`` and ``examples`` are for the random histories.
    """

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
        #: Whether every case is tried that is sampled otherwise.
        self.thorough: Final = thorough
        #: The ids of the rules that are known to be broken.
        self.broken: Final[set[str]] = set()
        #: The changes of the process that calls have made.
        self.process: Final = ProcessObserver()
        #: The observers of every call to the driver's instances.
        self.observers: Final[list[CallObserver]] = [self.process]
        self._harness: Final = harness
        self._config_file: Final = config_file
        self._directory: Final = directory
        self._begun = 0
        self._count: int | None = None
        #: The contents of Placement before a check, or None if the backend may have changed since.
        self._fresh: list[ProviderSummary] | None = None

    @property
    def harness(self) -> Harness:
        """The harness, for changes of the backend; raises NotShown without one."""
        self._fresh = None
        if self._harness is None:
            raise NotShown("there is no harness")
        return self._harness

    @property
    def declared(self) -> Harness | None:
        """The harness for its declarations, or None."""
        return self._harness

    @property
    def has_harness(self) -> bool:
        """Whether the backend can be changed."""
        return self._harness is not None

    def can(self, method: str) -> bool:
        """Return whether the harness implements an optional method, such as ``change``.

        Or whether it can cause a fault, such as "stale answer".
        """
        if method in [*Fault]:
            return self._harness is not None and method in self._harness.faults
        kind = getattr(self._harness, "kind", type(self._harness))
        return getattr(kind, method, None) is not getattr(Harness, method)

    @cached_property
    def kind(self) -> type[ComputeDriver]:
        """The driver's class; raises DriverLoadError."""
        return loader.load(self.name)

    @property
    def capabilities(self) -> Capabilities:
        """The capabilities that the driver declares."""
        return self.kind.capabilities

    # Its instances.

    @cached_property
    def instance_name(self) -> str:
        """The name of the instance in the configuration."""
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
                problem=f"{self._config_file} enables several instances of {self.name}.",
                remedy="Leave one of them.",
            )
        return names[0] if names else self.name

    def configured(self) -> Options:
        """The configuration, read anew; raises ConfigurationError, ConfigurationFileError."""
        return conf.parse([str(file) for file in self.files()], [])

    def files(self) -> list[Path]:
        """The configuration files, as they are now."""
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
        """The state directory of this check's driver instances."""
        return self._directory / f"state-{self._begun}"

    def have_begun(self) -> None:
        """Reset the backend and Placement for a check, unless they are still as after a reset."""
        if self._fresh is not None and self._fresh == self.placement.listed():
            self._begin_state()
        else:
            self.begin()
            # Without a harness, the backend may change at any time.
            self._fresh = None if self._harness is None else self.placement.listed()

    def begin(self, *, is_whole: bool = False) -> None:
        """Reset the backend and Placement for a check.

        A backend that is large after a reset is made smaller, unless ``is_whole``.
        """
        self._fresh = None
        self._begin_state()
        self.placement.empty()
        if self._harness is not None:
            self._harness.reset()
            self._harness.forget()
            self._see_things(self._harness.things())
            if not is_whole:
                self._make_small(self._harness)
            self._harness.expect()
        else:
            self._make_roots()

    def _make_small(self, harness: Harness) -> None:
        """Remove things that no rule needs: publishing thousands of them takes half a minute."""
        deadline = time.monotonic() + _SHRINKING
        for thing in reversed([*harness.things()][_MANY:]):
            if time.monotonic() > deadline:
                return
            try:
                harness.remove(thing)
            except NotShown:  # it cannot do that now: the rule looks at what there is
                return

    def _begin_state(self) -> None:
        """Use an empty state directory from now on, and end all faults."""
        self._begun += 1
        self.state_path.mkdir()
        if self._harness is not None:
            self._harness.expect()

    def _make_roots(self) -> None:
        """Publish, as another program, the roots below which the driver has children.

        Raises NotShown if the backend has nothing. The rules check the exceptions of the driver.
        """
        try:
            with self.driver() as driver:
                described = describe(driver)
        except (Exception, SystemExit):
            return
        if not described:
            raise NotShown("the backend has nothing: the kit needs one node, or more")
        for name, one in described.items():
            is_overlaid = not one.stated or one.mode is PublishingMode.OVERLAY
            if one.provider.parent_uuid is None and is_overlaid:
                self.placement.create(
                    name, {"VCPU": Inventory(total=8)}, frozenset({NOVA}), uuid=one.provider.uuid
                )

    def add(self) -> str:
        """Let the harness add a thing; raises NotShown if it does not."""
        before = [*self.harness.things()]
        thing = self.harness.add()
        if thing in before or thing not in self.harness.things():
            raise NotShown(f"the harness should add a thing, but returned {thing!r}")
        return thing

    def _see_things(self, things: Sequence[str]) -> None:
        """Raise NotShown unless there are enough things, as many as after the last reset."""
        if len({*things}) < _FEWEST or len({*things}) != len(things):
            raise NotShown(f"the harness has the things {[*things]}, not {_FEWEST} or more")
        if self._count not in (None, len(things)):
            raise NotShown(f"the harness has {len(things)} things after a reset, not {self._count}")
        self._count = len(things)

    def load(self) -> Instance:
        """A new instance, which is not connected yet."""
        conf = self.configured()
        with suppress(DriverLoadError):
            _ = self.kind  # to import the driver is no part of the call
        with calling("__init__", self.observers):
            instance = driver_instance_loader.load(conf, self.instance_name)
        observe(instance.driver, self.observers)
        return instance

    @contextmanager
    def driver(self) -> Iterator[ComputeDriver]:
        """Yield a new instance of the driver, connected within the block."""
        driver = self.load().driver
        with driver_instance_loader.connected(driver):
            yield driver

    @contextmanager
    def driver_elsewhere(self, host: str, configuration: str) -> Iterator[ComputeDriver]:
        """Yield a new instance on another host, connected within the block.

        ``configuration`` replaces the harness's.
        """
        state = self._directory / f"state-{self._begun}-{host}"
        state.mkdir(exist_ok=True)
        theirs, there = self._directory / "elsewhere.conf", self._directory / "host.conf"
        theirs.write_text(configuration)
        there.write_text(f"[DEFAULT]\nhost = {host}\nstate_path = {state}\n")
        options = conf.parse([str(file) for file in (theirs, *self.files()[1:], there)], [])
        instance = driver_instance_loader.load(options, self.instance_name)
        observe(instance.driver, self.observers)
        with driver_instance_loader.connected(instance.driver):
            yield instance.driver

    @contextmanager
    def publishing(self) -> Iterator["Publishing"]:
        """A new instance that publishes."""
        publishing = Publishing(self)
        try:
            publishing.start()
            yield publishing
        finally:
            publishing.stop()


class Publishing:
    """An instance of the driver and its cycles, which publish into the real Placement."""

    def __init__(self, subject: Subject) -> None:
        self._subject: Final = subject
        self._open = ExitStack()
        self._theirs: Final = subject.placement.contents()
        self._invariants: TreeInvariants | None = None
        self._ahead = 0
        self.cycle: Reconciler
        self.driver: ComputeDriver

    def start(self) -> None:
        """Load the driver anew, as a new process does that finds the records of earlier ones."""
        instance = self._subject.load()
        self.publisher = instance.publisher
        self._invariants = self._invariants or TreeInvariants(
            self._theirs, self.publisher, renames=not self._subject.has_harness
        )
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
        """End, as a process does at SIGTERM, and set the clocks right."""
        try:
            self._open.close()
        finally:
            self.advance(-self._ahead)

    def restart(self) -> None:
        """Stop and start again."""
        self._open.close()
        self.start()

    def advance(self, seconds: int) -> None:
        """Set the clocks of this process ahead by this time."""
        if seconds:
            self._ahead += seconds
            clock_shift.advance(seconds)

    def sync(self) -> CycleResult:
        """Run a full cycle; raises Violation for a problem, and the errors of the driver.

        Then it checks every provider; see TreeInvariants.
        """
        outcome = sound(self.cycle.sync(), may_report=not self._subject.has_harness)
        if self._invariants is not None:
            harness = self._subject.declared
            things = [] if harness is None else harness.things()
            self._invariants.see(
                self.driver,
                self._subject.placement.contents(),
                things,
                agrees="WHF-302" not in self._subject.broken,
            )
        return outcome

    def settle(self) -> Contents:
        """Run full cycles until no removal is pending; return the contents of Placement."""
        while self.sync().pending:
            pass
        return self._subject.placement.contents()

    def settle_free(self, is_free: Callable[[Contents], bool]) -> Contents:
        """Run full cycles as in ``settle``, and until the free things are available.

        A driver may wait before it releases a free thing, at most FREE_CYCLES and FREE_SECONDS.
        """
        contents = self.settle()
        for cycle in range(FREE_CYCLES):
            if is_free(contents):
                break
            time.sleep(_PAUSE if cycle >= _PROMPT else 0)
            self.advance(FREE_SECONDS // FREE_CYCLES)
            contents = self.settle()
        return contents


def sound(outcome: CycleResult, *, may_report: bool = False) -> CycleResult:
    """Return the result of a cycle; raises Violation if it has a problem.

    ``may_report``: the driver may report a part of the backend as a problem.
    """
    for problem in problems(outcome, may_report=may_report):
        raise Violation(str(problem), "a cycle without a problem")
    return outcome


def problems(outcome: CycleResult, *, may_report: bool) -> list[WharfingerError]:
    """Return the problems of a cycle, without those that the driver may report."""
    return [
        problem
        for problem in outcome.problems
        if not (may_report and getattr(problem, "operation", None) == REPORTED)
    ]


def describe(
    driver: ComputeDriver,
    live: Contents = MappingProxyType({}),
    *,
    refresh: bool = True,
    migrations: Sequence[Migration] = (),
) -> dict[str, DesiredProvider]:
    """Return the driver's description of its nodes' trees, by the names of the providers.

    ``live`` are the providers in Placement. With ``refresh``, the driver makes a new snapshot
    first. Raises Violation if a node cannot be described, and the errors of the driver.
    """
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
    """Return the provider of a thing as a driver describes it; raises NotShown without one."""
    if thing not in described:
        raise NotShown(f"the harness has a thing {thing}, and the driver does not report it")
    return described[thing].provider


def uuid_of(subject: Subject, driver: ComputeDriver, thing: str) -> str:
    """Return the uuid of a thing's provider by a new description; raises NotShown."""
    return provider_of(describe(driver, subject.placement.contents()), thing).uuid


def as_contents(described: Mapping[str, DesiredProvider]) -> Contents:
    """Return a description as if it were published."""
    return {name: one.provider for name, one in described.items()}


def listed(driver: ComputeDriver, *, refresh: bool = True) -> NodeList:
    """Return the driver's nodes; raises Violation if one is not a node."""
    names = driver.get_available_nodes(refresh=refresh)
    check_names(driver, "get_available_nodes", names)
    listing = describe_nodes(driver, names)
    for problem in listing.problems:
        raise Violation(str(problem), "nodes that can be described")
    return listing


def tree_of(node: str, uuid: str, live: Contents = MappingProxyType({})) -> ProviderTree:
    """A node's tree as the driver receives it; a root alone if Placement has none."""
    root = live.get(node, Provider(uuid=uuid, name=node, root_uuid=uuid))
    theirs = [one for one in live.values() if one.root_uuid == root.root_uuid]
    return ProviderTree.from_providers(theirs or [root])


def update(
    driver: ComputeDriver, tree: ProviderTree, node: str, *, migrations: Sequence[Migration] = ()
) -> None:
    """Let a driver edit a tree, as the framework does."""
    more = {"migrations": migrations} if takes_migrations(type(driver)) else {}
    driver.update_provider_tree(tree, node, allocations=None, **more)
