"""``wharfinger agent``: publish what the drivers say, again and again."""

import argparse
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from wharfinger.cli.app import DONE
from wharfinger.cli.entry_point import USUAL_THRESHOLDS
from wharfinger.cli.object_command import ObjectCommand


class AgentCommand(ObjectCommand):
    """Run the enabled driver instances until SIGTERM or SIGINT.

    Prints nothing; problems are logged, and with -v what was written. Exits with 0 when it was
    stopped, with 1 where it cannot start.
    """

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        from wharfinger.agent import logging_setup
        from wharfinger.agent.agent import Agent
        from wharfinger.conf import DefaultSection
        from wharfinger.placement import session

        gc.set_threshold(*USUAL_THRESHOLDS)
        options = self.app.options
        logging_setup.configure(self.conf, options.verbose_level, options.log_file)
        session.check(self.conf)
        DefaultSection.read(self.conf).require_instances()
        agent = Agent(self.conf, self.placement, self.objects)
        with _on_signals(agent.stop):
            left = agent.run()
        if left:
            # Python waits for threads that those have started, and may crash over others.
            logging.shutdown()
            sys.stderr.flush()
            os._exit(DONE)
        return DONE


@contextmanager
def _on_signals(stop: Callable[[], None]) -> Iterator[None]:
    before = {
        number: signal.signal(number, lambda *_: stop())
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
