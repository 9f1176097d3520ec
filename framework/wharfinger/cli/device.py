"""The commands ``wharfinger device program``, ``device jobs`` and ``device resolve``."""

import argparse
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from wharfinger.cli.object_command import (
    ObjectCommand,
    ObjectLister,
    as_uuid,
    full_name,
    known,
    row,
    seconds,
    text,
    uuid,
    values,
)
from wharfinger.exceptions import CommandFailed, NotFound, printable

if TYPE_CHECKING:
    from wharfinger.driver import ComputeDriver
    from wharfinger.objects import DeviceJob
    from wharfinger.placement.model import ProviderSummary


class _DeviceCommand(ObjectCommand):
    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "provider", metavar="PROVIDER", help="the provider of the device, by name or uuid"
        )
        return parser

    @contextmanager
    def connected(self, provider: "ProviderSummary") -> "Iterator[ComputeDriver]":
        from wharfinger.reconcile import driver_instance_loader
        from wharfinger.reconcile.driver_calls import list_nodes

        driver = self._driver_of(provider)
        with driver_instance_loader.connected(driver):
            list_nodes(driver)
            yield driver

    def _driver_of(self, provider: "ProviderSummary") -> "ComputeDriver":
        from wharfinger.conf import DefaultSection
        from wharfinger.objects import ProviderRecordList
        from wharfinger.reconcile import driver_instance_loader

        host = DefaultSection.read(self.conf).host
        publishers = [
            (one.host, one.driver_instance)
            for one in ProviderRecordList.get_by_filters(self.objects, provider_uuid=provider.uuid)
            if (one.applied or one.intended) is not None
        ]
        for where, name in publishers:
            if where == host:
                return driver_instance_loader.load(self.conf, name).driver
        others = "; ".join(f"instance {name} on host {where}" for where, name in publishers)
        raise CommandFailed(
            reason=f"no driver instance of this host ({host}) publishes provider "
            f"{full_name(provider)}. "
            + (
                f"Run the command on the host of its publisher: {others}."
                if others
                else "Let a driver instance publish the provider first: configure the driver "
                "instance, and run `wharfinger sync`."
            )
        )


class DeviceProgram(_DeviceCommand):
    """Load an image into a device, and reserve the device meanwhile.

    Run the command on the host that publishes the device. The device must have no allocations. If
    the outcome is unknown, the device stays reserved until `device resolve`.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--image",
            metavar="UUID",
            type=uuid,
            required=True,
            help="the uuid of the image to load; for a device of Cyborg, of an image in Glance",
        )
        parser.add_argument(
            "--function",
            metavar="ID",
            type=text(),
            help="the id of the function that the image loads. After the programming, its trait "
            "CUSTOM_FPGA_FUNCTION_ID_* replaces the former function trait of the provider. "
            "Default: the function that the driver then reports, if any",
        )
        parser.add_argument(
            "--wait-for-idle",
            metavar="SECONDS",
            type=seconds,
            default=0.0,
            help="how many seconds to wait if the device has allocations. If it still has some "
            "after that time, the command fails. Default: 0",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        from wharfinger.console import progress
        from wharfinger.jobs import program
        from wharfinger.scheduling import provider_details

        provider = provider_details.find(self.placement, parsed_args.provider)
        with (
            _terminated_as_interrupted(),
            self.connected(provider) as driver,
            progress.following(provider.name) as on_step,
        ):
            program(
                self.placement,
                self.objects,
                driver,
                provider,
                image=parsed_args.image,
                function=parsed_args.function,
                wait_for_idle=parsed_args.wait_for_idle,
                down_time=self.down_time,
                on_step=on_step,
            )


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    # After KeyboardInterrupt, the job stores its state.
    former = {
        one: signal.signal(one, signal.default_int_handler)
        for one in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(one) is not signal.SIG_IGN  # as with nohup
    }
    try:
        yield
    finally:
        for one, handler in former.items():
            signal.signal(one, handler)


class DeviceJobs(ObjectLister):
    """List the last programming jobs of devices, with their states."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--unfinished",
            action="store_true",
            help="only jobs in progress, and jobs to resolve with `wharfinger device resolve`",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> tuple[Any, Any]:
        from wharfinger.jobs import describe
        from wharfinger.objects import JOB_HOLDER, DeviceJobList, ReservationList
        from wharfinger.objects.field_types import now

        down_time, present = self.down_time, now()
        jobs = DeviceJobList.get_by_filters(self.objects)
        held = {
            one.provider_uuid
            for one in ReservationList.get_by_filters(self.objects, holder=JOB_HOLDER)
        }

        def is_held(job: "DeviceJob") -> bool:
            return not held.isdisjoint(job.scope)

        return (
            "Provider",
            "UUID",
            "State",
            "Reserved",
            "Image",
            "Trait",
            "Started",
            "Seen",
            "Host",
            "Process",
            "Problem",
        ), [
            row(
                *values(job, "provider_name", "provider_uuid"),
                known(partial(describe, job, down_time, present)),
                known(partial(is_held, job)),
                *values(job, "image", "trait", "started_at", "seen_at", "host", "process_id"),
                *values(job, "problem"),
            )
            for job in jobs
            if not parsed_args.unfinished
            or known(partial(is_held, job))
            or known(partial(getattr, job, "is_unfinished"))
        ]


class DeviceResolve(_DeviceCommand):
    """Declare the outcome of a job that did not finish, and end its reservation of the device.

    Inspect the device first: the command does not check the outcome.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        outcome = parser.add_mutually_exclusive_group(required=True)
        outcome.add_argument(
            "--programmed",
            action="store_true",
            help="declare that the device now has the image of the job",
        )
        outcome.add_argument(
            "--unchanged",
            action="store_true",
            help="declare that the device still has the image from before the job",
        )
        parser.add_argument(
            "--function",
            metavar="ID",
            type=text(),
            help="the id of the image's function. Only with --programmed, and only on the host "
            "that publishes the device. Default: the function that was given when the job was "
            "started, if any",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        from wharfinger.jobs import resolve
        from wharfinger.scheduling import provider_details

        if parsed_args.function and not parsed_args.programmed:
            raise CommandFailed(
                reason="--function can only be used with --programmed, not with --unchanged"
            )
        name = parsed_args.provider
        provider: ProviderSummary | None = None
        try:
            provider = provider_details.find(self.placement, name)
            uuid = provider.uuid
        except NotFound:
            if (former := self._former(name)) is None:
                raise
            uuid = former
        trait = None
        if parsed_args.function and provider is not None:
            with self.connected(provider) as driver:
                trait = driver.function_trait(provider.uuid, parsed_args.function)
        left = resolve(
            self.placement,
            self.objects,
            uuid,
            programmed=parsed_args.programmed,
            trait=trait,
            down_time=self.down_time,
        )
        if left is None:
            done = "the job is deleted; the device no longer exists"
        else:
            done = f"still reserved: {'; '.join(left)}" if left else "free"
        sys.stdout.write(f"{printable(f'{full_name(provider) if provider else name}: {done}')}\n")

    def _former(self, name: str) -> str | None:
        from wharfinger.objects import DeviceJobList

        jobs = DeviceJobList.get_by_filters(self.objects, provider_name=name)
        return as_uuid(name) or next((job.provider_uuid for job in jobs), None)
