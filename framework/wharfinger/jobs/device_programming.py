"""Programming a device: it is reserved first, and released when it is known what it holds."""

import os
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
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
from wharfinger.jobs.job_activity import forget_others
from wharfinger.objects import JOB_HOLDER as HOLDER
from wharfinger.objects import Context, DeviceJob, DeviceJobList, Reservation, ReservationList
from wharfinger.objects.field_types import now
from wharfinger.placement.client import PlacementClient
from wharfinger.placement.model import ProviderSummary
from wharfinger.providers import names, ownership
from wharfinger.providers.device_function_traits import function_traits
from wharfinger.reconcile.reservations import Reservations

LOG: Final = logging.getLogger(__name__)
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
    job = _enter(
        context,
        provider,
        siblings=[one.uuid for one in scope if one.uuid != provider.uuid],
        driver_instance=driver.name,
        host=driver.host,
        image=image,
        function=function,
        trait=trait,
    )
    work = _Work(
        client=client,
        context=context,
        driver=driver,
        provider=provider,
        scope=scope,
        job=job,
        down_time=down_time,
        tell=on_step,
    )
    return work.do(wait_for_idle)


def _scope(
    client: PlacementClient, driver: ComputeDriver, provider: ProviderSummary
) -> list[ProviderSummary]:
    """All that is programmed with a device, in the one order in which everybody takes it."""
    uuids = {provider.uuid, *driver.programming_scope(provider.uuid)}
    scope = [one for uuid in sorted(uuids) for one in client.list_providers(uuid=uuid)]
    if missing := sorted(uuids - {one.uuid for one in scope}):
        raise JobRefused(
            provider=provider.name,
            uuid=provider.uuid,
            problem=f"some of it is not in Placement ({', '.join(missing)}), and nobody can "
            "reserve that.",
            remedy="Wait until it is published.",
        )
    return scope


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
    if held or any(not one.is_whole or one.is_unfinished for one in jobs):
        raise _taken(provider)
    job = next((one for one in jobs if one.provider_uuid == provider.uuid), None)
    values["stale_traits"] = sorted({trait for one in jobs for trait in _stale(one)})
    try:
        if job is None:
            job = DeviceJob(context, provider_uuid=provider.uuid, **values)
            job.create()
        else:
            _change(job, **values)
            job.save()
    except (ConcurrentSave, ObjectExists, ObjectNotFound):
        raise _taken(provider) from None
    return job


def _stale(job: DeviceJob) -> list[str]:
    """What is not to be believed of a device any more, once it is programmed again."""
    return [*job.stale_traits, *((job.held_trait,) if job.held_trait else ())]


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

    ``scope`` are the providers that it is about. It reports several times within ``down_time``.
    """

    def __init__(
        self,
        *,
        client: PlacementClient,
        context: Context,
        driver: ComputeDriver,
        provider: ProviderSummary,
        scope: Sequence[ProviderSummary],
        job: DeviceJob,
        down_time: timedelta,
        tell: OnStep,
    ) -> None:
        self._client: Final = client
        self._context: Final = context
        self._reservations: Final = Reservations(client, context, down_time)
        self._driver: Final = driver
        self._provider: Final = provider
        self._scope: Final = scope
        self._job: Final = job
        self._interval: Final = down_time.total_seconds() / _BEATS
        self._tell: Final = tell
        self._beaten = time.monotonic()
        self._is_ours = True
        #: The providers that may be reserved, by the uuid of the reservation; the reservations
        #: that are known to be stored; and the owner traits of each provider.
        self._taken: Final[dict[str, ProviderSummary]] = {}
        self._held: Final[list[Reservation]] = []
        self._owners: Final[dict[str, frozenset[str]]] = {}

    def do(self, wait_for_idle: float) -> DeviceJob:
        """All of it, in the order in which nothing is lost."""
        try:
            self._reserve()
            self._await_idle(wait_for_idle)
            before = self._function()
            self._save(state="programming", former_traits=self._said())
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
            uuid = str(uuid4())
            self._taken[uuid] = one
            try:
                held = self._reservations.reserve(
                    one, holder=HOLDER, reason=f"programming image {self._job.image}", uuid=uuid
                )
            except ObjectExists:
                del self._taken[uuid]
                raise _taken(self._provider) from None
            self._held.append(held)
            self._beat()
        self._tell("reserved", self._named("nothing more can be allocated from it"))

    def _await_idle(self, seconds: float) -> None:
        """See that nothing is allocated from it; since it is reserved, nothing comes any more."""
        end = time.monotonic() + seconds
        while why := self._not_idle(is_patient=time.monotonic() < end):
            if time.monotonic() >= end:
                waited = f" after {seconds:g} s of waiting" if seconds else ""
                raise JobRefused(
                    provider=self._provider.name,
                    uuid=self._provider.uuid,
                    problem=f"it cannot be programmed{waited}: {why}.",
                    remedy="Have that end first, or have this wait for it (--wait-for-idle).",
                )
            if self._job.state != "waiting":
                self._save(state="waiting")
            self._tell("waiting", why)
            time.sleep(_PACE)
            self._beat()

    def _not_idle(self, *, is_patient: bool) -> str | None:
        """What it is waited for, as people would say it; None where nothing is."""
        try:
            # Its owner may have written other figures: who has come since is seen after this.
            for held in self._held:
                self._reservations.keep(held)
            if consumers := self._consumers():
                more = f" and {len(consumers) - _FEW} more" if len(consumers) > _FEW else ""
                return f"it is in use by {', '.join(consumers[:_FEW])}{more}"
            for one in self._scope:
                live = self._client.get_inventories(one.uuid).inventories.values()
                if not all(inventory.is_fully_reserved for inventory in live):
                    return f"{one.name} is not reserved, though it was to be"
        except _UNREACHABLE as error:
            if not is_patient:
                raise
            return _words(error)
        return None

    def _said(self) -> list[str]:
        """The functions that are said of it, by their traits."""
        return sorted(
            {
                trait
                for one in self._scope
                for trait in function_traits(self._client.get_traits(one.uuid).traits)
            }
        )

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

        def keep() -> None:
            while loading.is_alive():
                self._keep()
                loading.join(_PACE)

        loading = threading.Thread(target=load, name=HOLDER, daemon=True)
        keeping = threading.Thread(target=keep, name=f"{HOLDER}, reserved", daemon=True)
        try:
            loading.start()
            keeping.start()  # apart: signs of life do not wait for Placement
            self._tell("programming", f"image {job.image}")
            for thread in (loading, keeping):
                while thread.is_alive():
                    thread.join(_PACE)
                    self._beat()
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
                self._reservations.set_function_trait(one, trait, self._owners[one.uuid])
            job.note_held(trait)
            self._save()
            forget_others(self._context, job)
        except JobUnresolved:
            raise
        except BaseException as error:
            raise self._unresolved(f"it was programmed, and then: {_words(error)}.") from error
        try:
            self._tell("programmed", trait or "nothing says which function it has")
        finally:
            self._let_go()

    def _give_up(self, error: BaseException) -> None:
        """Nothing has been begun: let go of the device."""
        if isinstance(error, JobUnresolved):
            return
        self._save(state="failed", problem=_words(error))
        self._let_go()

    def _let_go(self) -> None:
        """End the reservations of this job, not those of other jobs; then report it."""
        told: list[str] = []
        for uuid, one in self._taken.items():
            try:
                left = self._reservations.release_one(uuid)
            except ObjectNotFound:
                continue  # it could not be reserved, or somebody else has released it
            except PlacementError as error:
                if self._reservations.is_there(uuid):
                    raise self._left(one, error) from error
                left = (f"Placement may not say so before the next cycle: {_words(error)}",)
            except BaseException as error:
                raise self._left(one, error) from error
            free = f"still reserved: {'; '.join(left)}" if left else "free"
            told.append(f"{one.name}: {free}" if len(self._scope) > 1 else free)
        for free in told:
            self._tell("released", free)

    def _left(self, one: ProviderSummary, error: BaseException) -> JobUnresolved:
        """The error of a reservation that could not be ended."""
        return JobUnresolved(
            provider=self._provider.name,
            uuid=self._provider.uuid,
            problem=f"the job has come to its end ({self._job.state}), and the reservation of "
            f"{one.name} has not: {_words(error)}.",
            remedy=f"Say once more what it holds: `wharfinger device resolve {one.name} ...`.",
        )

    def _keep(self) -> None:
        """See that the device is still reserved, as far as that can be seen."""
        for held in self._held:
            try:
                self._reservations.keep(held)
            except _UNREACHABLE as error:
                LOG.warning("programming %s: %s", self._provider.name, error)

    def _beat(self) -> None:
        """Say that the job is under way, and that goes on even if somebody has decided on it."""
        if not self._is_ours or time.monotonic() - self._beaten < self._interval:
            return
        self._beaten = time.monotonic()
        try:
            self._save(seen_at=now())
        except (JobUnresolved, *_UNREACHABLE) as error:
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
                problem="somebody else has decided on the job while it was under way.",
                remedy="See that they know what has become of it.",
            ) from error

    def _unresolved(self, problem: str) -> JobUnresolved:
        """Mark the job as one that somebody has to decide on."""
        if self._is_ours:
            try:
                self._save(state="unknown", problem=problem)
            except WharfingerError as error:
                LOG.warning("device job of %s: %s", self._provider.name, error)
        return JobUnresolved(
            provider=self._provider.name,
            uuid=self._provider.uuid,
            problem=problem,
            remedy="It stays reserved. Find out what the device holds, and say so: `wharfinger "
            f"device resolve {self._provider.name} ...`.",
        )

    def _named(self, told: str) -> str:
        """What is told, with all that it is about where that is more than the device's name."""
        others = [one.name for one in self._scope if one.uuid != self._provider.uuid]
        return f"{told}, nor from {', '.join(others)}" if others else told


def _words(error: BaseException) -> str:
    """What an error says, without the stop at its end."""
    return printable(str(error) or type(error).__name__).rstrip(".")
