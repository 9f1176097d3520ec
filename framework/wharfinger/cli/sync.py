"""The command ``wharfinger sync``."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from rich.console import Console

from wharfinger.cli.app import DIFFERENCE, DONE, FAILED
from wharfinger.cli.object_command import ObjectCommand, seconds
from wharfinger.error_codes import code, with_code
from wharfinger.exceptions import CommandFailed, WharfingerError

if TYPE_CHECKING:
    from wharfinger.conf import DefaultSection
    from wharfinger.providers.plan import Step
    from wharfinger.reconcile.cycle_result import CycleResult

T = TypeVar("T")


class Sync(ObjectCommand):
    """Update Placement so that it has what the drivers report.

    Stop the agent first, except for --dry-run. Prints the written changes as a diff. Exits with 1
    if a driver instance has a problem.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "--dry-run",
            action="store_true",
            help="print the changes, but do not write them; exits with 2 if there are changes and "
            "no errors",
        )
        parser.add_argument(
            "--driver",
            metavar="INSTANCE",
            action="append",
            help="sync only the driver instance with this name (repeatable); default: all enabled "
            "instances",
        )
        parser.add_argument(
            "--removal-delay",
            metavar="SECONDS",
            type=seconds,
            help="delete a provider only if two complete lists of the driver, at least this many "
            "seconds apart, both lack its device or node. Default: option removal_delay of the "
            "driver instance",
        )
        parser.add_argument(
            "--allow-mass-removal",
            action="store_true",
            help="delete the missing providers of a driver instance even if they are many: more "
            "than four, and more than a fifth of its providers. Without this option, none of them "
            "is then deleted. With it, those with allocations are fully reserved, not deleted. "
            "The removal delay still applies",
        )
        parser.add_argument(
            "-f", "--format", choices=("text", "json"), default="text", help="default: text"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        from wharfinger.conf import DefaultSection
        from wharfinger.placement import session

        default = DefaultSection.read(self.conf)
        session.check(self.conf)
        if not parsed_args.driver:
            default.require_instances()
        instances = list(dict.fromkeys(parsed_args.driver or default.enabled_drivers))
        outcomes = {}
        self._owners: set[str] = set()
        unprinted: OSError | SystemExit | None = None
        unreported: WharfingerError | None = None
        if not parsed_args.dry_run:
            self._report_up(default)
        try:
            with self._reporting(default, parsed_args.dry_run) as progress:
                for name in instances:
                    progress()
                    outcomes[name] = self._run(name, parsed_args, progress)
                    if parsed_args.format == "text":
                        try:
                            _print(name, outcomes[name], parsed_args.dry_run)
                        except (OSError, SystemExit) as error:
                            # The reader closed the pipe; the cycles continue without output.
                            unprinted = error
            if not parsed_args.dry_run:
                self._report(default, outcomes)
        except WharfingerError as error:
            unreported = error  # the service was not updated; the results are printed below
        if unprinted is not None:
            raise unprinted
        if parsed_args.format == "json":
            json.dump([_data(*item) for item in outcomes.items()], sys.stdout, indent=2)
            sys.stdout.write("\n")
        if unreported is not None:
            raise unreported
        if any(outcome.problems for outcome in outcomes.values()):
            return FAILED
        if parsed_args.dry_run and any(outcome.steps for outcome in outcomes.values()):
            return DIFFERENCE
        return DONE

    def _report_up(self, default: "DefaultSection") -> None:
        from wharfinger.tracker import service_record

        # Otherwise, another host could take over the nodes of this service.
        try:
            service_record.begin(self.objects, default.host)
        except WharfingerError as error:
            # Each instance reports an error of the database, and so does the report at the end.
            self.app.LOG.debug(
                "The command cannot report the service of this host as up in the database: %s",
                error,
            )

    @contextmanager
    def _reporting(self, default: "DefaultSection", dry_run: bool) -> Iterator[Callable[[], None]]:
        from wharfinger.tracker import service_record
        from wharfinger.tracker.heartbeat import Heartbeat

        def report() -> None:
            if self.has_opened:  # otherwise each instance reports why not
                service_record.begin(self.objects, default.host)

        if dry_run:
            yield lambda: None
            return
        down_time = default.service_down_time
        with Heartbeat(default.host, report, down_time) as heartbeat:
            yield heartbeat.progress

    def _report(self, default: "DefaultSection", outcomes: Mapping[str, "CycleResult"]) -> None:
        from wharfinger.tracker import service_record

        if not self.has_opened:
            return  # no instance could open the database, and each has reported that
        complete = outcomes.keys() == set(default.enabled_drivers) and not any(
            outcome.problems for outcome in outcomes.values()
        )
        service_record.report(self.objects, default.host, self._owners, complete=complete)

    def _run(
        self, name: str, parsed_args: argparse.Namespace, on_progress: Callable[[], None]
    ) -> "CycleResult":
        from wharfinger.console import progress
        from wharfinger.providers.removal import RemovalPolicy
        from wharfinger.reconcile import driver_instance_loader
        from wharfinger.reconcile.cycle_result import CycleResult

        taken: list[Step] = []
        try:
            instance = driver_instance_loader.load(self.conf, name)
            self._owners.add(instance.publisher.owner)
            delay = parsed_args.removal_delay
            policy = RemovalPolicy(
                delay=instance.section.removal_delay if delay is None else delay,
                allow_mass=parsed_args.allow_mass_removal,
            )
            with driver_instance_loader.running(
                instance,
                self.placement,
                self.objects,
                may_write=not parsed_args.dry_run,
                policy=policy,
            ) as cycle:
                if parsed_args.dry_run:
                    plan = cycle.plan()
                    return CycleResult(
                        steps=plan.steps,
                        pending=plan.pending,
                        foreign=plan.foreign,
                        problems=plan.problems,
                    )
                with progress.applying(name, taken) as (on_plan, on_step):
                    return cycle.sync(
                        _with_progress(on_progress, on_plan), _with_progress(on_progress, on_step)
                    )
        except WharfingerError as error:
            return CycleResult(steps=tuple(taken), problems=(error,))
        except Exception as error:
            # An unexpected error of one instance must not stop the others.
            self.app.LOG.debug(
                "the cycle of driver instance %s ended with an unexpected error",
                name,
                exc_info=True,
            )
            reason = f"{type(error).__name__}: {error}. This is a bug; --debug shows the traceback."
            return CycleResult(steps=tuple(taken), problems=(CommandFailed(reason=reason),))


def _with_progress(
    on_progress: Callable[[], None], call: Callable[[T], None]
) -> Callable[[T], None]:
    def called(what: T) -> None:
        on_progress()
        call(what)

    return called


def _print(name: str, outcome: "CycleResult", dry_run: bool) -> None:
    from wharfinger.console import plan

    console = Console(soft_wrap=True, highlight=False, emoji=False)
    for line in plan.as_text(outcome.steps, outcome.pending, outcome.foreign):
        console.print(line)
    done = "to be written" if dry_run else "written"
    count = len(outcome.steps)
    if count or not outcome.problems:
        changes = f"{count} {'change' if count == 1 else 'changes'} {done}"
        console.print(f"{name}: {changes if count else 'no change'}")
    for problem in outcome.problems:
        Console(stderr=True, soft_wrap=True, highlight=False, emoji=False).print(
            f"{name}: {with_code(problem)}", style="red", markup=False
        )


def _data(name: str, outcome: "CycleResult") -> dict[str, Any]:
    from wharfinger.console import plan

    return {
        "instance": name,
        "steps": [plan.as_data(step) for step in outcome.steps],
        "pending": [
            {"uuid": item.uuid, "name": item.name, "reason": item.reason}
            for item in outcome.pending
        ],
        "foreign": [
            {"uuid": item.uuid, "name": item.name, "classes": sorted(item.classes)}
            for item in outcome.foreign
        ],
        "problems": [
            {"code": code(problem), "message": str(problem)} for problem in outcome.problems
        ],
    }
