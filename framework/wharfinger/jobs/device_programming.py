"""Programming of a device, which stays fully reserved until its image is known."""

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final
from uuid import uuid4

from oslo_log import log as logging

from wharfinger.driver import ComputeDriver
from wharfinger.exceptions import (
    ChangedMeanwhile,
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
from wharfinger.objects import JOB_HOLDER, Context, DeviceJob, ReservationList
from wharfinger.objects.field_types import now
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.model import ProviderSummary
from wharfinger.providers import names, ownership
from wharfinger.providers.device_function_traits import function_traits
from wharfinger.reconcile.device_jobs import delete_earlier, jobs_of
from wharfinger.reconcile.reserve_and_release import Reservations

LOG: Final = logging.getLogger(__name__)
#: Seconds between two checks of a condition that a job waits for.
_INTERVAL: Final = 1.0
#: How often a job reports within the down time, at least.
_BEATS: Final = 3
#: The number of consumers that a message names, at most.
_FEW: Final = 3
_UNREACHABLE: Final = (ObjectError, PlacementError, StateError)

#: Takes the name of a step of a job, and details for the operator.
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

    The driver must publish the device on this host, and have a snapshot of its backend. ``image``
    is a uuid. ``function`` is the function of the image; None if the driver reports it.
    ``wait_for_idle`` is in seconds. ``resolve`` may end this job if the job does not report for
    ``down_time``.

    Raises InvalidName, JobRefused, ReservationRefused, ProgrammingRefused or ProgrammingFailed:
    this job did not change the function, and does not reserve the device. Raises PlacementError,
    ObjectError or StateError: the device may stay reserved. Raises JobUnresolved: the device stays
    reserved until ``resolve`` is called.
    """
    declared = driver.capabilities.programming
    if declared is None or not declared.supported:
        raise _refused(
            provider,
            f"driver instance {driver.name} does not program devices"
            f"{f' ({declared.reason})' if declared else ''}.",
            "Program the device with another driver instance.",
        )
    image = names.check_uuid(image, "image")
    trait = None if function is None else driver.function_trait(provider.uuid, function)
    uuids = {provider.uuid, *driver.programming_scope(provider.uuid)}
    # Sorted, so that all jobs reserve the providers of a device in the same order.
    scope = [one for uuid in sorted(uuids) for one in client.list_providers(uuid=uuid)]
    if missing := sorted(uuids - {one.uuid for one in scope}):
        raise _refused(
            provider,
            f"providers {', '.join(missing)} of the device are not in Placement, and cannot be "
            "reserved.",
            "Wait until the driver instance has published these providers.",
        )
    reservations = Reservations(client, context, down_time)
    work = _Work(client, context, reservations, driver, provider, scope, down_time, on_step)
    work.store_job(image=image, function=function, trait=trait)
    return work.do(wait_for_idle)


def _refused(provider: ProviderSummary, problem: str, remedy: str) -> JobRefused:
    return JobRefused(provider=provider.name, uuid=provider.uuid, problem=problem, remedy=remedy)


@dataclass(frozen=True, slots=True)
class _Known:
    #: None: the device has no function.
    function: str | None


@dataclass(slots=True)
class _Work:
    client: PlacementClient
    context: Context
    reservations: Reservations
    driver: ComputeDriver
    provider: ProviderSummary
    scope: Sequence[ProviderSummary]
    #: The job stores several times in it that it is in progress.
    down_time: timedelta
    report: OnStep
    job: DeviceJob = field(init=False)
    #: The owner traits of the providers, by provider uuid.
    owners: dict[str, frozenset[str]] = field(default_factory=dict)
    #: The providers that this job reserves, by reservation uuid.
    taken: dict[str, ProviderSummary] = field(default_factory=dict)
    #: When the job last stored that it is in progress.
    beaten: float = field(default_factory=time.monotonic)
    #: Whether no operator has resolved the job meanwhile.
    is_ours: bool = True

    def store_job(self, **wanted: str | None) -> None:
        uuids = [one.uuid for one in self.scope]
        jobs = jobs_of(self.context, uuids)
        held = ReservationList.get_by_filters(self.context, provider_uuid=uuids, holder=JOB_HOLDER)
        if held or any(not one.is_whole or one.is_unfinished for one in jobs):
            raise self._taken()
        own = self.provider.uuid
        former = next((one for one in jobs if one.provider_uuid == own), None)
        self.job = former or DeviceJob(self.context, provider_uuid=own)
        # From now on, a report that the device has one of these earlier functions is outdated.
        stale = {trait for one in jobs for trait in (*one.stale_traits, one.held_trait) if trait}
        self._change(
            provider_name=self.provider.name,
            siblings=[uuid for uuid in uuids if uuid != own],
            driver_instance=self.driver.name,
            host=self.driver.host,
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
                self.job.create()
            else:
                self.job.save()
        except ChangedMeanwhile:
            raise self._taken() from None

    def do(self, wait_for_idle: float) -> DeviceJob:
        try:
            self._reserve()
            self._await_idle(wait_for_idle)
            before = self._function()
            traits = [self.client.get_traits(one.uuid).traits for one in self.scope]
            former = function_traits(frozenset().union(*traits))
            self._save(state="programming", former_traits=sorted(former))
        except BaseException as error:
            self._give_up(error)
            raise
        self._load_image(before)
        self._finish()
        return self.job

    def _reserve(self) -> None:
        for one in self.scope:
            self.owners[one.uuid] = ownership.owners(self.client.get_traits(one.uuid).traits)
            uuid = str(uuid4())
            self.taken[uuid] = one
            try:
                self.reservations.reserve(
                    one, holder=JOB_HOLDER, reason=f"programming image {self.job.image}", uuid=uuid
                )
            except ObjectExists:
                del self.taken[uuid]
                raise self._taken() from None
            self._beat()
        others = ", ".join(one.name for one in self.scope if one.uuid != self.provider.uuid)
        also = f", nor from {others}" if others else ""
        self.report("reserved", f"no new allocations from it{also}")

    def _await_idle(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while why := self._reason_to_wait(is_patient=time.monotonic() < end):
            if time.monotonic() >= end:
                waited = f" after {seconds:g} s of waiting" if seconds else ""
                raise _refused(
                    self.provider,
                    f"it cannot be programmed{waited}: {why}.",
                    "Repeat the command when the device is idle, or let it wait longer with "
                    "--wait-for-idle.",
                )
            if self.job.state != "waiting":
                self._save(state="waiting")
            self.report("waiting", why)
            time.sleep(_INTERVAL)
            self._beat()

    def _reason_to_wait(self, *, is_patient: bool) -> str | None:
        try:
            # Another program may have ended the reservation. So first reserve, then read consumers.
            for uuid, one in self.taken.items():
                self.reservations.keep_reserved(uuid, one.uuid)
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
                    return f"{one.name} is not fully reserved yet"
        except _UNREACHABLE as error:
            if not is_patient:
                raise
            return _words(error)
        return None

    def _load_image(self, before: _Known | None) -> None:
        job, errors = self.job, list[BaseException]()

        def load() -> None:
            try:
                self.driver.program(job.provider_uuid, job.image, job.function)
            except BaseException as error:  # a driver may raise any error
                errors.append(error)

        def keep() -> None:
            while loading.is_alive():
                for uuid, one in self.taken.items():
                    try:
                        self.reservations.keep_reserved(uuid, one.uuid)
                    except _UNREACHABLE as error:
                        _warn(
                            one,
                            "while the device is programmed, its reservation could not be checked; "
                            "the job tries again",
                            error,
                        )
                loading.join(_INTERVAL)

        loading = threading.Thread(target=load, name=JOB_HOLDER, daemon=True)
        keeping = threading.Thread(target=keep, name=f"{JOB_HOLDER}, reserved", daemon=True)
        try:
            loading.start()
            keeping.start()  # in another thread, so that reports do not wait for Placement
            self.report("programming", f"image {job.image}")
            for thread in (loading, keeping):
                while thread.is_alive():
                    thread.join(_INTERVAL)
                    self._beat()
        except BaseException as error:
            problem = f"the job was interrupted while it loaded the image ({_words(error)})."
            raise self._unresolved(problem) from error
        for failure in errors:
            if isinstance(failure, ProgrammingRefused) or (
                isinstance(failure, ProgrammingFailed)
                and before is not None
                and self._function() == before
            ):
                self._give_up(failure)
                raise failure
            problem = f"programming failed, and its present image is unknown: {_words(failure)}."
            raise self._unresolved(problem) from failure

    def _finish(self) -> None:
        job, known = self.job, self._function()
        trait = job.trait
        try:
            self._save(seen_at=now())
            if known is not None:
                held = known.function
                trait = held and self.driver.function_trait(self.provider.uuid, held)
                if job.trait not in (None, trait):
                    raise self._unresolved(
                        f"it was programmed, but reports the function {held or 'none'}, not the "
                        f"function of the image ({job.trait})."
                    )
            for one in self.scope:
                self.reservations.set_function_trait(one, trait, self.owners[one.uuid])
            job.note_held(trait)
            self._save()
            delete_earlier(self.context, job)
        except JobUnresolved:
            raise
        except BaseException as error:
            problem = f"it was programmed, but its function was not stored: {_words(error)}."
            raise self._unresolved(problem) from error
        try:
            self.report("programmed", trait or "its function is unknown")
        finally:
            self._release()

    def _give_up(self, error: BaseException) -> None:
        if not isinstance(error, JobUnresolved):
            self._save(state="failed", problem=_words(error))
            self._release()

    def _release(self) -> None:
        lines: list[str] = []
        for uuid, one in self.taken.items():
            try:
                left = self.reservations.release_one(uuid)
            except ObjectNotFound:
                continue  # the provider could not be reserved, or an operator has released it
            except BaseException as error:
                if not isinstance(error, PlacementError) or self.reservations.is_stored(uuid):
                    raise self._error(
                        f"the job has ended ({self.job.state}), but the reservation of {one.name} "
                        f"has not: {_words(error)}.",
                        f"End the reservation with `wharfinger device resolve {one.name}`, and "
                        "--programmed or --unchanged.",
                    ) from error
                left = (f"Placement may be updated only by the next cycle: {_words(error)}",)
            free = f"still reserved: {'; '.join(left)}" if left else "free"
            lines.append(f"{one.name}: {free}" if len(self.scope) > 1 else free)
        for free in lines:
            self.report("released", free)

    def _beat(self) -> None:
        is_due = time.monotonic() - self.beaten >= self.down_time.total_seconds() / _BEATS
        if self.is_ours and is_due:
            self.beaten = time.monotonic()
            try:
                self._save(seen_at=now())
            except (JobUnresolved, *_UNREACHABLE) as error:
                _warn(self.provider, "the job could not store that it is in progress", error)

    def _function(self) -> _Known | None:
        try:
            return _Known(self.driver.current_function(self.provider.uuid))
        except Exception as error:  # a driver may raise any error
            LOG.debug(
                "the driver does not report the function of device %s: %s",
                self.provider.name,
                error,
            )
            return None

    def _change(self, **values: Any) -> None:
        for name, value in values.items():
            setattr(self.job, name, value)

    def _save(self, **values: Any) -> None:
        self._change(**values)
        try:
            self.job.save()
        except ChangedMeanwhile as error:
            self.is_ours = False
            raise self._error(
                "another process has resolved or deleted the job while it was in progress.",
                "Check which image the device has. If the outcome of the job is wrong, program the "
                "device again.",
            ) from error

    def _taken(self) -> JobRefused:
        return _refused(
            self.provider,
            "another job of this device is in progress or unresolved.",
            "List the jobs with `wharfinger device jobs`. Wait for the end of that job, or resolve "
            "it.",
        )

    def _unresolved(self, problem: str) -> JobUnresolved:
        """Note an unknown outcome if possible; return the error to raise."""
        if self.is_ours:
            try:
                self._save(state="unknown", problem=problem)
            except WharfingerError as error:
                _warn(self.provider, "the job is unresolved, but this could not be stored", error)
        return self._error(
            problem,
            "The device stays reserved. Find out which image the device has, and run `wharfinger "
            f"device resolve {self.provider.name}` with --programmed or --unchanged.",
        )

    def _error(self, problem: str, remedy: str) -> JobUnresolved:
        uuid, name = self.provider.uuid, self.provider.name
        return JobUnresolved(provider=name, uuid=uuid, problem=problem, remedy=remedy)


def _warn(provider: ProviderSummary, problem: str, error: Exception) -> None:
    LOG.warning(
        "programming of device %s (%s): %s: %s", provider.name, provider.uuid, problem, error
    )


def _words(error: BaseException) -> str:
    return printable(str(error) or type(error).__name__).rstrip(".")
