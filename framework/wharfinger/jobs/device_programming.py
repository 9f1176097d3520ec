"""Programming a device: it is reserved first, and released when it is known what it holds."""

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final
from uuid import uuid4

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
    printable,
)
from wharfinger.jobs.job_resolution import forget_others
from wharfinger.objects import JOB_HOLDER as HOLDER
from wharfinger.objects import Context, DeviceJob, DeviceJobList, ReservationList
from wharfinger.objects.field_types import now
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.model import ProviderSummary
from wharfinger.providers import names, ownership
from wharfinger.providers.device_function_traits import function_traits
from wharfinger.reconcile.reserve_and_release import Reservations

LOG: Final = logging.getLogger(__name__)
#: Seconds between two looks at what a job waits for.
_PACE: Final = 1.0
#: Reports of a job, at least, in the time after which it would count as left.
_BEATS: Final = 3
#: Consumers that a message names.
_FEW: Final = 3
_UNREACHABLE: Final = (ObjectError, PlacementError, StateError)

#: Is called with each step of a job: a word for it, and the rest for people.
OnStep = Callable[[str, str], None]


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
    on_step: OnStep = lambda _step, _detail: None,
) -> DeviceJob:
    """Load an image into a device, which stays reserved meanwhile; return the finished job.

    The driver has taken a snapshot, and publishes the device on this host. ``image`` is a uuid.
    ``function`` names what the image does. Without it, and if the driver does not know it either,
    nothing says what the device holds. The job waits up to ``wait_for_idle`` seconds for the end of
    allocations. A job that does not report for ``down_time`` counts as left by its process.

    Raises InvalidName, JobRefused, ReservationRefused, ProgrammingRefused and ProgrammingFailed
    where the device is as it was before, and free again; JobUnresolved where it stays reserved, for
    ``resolve``; PlacementError, ObjectError and StateError where nothing has been begun.
    """
    declared = driver.capabilities.programming
    if declared is None or not declared.supported:
        raise JobRefused(
            provider=provider.name,
            uuid=provider.uuid,
            problem=f"driver instance {driver.name} does not program devices"
            f"{f' ({declared.reason})' if declared else ''}.",
            remedy="Program it where that can be done.",
        )
    image = names.check_uuid(image, "image")
    trait = None if function is None else driver.function_trait(provider.uuid, function)
    uuids = {provider.uuid, *driver.programming_scope(provider.uuid)}
    # Sorted: all jobs reserve the parts of a device in one order.
    scope = [one for uuid in sorted(uuids) for one in client.list_providers(uuid=uuid)]
    if missing := sorted(uuids - {one.uuid for one in scope}):
        raise JobRefused(
            provider=provider.name,
            uuid=provider.uuid,
            problem=f"some of it is not in Placement ({', '.join(missing)}), and nobody can "
            "reserve that.",
            remedy="Wait until it is published.",
        )
    wanted = {"image": image, "function": function, "trait": trait}
    job = _enter(context, driver, provider, [one.uuid for one in scope], wanted)
    reservations = Reservations(client, context, down_time)
    work = _Work(client, context, reservations, driver, provider, scope, job, down_time, on_step)
    return work.do(wait_for_idle)


def _enter(
    context: Context,
    driver: ComputeDriver,
    provider: ProviderSummary,
    scope: Sequence[str],
    wanted: Mapping[str, str | None],
) -> DeviceJob:
    """Store a job of a device, if no other one is unfinished; raises JobRefused."""
    jobs = [one for one in DeviceJobList.get_by_filters(context) if _is_about(one, scope)]
    held = ReservationList.get_by_filters(context, provider_uuid=scope, holder=HOLDER)
    if held or any(not one.is_whole or one.is_unfinished for one in jobs):
        raise _taken(provider)
    former = next((one for one in jobs if one.provider_uuid == provider.uuid), None)
    job = former or DeviceJob(context, provider_uuid=provider.uuid)
    # A report of an earlier function of the device is wrong from now on.
    stale = {trait for one in jobs for trait in (*one.stale_traits, one.held_trait) if trait}
    _change(
        job,
        provider_name=provider.name,
        siblings=[uuid for uuid in scope if uuid != provider.uuid],
        driver_instance=driver.name,
        host=driver.host,
        process_id=os.getpid(),
        state="reserving",
        problem=None,
        started_at=now(),
        seen_at=now(),
        stale_traits=sorted(stale),
        **wanted,
    )
    try:
        if former is None:
            job.create()
        else:
            job.save()
    except (ConcurrentSave, ObjectExists, ObjectNotFound):
        raise _taken(provider) from None
    return job


def _is_about(job: DeviceJob, scope: Sequence[str]) -> bool:
    known = job.scope if "siblings" in job else (job.provider_uuid,)
    return not set(known).isdisjoint(scope)


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


@dataclass(slots=True)
class _Work:
    """A device job in progress.

    ``scope`` are the providers of the device, and ``owners`` their owner traits. ``taken`` are the
    providers that may be reserved, by reservation uuid. The job reports several times within
    ``down_time``, and did so last at ``beaten``. ``is_ours``: no operator has resolved it.
    """

    client: PlacementClient
    context: Context
    reservations: Reservations
    driver: ComputeDriver
    provider: ProviderSummary
    scope: Sequence[ProviderSummary]
    job: DeviceJob
    down_time: timedelta
    tell: OnStep
    owners: dict[str, frozenset[str]] = field(default_factory=dict)
    taken: dict[str, ProviderSummary] = field(default_factory=dict)
    beaten: float = field(default_factory=time.monotonic)
    is_ours: bool = True

    def do(self, wait_for_idle: float) -> DeviceJob:
        """Reserve the device, wait until it is idle, load the image, and release the device."""
        try:
            self._reserve()
            self._await_idle(wait_for_idle)
            before = self._function()
            traits = [self.client.get_traits(one.uuid).traits for one in self.scope]
            said = function_traits(frozenset().union(*traits))
            self._save(state="programming", former_traits=sorted(said))
        except BaseException as error:
            self._give_up(error)
            raise
        self._load(before)
        self._finish()
        return self.job

    def _reserve(self) -> None:
        """Reserve the device, which locks out other jobs, too."""
        for one in self.scope:
            self.owners[one.uuid] = ownership.owners(self.client.get_traits(one.uuid).traits)
            uuid = str(uuid4())
            self.taken[uuid] = one
            try:
                self.reservations.reserve(
                    one, holder=HOLDER, reason=f"programming image {self.job.image}", uuid=uuid
                )
            except ObjectExists:
                del self.taken[uuid]
                raise _taken(self.provider) from None
            self._beat()
        others = ", ".join(one.name for one in self.scope if one.uuid != self.provider.uuid)
        nor = f", nor from {others}" if others else ""
        self.tell("reserved", f"nothing more can be allocated from it{nor}")

    def _await_idle(self, seconds: float) -> None:
        """Wait until nothing is allocated from the device; while it is reserved, nothing comes."""
        end = time.monotonic() + seconds
        while why := self._not_idle(is_patient=time.monotonic() < end):
            if time.monotonic() >= end:
                waited = f" after {seconds:g} s of waiting" if seconds else ""
                raise JobRefused(
                    provider=self.provider.name,
                    uuid=self.provider.uuid,
                    problem=f"it cannot be programmed{waited}: {why}.",
                    remedy="Have that end first, or have this wait for it (--wait-for-idle).",
                )
            if self.job.state != "waiting":
                self._save(state="waiting")
            self.tell("waiting", why)
            time.sleep(_PACE)
            self._beat()

    def _not_idle(self, *, is_patient: bool) -> str | None:
        """Return what the job waits for, for people; None where it can go on."""
        try:
            # Its owner may have written other figures, and consumers come: look at them after this.
            for uuid, one in self.taken.items():
                self.reservations.keep(uuid, one.uuid)
            found = {
                consumer
                for one in self.scope
                for consumer in self.client.get_provider_allocations(one.uuid)
            }
            if found:
                consumers = sorted(found)
                more = f" and {len(consumers) - _FEW} more" if len(consumers) > _FEW else ""
                return f"it is in use by {', '.join(consumers[:_FEW])}{more}"
            for one in self.scope:
                live = self.client.get_inventories(one.uuid).inventories.values()
                if not all(inventory.is_fully_reserved for inventory in live):
                    return f"{one.name} is not reserved, though it was to be"
        except _UNREACHABLE as error:
            if not is_patient:
                raise
            return _words(error)
        return None

    def _load(self, before: _Known | None) -> None:
        """Let the driver load the image, and keep the device reserved meanwhile."""
        job, errors = self.job, list[BaseException]()

        def load() -> None:
            try:
                self.driver.program(job.provider_uuid, job.image, job.function)
            except BaseException as error:  # whatever a driver does
                errors.append(error)

        def keep() -> None:
            while loading.is_alive():
                for uuid, one in self.taken.items():
                    try:
                        self.reservations.keep(uuid, one.uuid)
                    except _UNREACHABLE as error:
                        LOG.warning("programming %s: %s", self.provider.name, error)
                loading.join(_PACE)

        loading = threading.Thread(target=load, name=HOLDER, daemon=True)
        keeping = threading.Thread(target=keep, name=f"{HOLDER}, reserved", daemon=True)
        try:
            loading.start()
            keeping.start()  # apart: signs of life do not wait for Placement
            self.tell("programming", f"image {job.image}")
            for thread in (loading, keeping):
                while thread.is_alive():
                    thread.join(_PACE)
                    self._beat()
        except BaseException as error:
            raise self._unresolved(f"it was left while that went on ({_words(error)}).") from error
        for failure in errors:
            if isinstance(failure, ProgrammingRefused) or (
                isinstance(failure, ProgrammingFailed)
                and before is not None
                and self._function() == before
            ):
                self._give_up(failure)
                raise failure
            problem = f"it is not known what it holds: {_words(failure)}."
            raise self._unresolved(problem) from failure

    def _finish(self) -> None:
        """Note what the device holds, and release it."""
        job, known = self.job, self._function()
        trait = job.trait
        try:
            self._save(seen_at=now())
            if known is not None:
                held = known.function
                trait = held and self.driver.function_trait(self.provider.uuid, held)
                if job.trait not in (None, trait):
                    raise self._unresolved(f"it says that it holds function {held or 'none'}.")
            for one in self.scope:
                self.reservations.set_function_trait(one, trait, self.owners[one.uuid])
            job.note_held(trait)
            self._save()
            forget_others(self.context, job)
        except JobUnresolved:
            raise
        except BaseException as error:
            raise self._unresolved(f"it was programmed, and then: {_words(error)}.") from error
        try:
            self.tell("programmed", trait or "nothing says which function it has")
        finally:
            self._let_go()

    def _give_up(self, error: BaseException) -> None:
        """Release the device: nothing has been begun. An unresolved job keeps it."""
        if not isinstance(error, JobUnresolved):
            self._save(state="failed", problem=_words(error))
            self._let_go()

    def _let_go(self) -> None:
        """End the reservations of this job, not those of other jobs; then report it."""
        told: list[str] = []
        for uuid, one in self.taken.items():
            try:
                left = self.reservations.release_one(uuid)
            except ObjectNotFound:
                continue  # it could not be reserved, or an operator has released it
            except BaseException as error:
                if not isinstance(error, PlacementError) or self.reservations.is_there(uuid):
                    raise self._error(
                        f"the job has come to its end ({self.job.state}), and the reservation of "
                        f"{one.name} has not: {_words(error)}.",
                        f"Say once more what it holds: `wharfinger device resolve {one.name} ...`.",
                    ) from error
                left = (f"Placement may not say so before the next cycle: {_words(error)}",)
            free = f"still reserved: {'; '.join(left)}" if left else "free"
            told.append(f"{one.name}: {free}" if len(self.scope) > 1 else free)
        for free in told:
            self.tell("released", free)

    def _beat(self) -> None:
        """Report that the job is under way; it goes on even if an operator has decided on it."""
        is_due = time.monotonic() - self.beaten >= self.down_time.total_seconds() / _BEATS
        if self.is_ours and is_due:
            self.beaten = time.monotonic()
            try:
                self._save(seen_at=now())
            except (JobUnresolved, *_UNREACHABLE) as error:
                LOG.warning("programming %s: %s", self.provider.name, error)

    def _function(self) -> _Known | None:
        """Return what the device says that it holds, None where that is not known."""
        try:
            return _Known(self.driver.current_function(self.provider.uuid))
        except Exception as error:  # whatever a driver does
            LOG.debug("what %s holds is not known: %s", self.provider.name, error)
            return None

    def _save(self, **values: Any) -> None:
        """Note how far the job is; raises JobUnresolved where an operator has decided on it."""
        _change(self.job, **values)
        try:
            self.job.save()
        except (ConcurrentSave, ObjectNotFound) as error:
            self.is_ours = False
            raise self._error(
                "somebody else has decided on the job while it was under way.",
                "See that they know what has become of it.",
            ) from error

    def _unresolved(self, problem: str) -> JobUnresolved:
        """Mark the job as one that an operator has to decide on; return the error for it."""
        if self.is_ours:
            try:
                self._save(state="unknown", problem=problem)
            except WharfingerError as error:
                LOG.warning("device job of %s: %s", self.provider.name, error)
        return self._error(
            problem,
            "It stays reserved. Find out what the device holds, and say so: `wharfinger device "
            f"resolve {self.provider.name} ...`.",
        )

    def _error(self, problem: str, remedy: str) -> JobUnresolved:
        uuid, name = self.provider.uuid, self.provider.name
        return JobUnresolved(provider=name, uuid=uuid, problem=problem, remedy=remedy)


def _words(error: BaseException) -> str:
    """Return what an error says, without the stop at its end."""
    return printable(str(error) or type(error).__name__).rstrip(".")
