"""A fault at any single request of ``wharfinger sync`` loses nothing.

Each test injects one fault into some requests of a sync in turn, or with --all into every request.
"""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.lab import inprocess, soundness
from tests.lab.cycles import contents
from tests.lab.drawing import Draw
from tests.lab.faults import FAULTS, Ending, Fault, Interceptor
from tests.lab.moments import Moment, Moments
from tests.lab.placement import PlacementFixture
from tests.lab.program import Done, Program
from wharfinger.placement.embedded import EmbeddedPlacement
from wharfinger.providers import Inventory

pytestmark = pytest.mark.usefixtures("no_waiting")

ROOT = "gpu-host-1"
MARKS = frozenset({"OWNER_NOVA", "CUSTOM_WHARFINGER_GPUS"})
#: More than the attempts that one sync makes for one tree.
MANY = 10


@dataclass(frozen=True)
class View:
    """The contents of Placement: our providers by name, and the others with their generations."""

    ours: soundness.Contents
    others: soundness.Contents


@dataclass(frozen=True)
class Act:
    """A sync without a fault: Placement before and after it, and the requests."""

    start: Moment
    host: str
    config: str
    before: View
    after: View
    requests: list[str]


#: The configured timeout. It is short, because some faults let a request wait for it.
TIMEOUT = "timeout = 2\n"


class Stage:
    """The program, Placement, the interceptor between them, and two providers of other owners."""

    def __init__(
        self, program: Program, interceptor: Interceptor, placement: PlacementFixture
    ) -> None:
        self.program = program
        self.interceptor = interceptor
        self._placement = placement
        self._acts: dict[str, Act] = {}
        self._views: dict[str, View] = {}
        self._recoveries: dict[tuple[str, Moment], list[str]] = {}
        # Create the database now, so that no sync spends time on it.
        self.run("sync", "--dry-run")
        self.moments = Moments(program.directory)
        self._empty = self.moments.take()
        self._plain_config = program.config.read_text()

    def run(self, *arguments: str) -> Done:
        return inprocess.run(self.program, *arguments)

    def act(self, name: str) -> Act:
        """Return the act of this name; the first call performs it without a fault."""
        if name not in self._acts:
            self._acts[name] = self._rehearse(ACTS[name])
        return self._acts[name]

    def go_back(self, act: Act) -> None:
        """Restore the state before the act."""
        self.interceptor.expect()
        self.moments.go_back(act.start)
        self.program.config.write_text(act.config)
        (self.program.directory / "host.xml").write_text(act.host)

    def has_time(self) -> None:
        """Remove the short timeout, so that the program waits for slow answers."""
        config = self.program.config
        config.write_text(config.read_text().replace(TIMEOUT, ""))

    def view(self, moment: Moment) -> View:
        """Return the contents of Placement at the moment, to which Placement has been set."""
        key = moment.placement_key
        if key not in self._views:
            self._views[key] = self._view()
        return self._views[key]

    def complaints_of_recovery(self, name: str, moment: Moment) -> list[str]:
        """Run two more syncs after the moment; return what is wrong with them."""
        if (name, moment) not in self._recoveries:
            self.interceptor.expect()
            self.has_time()
            self._recoveries[name, moment] = [*self._recover(self.act(name))]
        return self._recoveries[name, moment]

    def foreign(self, name: str, parent: str | None, owner: str) -> None:
        """Create a provider of another owner."""
        client = self._placement.client
        by_name = {one.name: one.uuid for one in client.list_providers()}
        client.create_trait("CUSTOM_OWNER_ACME")
        made = client.create_provider(
            str(uuid.uuid5(uuid.NAMESPACE_DNS, name)), name, by_name[parent] if parent else None
        )
        generation = client.set_traits(made.uuid, made.generation, [owner])
        client.set_inventories(made.uuid, generation, {"FPGA": Inventory(total=2)})

    def change_config(self, found: str, replaced: str) -> None:
        text = self.program.config.read_text()
        assert found in text
        self.program.config.write_text(text.replace(found, replaced))

    def _rehearse(self, prepare: Callable[["Stage"], None]) -> Act:
        self.interceptor.expect()
        self.moments.go_back(self._empty)
        self.program.config.write_text(self._plain_config)
        self.program.has_host("host.xml")
        self.foreign("neighbour", None, "CUSTOM_OWNER_ACME")
        prepare(self)
        self.interceptor.expect()
        start, before = self.moments.take(), self._view()
        done = self.run("sync")
        assert (done.code, done.err) == (0, "")
        return Act(
            start=start,
            host=(self.program.directory / "host.xml").read_text(),
            config=self.program.config.read_text(),
            before=before,
            after=self._view(),
            requests=list(self.interceptor.seen),
        )

    def _view(self) -> View:
        generations = {one.name: one.generation for one in self._placement.client.list_providers()}
        ours, others = {}, {}
        for name, provider in contents(self._placement).items():
            if name.startswith("neighbour"):
                others[name] = {**provider, "generation": generations[name]}
            else:
                ours[name] = provider
        return View(ours, others)

    def _recover(self, act: Act) -> Iterator[str]:
        done = self.run("sync")
        if (done.code, done.err) != (0, ""):
            yield f"the next sync exits with {done.code}: {done.err}"
        if (view := self.view(self.moments.take())) != act.after:
            yield f"the next sync leaves {view}, not {act.after}"
        done = self.run("sync")
        if (done.code, done.out, done.err) != (0, "gpus: no change\n", ""):
            yield f"the sync after that exits with {done.code}: {done.out}{done.err}"


def _first(stage: Stage) -> None:
    """Change nothing: the first sync begins with an empty Placement."""


def _changed(stage: Stage) -> None:
    """Sync; then add a GPU to the host, and change inventories and traits in the configuration."""
    stage.run("sync")
    stage.foreign("neighbour in our tree", ROOT, "OWNER_CYBORG")
    stage.program.has_host("host-grown.xml")
    stage.change_config("reserved_host_cpus = 2", "reserved_host_cpus = 4")
    stage.change_config("traits = CUSTOM_VGPU_T4_2Q", "traits = CUSTOM_VGPU_T4_TWO")
    stage.change_config("resource_class = CUSTOM_VGPU_LARGE", "resource_class = CUSTOM_VGPU_BIG")


def _removal(stage: Stage) -> None:
    """Sync; then remove a GPU from the host, and sync once without it."""
    stage.change_config("[gpus]\n", "[gpus]\nremoval_delay = 0\n")
    stage.program.has_host("host-grown.xml")
    stage.run("sync")
    stage.program.has_host("host.xml")
    stage.run("sync")
    stage.foreign("neighbour in our tree", ROOT, "OWNER_CYBORG")


ACTS: dict[str, Callable[[Stage], None]] = {
    "first": _first,
    "changed": _changed,
    "removal": _removal,
}
#: The act "removal" meets all faults, because it has reads and writes. The act "changed" meets one
#: fault of each kind, and every act meets the faults of IN_ALL.
IN_ALL = {"refused", "reset when done", "409"}
IN_TWO = {
    "403",
    "404",
    "409 always",
    "500",
    "500 when done",
    "503",
    "truncated when done",
    "page",
}
#: Faults that at reads are equal to other faults; only writes meet them.
AT_WRITES = {"reset", "500 when done", "lost"}


def _pairs() -> Iterator[tuple[str, str]]:
    for name in FAULTS:
        if name in IN_ALL:
            yield "first", name
        if name in IN_ALL | IN_TWO:
            yield "changed", name
        yield "removal", name


@pytest.fixture(scope="module")
def stage(
    placement_service: EmbeddedPlacement, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stage]:
    with (
        PlacementFixture(placement_service) as placement,
        Interceptor(placement_service.application) as interceptor,
    ):
        program = Program(tmp_path_factory.mktemp("program"), interceptor.url)
        with program.config.open("a") as config:
            config.write(TIMEOUT)
        yield Stage(program, interceptor, placement)


@pytest.mark.drawn(4)
@pytest.mark.parametrize(("act", "name"), _pairs(), ids=lambda value: value.replace(" ", "-"))
def test_sync_with_fault_at_any_request_reports_it_and_the_next_sync_repairs(
    stage: Stage, draw: Draw, act: str, name: str
) -> None:
    fault = FAULTS[name]
    complaints = []
    requests = [
        (index, request)
        for index, request in enumerate(stage.act(act).requests)
        if name not in AT_WRITES or not request.startswith("GET ")
    ]
    tried = draw(requests, 1)
    for index, request in tried:
        stage.go_back(stage.act(act))
        if fault.ending is not Ending.LATE:
            stage.has_time()
        stage.interceptor.expect(index, fault)
        done = stage.run("sync")
        struck = stage.interceptor.struck
        stage.interceptor.expect()
        moment = stage.moments.take()
        view = stage.view(moment)
        complaints += [
            f"{name} at {request} ({index}): {complaint}"
            for complaint in (
                *_of_striking(fault, struck),
                *_of_messages(fault, request, done),
                *_of_contents(stage.act(act), view, done),
                *stage.complaints_of_recovery(act, moment),
            )
        ]

    assert tried
    assert not complaints, "\n".join(complaints)


def test_sync_without_service_role_has_the_same_result(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    act = stage.act("changed")
    assert "POST /reshaper" in act.requests
    stage.go_back(act)
    monkeypatch.setattr(stage.interceptor, "roles", ("admin",))

    done = stage.run("sync")

    assert (done.code, done.err) == (0, "")
    assert stage.view(stage.moments.take()) == act.after
    assert stage.run("sync").out == "gpus: no change\n"


def _of_striking(fault: Fault, struck: int) -> Iterator[str]:
    if not struck:
        yield "it did not happen"
    if struck > (MANY if fault.persistent else 1):
        yield f"it happened {struck} times"


def _of_messages(fault: Fault, request: str, done: Done) -> Iterator[str]:
    """Yield what is wrong with the exit code and the messages for an operator."""
    if "Traceback" in done.out + done.err or "This is a fault" in done.err:
        yield f"a fault of ours: {done.err}"
    if done.code == 0:
        if not _may_be_done(fault, request):
            yield "it exits with 0"
        if done.err:
            yield f"it exits with 0 and says {done.err}"
        return
    if done.code != 1:
        yield f"it exits with {done.code}"
    if _has_to_be_done(fault, request):
        yield f"it exits with 1: {done.err}"
    expected = [request, fault.told]
    if fault.name == "401":
        expected.append("credentials")
    if fault.name == "403":
        expected.append("the admin or the service role")
    for words in expected:
        if words.lower() not in done.err.lower():
            yield f"{words!r} is not in what it says: {done.err}"


def _may_be_done(fault: Fault, request: str) -> bool:
    """Return whether a sync may succeed despite this fault."""
    # If Placement refuses all inventories in one request, the sync sets them one by one.
    if fault.name in ("403", "409 always"):
        return request == "POST /reshaper"
    return fault.name not in ("refused", "401")


def _has_to_be_done(fault: Fault, request: str) -> bool:
    """Return whether a sync must succeed despite this fault."""
    return (
        (fault.name == "409" and not request.startswith("GET "))
        or (fault.name == "404" and request.startswith("DELETE "))
        or (fault.name == "403" and request == "POST /reshaper")
    )


def _of_contents(act: Act, view: View, done: Done) -> Iterator[str]:
    """Yield what is wrong in Placement. It may be as before, as after, or soundly in between."""
    if view.others != act.before.others:
        yield f"the neighbours have changed: {view.others}"
    if done.code == 0 and view.ours != act.after.ours:
        yield f"it exits with 0 and leaves {view.ours}"
    yield from soundness.faults(act.before.ours, act.after.ours, view.ours, MARKS)
