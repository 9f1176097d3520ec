"""The command ``wharfinger provider detach``."""

import argparse

from wharfinger.cli.object_command import ObjectCommand, print_done


class ProviderDetach(ObjectCommand):
    """Make a child provider a root provider, fully reserved, until its node has a new root.

    Use it for children with allocations, if Placement keeps the root provider of a deleted compute
    service. Detach them, delete the former root, and start nova-compute. The next sync moves them
    below the new root, and ends the reservation. Allocations stay.

    Needs microversion 1.37.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            "provider", metavar="PROVIDER", help="the child provider to detach, by name or uuid"
        )
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        from wharfinger.reconcile.reserve_and_release import Reservations
        from wharfinger.scheduling import provider_details

        provider = provider_details.find(self.placement, parsed_args.provider)
        root = Reservations(self.placement, self.objects, self.down_time).detach(provider)
        print_done(
            provider,
            f"detached from {root.name} ({root.uuid}), and fully reserved until a sync sees a new "
            f"root {root.name}",
        )
