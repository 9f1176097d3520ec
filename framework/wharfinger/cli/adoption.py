"""The command ``wharfinger provider adopt``."""

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.console import Console

from wharfinger.cli.app import DIFFERENCE, DONE, FAILED
from wharfinger.cli.object_command import ObjectCommand, text, uuid

if TYPE_CHECKING:
    from wharfinger.providers.plan import Plan
    from wharfinger.reconcile.cycle import Reconciler


class ProviderAdopt(ObjectCommand):
    """Adopt providers of another program: a driver instance publishes them from now on.

    Stop the other program and the agent first. Each provider needs the uuid, name, parent and
    resource classes that the driver reports, and no trait of another owner or driver instance.
    Otherwise, the command fails.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "providers",
            metavar="UUID",
            nargs="+",
            type=uuid,
            help="the uuid of a provider to adopt",
        )
        parser.add_argument(
            "--instance",
            metavar="NAME",
            type=text(64),
            required=True,
            help="the enabled driver instance of this host that will publish the providers",
        )
        parser.add_argument(
            "--dry-run",
            action="store_true",
            help="print the changes, but do not write them; exits with 2 if there are changes and "
            "no errors",
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        from wharfinger.providers.removal import RemovalPolicy
        from wharfinger.reconcile import driver_instance_loader

        self._console = Console(soft_wrap=True, highlight=False, emoji=False)
        self._planned = False
        uuids = frozenset(parsed_args.providers)
        instance = driver_instance_loader.load(self.conf, parsed_args.instance)
        with driver_instance_loader.running(
            replace(instance, publisher=replace(instance.publisher, adopts=uuids)),
            self.placement,
            self.objects,
            may_write=not parsed_args.dry_run,
            policy=RemovalPolicy(delay=instance.section.removal_delay),
        ) as cycle:
            return self._show(cycle) if parsed_args.dry_run else self._adopt(cycle)

    def _show(self, cycle: "Reconciler") -> int:
        plan, takeovers = cycle.plan_adoption()
        self._print(plan)
        for row in takeovers:
            self._console.print(
                f"~ {row.hypervisor_hostname} ({row.uuid}) has to be taken over first, from driver "
                f"instance {row.driver_instance} on host {row.host}",
                markup=False,
            )
        count = len(plan.steps)
        self._print_count(cycle, count, "to be written")
        return DIFFERENCE if count or takeovers else DONE

    def _adopt(self, cycle: "Reconciler") -> int:
        outcome = cycle.adopt(on_plan=self._print)
        self._print_count(cycle, len(outcome.steps), "written")
        for problem in outcome.problems:
            self.app.LOG.error("%s", problem)
        return FAILED if outcome.problems else DONE

    def _print(self, plan: "Plan") -> None:
        from wharfinger.console import plan as drawing

        if not self._planned:
            for line in drawing.as_text(plan.steps, (), plan.foreign):
                self._console.print(line)
        self._planned = self._planned or bool(plan.steps)

    def _print_count(self, cycle: "Reconciler", count: int, done: str) -> None:
        changes = (
            f"{count} {'change' if count == 1 else 'changes'} {done}" if count else "no change"
        )
        self._console.print(f"{cycle.instance}: {changes}", markup=False)
