"""Programming a device: it is reserved first, and released when it is known what it holds."""

import os
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from oslo_log import log as logging

from wharfinger.driver import ComputeDriver
from wharfinger.exceptions import (
    ConcurrentSave,
    JobRefused,
    JobUnresolved,
    ObjectError,
    ObjectExists,
    ObjectNotFound,
    PlacementError,
    ProgrammingFailed,
    ProgrammingRefused,
    StateError,
    WharfingerError,
)
from wharfinger.jobs.marking import mark
from wharfinger.objects import Context, DeviceJob, DeviceJobList, Reservation, ReservationList
from wharfinger.objects.kinds import now
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.holds import Holds
from wharfinger.placement.model import ProviderSummary
from wharfinger.providers import names, ownership
from wharfinger.providers.functions import function_traits

LOG: Final = logging.getLogger(__name__)
#: Who holds a device's reservation while it is programmed: one job at a time.
HOLDER: Final = "programming"
#: Seconds between two looks at what is waited for.
_PACE: Final = 1.0
#: How often, at least, a job that is under way says so before it would count as left.
_BEATS: Final = 3
#: Consumers that are named to whoever waits for them.
_FEW: Final = 3
_UNREACHABLE: Final = (ObjectError, PlacementError, StateError)

#: Is told what a job does: a word for the step, and the rest for people.
OnStep = Callable[[str, str], None]


def _ignore(_step: str, _detail: str) -> None:
    """Be told, and do nothing."""


def program(
    client: PlacementClient,
    context: Context,
    driver: ComputeDriver,
    provider: ProviderSummary,
    *,
    image: str,
    function: str | None = None,
    wait_for_idle: float = 0.0,
    down_time: timedelta = timedelta(seconds=60),
    on_step: OnStep = _ignore,
) -> DeviceJob:
    """Load an image into a device, which nobody can have meanwhile; returns the job, done.

    The driver has taken a snapshot, and publishes the device on this host. ``image`` is a uuid.
    ``function`` names what the image does; where it is left out, and the driver does not know it
    either, nothing says what the device holds. What is allocated from it is waited for so many
    seconds. A job of which nothing is heard for ``down_time`` counts as left by its process.

    Raises InvalidName, JobRefused, ReservationRefused, ProgrammingRefused and ProgrammingFailed
    where the device is as it was before, and free again; JobUnresolved where it stays reserved, for
    ``resolve``; PlacementError, ObjectError and StateError where nothing has been begun.
    """
    _check(driver, provider)
    image = names.check_uuid(image, "image")
    trait = None if function is None else driver.function_trait(provider.uuid, function)
    scope = _scope(client, driver, provider)
    traits = client.get_traits(provider.uuid).traits
    job = _enter(
        context,
        provider,
        siblings=[one.uuid for one in scope if one.uuid != provider.uuid],
        driver_instance=driver.name,
        host=driver.host,
        image=image,
        function=function,
        trait=trait,
        former_trait=min(function_traits(traits), default=None),
    )
    work = _Work(
        client=client,
        holds=Holds(client, context),
        driver=driver,
        provider=provider,
        scope=scope,
        job=job,
        beat=down_time.total_seconds() / _BEATS,
        tell=on_step,
    )
    return work.do(wait_for_idle)


def _scope(
    client: PlacementClient, driver: ComputeDriver, provider: ProviderSummary
) -> list[ProviderSummary]:
    """All that is programmed with a device, in the one order in which everybody takes it."""
    uuids = {provider.uuid, *driver.programming_scope(provider.uuid)}
    return [one for uuid in sorted(uuids) for one in client.list_providers(uuid=uuid)]


def _check(driver: ComputeDriver, provider: ProviderSummary) -> None:
    declared = driver.capabilities.programming
    if declared is None or not declared.supported:
        raise JobRefused(
            provider=provider.name,
            uuid=provider.uuid,
            problem=f"driver instance {driver.name} does not program devices"
            f"{f' ({declared.reason})' if declared else ''}.",
            remedy="Program it where that can be done.",
        )


def _enter(context: Context, provider: ProviderSummary, **values: Any) -> DeviceJob:
    """Make a job the device's, if no other is unfinished; raises JobRefused."""
    values |= {
        "provider_name": provider.name,
        "process_id": os.getpid(),
        "state": "reserving",
        "problem": None,
        "started_at": now(),
        "seen_at": now(),
    }
    scope = [provider.uuid, *values["siblings"]]
    jobs = [one for one in DeviceJobList.get_by_filters(context) if not _is_apart(one, scope)]
    held = ReservationList.get_by_filters(context, provider_uuid=scope, holder=HOLDER)
    if held or any("state" not in one or one.is_unfinished for one in jobs):
        raise _taken(provider)
    job = next((one for one in jobs if one.provider_uuid == provider.uuid), None)
    try:
        if job is None:
            job = DeviceJob(context, provider_uuid=provider.uuid, **values)
            job.create()
        else:
            values["former_trait"] = values["former_trait"] or job.held_trait
            _change(job, **values)
            job.save()
    except (ConcurrentSave, ObjectExists, ObjectNotFound):
        raise _taken(provider) from None
    return job


def _is_apart(job: DeviceJob, scope: Collection[str]) -> bool:
    """Whether a job is of another device."""
    known = job.scope if "siblings" in job else (job.provider_uuid,)
    return set(known).isdisjoint(scope)


def _change(job: DeviceJob, **values: Any) -> None:
    for name, value in values.items():
        setattr(job, name, value)


def _taken(provider: ProviderSummary) -> JobRefused:
    return JobRefused(
        provider=provider.name,
        uuid=provider.uuid,
        problem="another job has it, or has left it unresolved.",
        remedy="See `wharfinger device jobs`: wait for its end, or resolve it.",
    )


@dataclass(frozen=True, slots=True)
class _Known:
    """A function that a device is known to hold, None for none."""

    function: str | None


class _Work:
    """A job on its way.

    ``scope`` are the providers that it is about; ``beat`` the seconds between two signs of life.
    """

    def __init__(
        self,
        *,
        client: PlacementClient,
        holds: Holds,
        driver: ComputeDriver,
        provider: ProviderSummary,
        scope: Sequence[ProviderSummary],
        job: DeviceJob,
        beat: float,
        tell: OnStep,
    ) -> None:
        self._client: Final = client
        self._holds: Final = holds
        self._driver: Final = driver
        self._provider: Final = provider
        self._scope: Final = scope
        self._job: Final = job
        self._beat: Final = beat
        self._tell: Final = tell
        self._beaten = time.monotonic()
        self._is_ours = True
        #: What may have been reserved, what was, and the owner traits of each.
        self._taken: Final[list[ProviderSummary]] = []
        self._held: Final[list[Reservation]] = []
        self._owners: Final[dict[str, frozenset[str]]] = {}

    def do(self, wait_for_idle: float) -> DeviceJob:
        """All of it, in the order in which nothing is lost."""
        try:
            self._reserve()
            self._await_idle(wait_for_idle)
            before = self._function()
            self._save(state="programming")
        except BaseException as error:
            self._give_up(error)
            raise
        self._load(before)
        self._finish()
        return self._job

    def _reserve(self) -> None:
        """Reserve the device: that is the lock on it, too."""
        for one in self._scope:
            self._owners[one.uuid] = ownership.owners(self._client.get_traits(one.uuid).traits)
            self._taken.append(one)
            try:
                held = self._holds.reserve(
                    one, holder=HOLDER, reason=f"programming image {self._job.image}"
                )
            except ObjectExists:
                self._taken.remove(one)
                raise _taken(self._provider) from None
            self._held.append(held)
        self._tell("reserved", self._named("nothing more can be allocated from it"))

    def _await_idle(self, seconds: float) -> None:
        """See that nothing is allocated from it; since it is reserved, nothing comes any more."""
        end = time.monotonic() + seconds
        while consumers := self._consumers():
            more = f" and {len(consumers) - _FEW} more" if len(consumers) > _FEW else ""
            some = f"{', '.join(consumers[:_FEW])}{more}"
            if time.monotonic() >= end:
                waited = f" after {seconds:g} s of waiting" if seconds else ""
                raise JobRefused(
                    provider=self._provider.name,
                    uuid=self._provider.uuid,
                    problem=f"it is in use{waited}, by {some}.",
                    remedy="Have that end first, or have this wait for it (--wait-for-idle).",
                )
            if self._job.state != "waiting":
                self._save(state="waiting")
            self._tell("waiting", f"for allocations to end: {some}")
            time.sleep(_PACE)
            self._watch()

    def _consumers(self) -> list[str]:
        """Who has something of it."""
        return sorted(
            {
                consumer
                for one in self._scope
                for consumer in self._client.get_provider_allocations(one.uuid)
            }
        )

    def _load(self, before: _Known | None) -> None:
        """Have the driver load the image, and keep the device reserved meanwhile."""
        job, errors = self._job, list[BaseException]()

        def load() -> None:
            try:
                self._driver.program(job.provider_uuid, job.image, job.function)
            except BaseException as error:  # whatever a driver does
                errors.append(error)

        thread = threading.Thread(target=load, name=HOLDER, daemon=True)
        try:
            thread.start()
            self._tell("programming", f"image {job.image}")
            while thread.is_alive():
                thread.join(_PACE)
                self._watch()
        except BaseException as error:
            raise self._unresolved(f"it was left while that went on ({_words(error)}).") from error
        if errors:
            raise self._failed(errors[0], before)

    def _failed(self, error: BaseException, before: _Known | None) -> BaseException:
        """What to raise for what a driver raised: the device is let go only where it is known."""
        if isinstance(error, ProgrammingRefused) or (
            isinstance(error, ProgrammingFailed)
            and before is not None
            and self._function() == before
        ):
            self._give_up(error)
            return error
        unresolved = self._unresolved(f"it is not known what it holds: {_words(error)}.")
        unresolved.__cause__ = error
        return unresolved

    def _finish(self) -> None:
        """Say what the device holds, and let go of it."""
        job, known = self._job, self._function()
        trait = job.trait
        try:
            self._save(seen_at=now())
            if known is not None:
                held = known.function
                trait = held and self._driver.function_trait(self._provider.uuid, held)
                if job.trait not in (None, trait):
                    raise self._unresolved(f"it says that it holds function {held or 'none'}.")
            for one in self._scope:
                mark(self._client, one, trait, self._owners[one.uuid])
            self._save(state="programmed", trait=trait)
        except JobUnresolved:
            raise
        except BaseException as error:
            raise self._unresolved(f"it was programmed, and then: {_words(error)}.") from error
        self._tell("programmed", trait or "nothing says which function it has")
        self._let_go()

    def _give_up(self, error: BaseException) -> None:
        """Nothing has been begun: let go of the device."""
        if isinstance(error, JobUnresolved):
            return
        self._save(state="failed", problem=_words(error))
        self._let_go()

    def _let_go(self) -> None:
        """End the reservations that are ours."""
        for one in self._taken:
            try:
                left = self._holds.release(one, HOLDER)
            except ObjectNotFound:
                continue  # it could not be reserved, or somebody else has released it
            except BaseException as error:
                raise JobUnresolved(
                    provider=self._provider.name,
                    uuid=self._provider.uuid,
                    problem=f"the job has come to its end ({self._job.state}), and the reservation "
                    f"of {one.name} has not: {_words(error)}.",
                ) from error
            free = f"still reserved: {'; '.join(left)}" if left else "free"
            self._tell("released", f"{one.name}: {free}" if len(self._scope) > 1 else free)

    def _watch(self) -> None:
        """Say that the job is under way, and see that the device is still reserved."""
        try:
            for held in self._held:
                self._holds.keep(held)
            if self._is_ours and time.monotonic() - self._beaten >= self._beat:
                self._beaten = time.monotonic()
                self._save(seen_at=now())
        except (JobUnresolved, *_UNREACHABLE) as error:  # what is under way goes on
            LOG.warning("programming %s: %s", self._provider.name, error)

    def _function(self) -> _Known | None:
        """What the device says that it holds, None where that is not known."""
        try:
            return _Known(self._driver.current_function(self._provider.uuid))
        except Exception as error:  # whatever a driver does
            LOG.debug("what %s holds is not known: %s", self._provider.name, error)
            return None

    def _save(self, **values: Any) -> None:
        """Note how far it is; raises JobUnresolved where somebody else has decided on it."""
        _change(self._job, **values)
        try:
            self._job.save()
        except (ConcurrentSave, ObjectNotFound) as error:
            self._is_ours = False
            raise JobUnresolved(
                provider=self._provider.name,
                uuid=self._provider.uuid,
                problem="somebody else has resolved the job while it was under way.",
            ) from error

    def _unresolved(self, problem: str) -> JobUnresolved:
        """Mark the job as one that somebody has to decide on."""
        if self._is_ours:
            try:
                self._save(state="unknown", problem=problem)
            except WharfingerError as error:
                LOG.warning("device job of %s: %s", self._provider.name, error)
        return JobUnresolved(
            provider=self._provider.name, uuid=self._provider.uuid, problem=problem
        )

    def _named(self, told: str) -> str:
        """What is told, with all that it is about where that is more than the device's name."""
        others = [one.name for one in self._scope if one.uuid != self._provider.uuid]
        return f"{told}, nor from {', '.join(others)}" if others else told


def _words(error: BaseException) -> str:
    """What an error says, without the stop at its end."""
    return (str(error) or type(error).__name__).rstrip(".")
