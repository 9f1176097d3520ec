"""``wharfinger agent``: publish what the drivers report until it is stopped."""

import argparse
import gc
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Final

from wharfinger.cli.app import DONE
from wharfinger.cli.entry_point import USUAL_THRESHOLDS
from wharfinger.cli.object_command import ObjectCommand
from wharfinger.exceptions import WharfingerError

if TYPE_CHECKING:
    from keystoneauth1.adapter import Adapter

    from wharfinger.agent.configuration_snapshot import Snapshot
    from wharfinger.agent.runner import Runner
    from wharfinger.placement.client import PlacementClient

#: Seconds that the check of a new configuration may take: it imports the drivers.
_CHECK_TIMEOUT: Final = 60


class AgentCommand(ObjectCommand):
    """Run the enabled driver instances until SIGTERM or SIGINT.

    SIGHUP reads the configuration again. Prints nothing; problems are logged, and with -v what was
    written. Exits with 0 when it was stopped, with 1 where it cannot start.
    """

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        from wharfinger.agent import logging_setup
        from wharfinger.agent.agent import Agent
        from wharfinger.agent.systemd import SystemdNotifier
        from wharfinger.conf import DefaultSection
        from wharfinger.placement import session

        gc.set_threshold(*USUAL_THRESHOLDS)
        _open_standard_streams()
        snapshot = self._snapshot()
        options = self.app.options
        logging_setup.configure(snapshot.conf, options.verbose_level, options.log_file)
        session.check(snapshot.conf)
        DefaultSection.read(snapshot.conf).require_instances()
        agent = Agent(
            snapshot,
            self._make_runner,
            self.objects,
            self._next_snapshot,
            SystemdNotifier(os.environ),
        )
        signals = {
            signal.SIGTERM: agent.stop,
            signal.SIGINT: agent.stop,
            signal.SIGHUP: agent.reload,
            signal.SIGCHLD: agent.look,
        }
        with _on_signals(signals):
            left = agent.run()
        if left:
            # Python waits for threads that those have started, and may crash over others.
            logging.shutdown()
            sys.stderr.flush()
            os._exit(DONE)
        return DONE

    def _snapshot(self) -> "Snapshot":
        from wharfinger.agent.configuration_snapshot import Snapshot

        return Snapshot(self.app.options.config_file, self.app.options.config_dir)

    def _next_snapshot(self, current: "Snapshot") -> "Snapshot":
        """Return the configuration of this moment; raise WharfingerError if it cannot be used.

        Another process imports the drivers, and checks what they read of it.
        """
        from wharfinger.agent import logging_setup

        new = self._snapshot()
        current.check_successor(new)
        command = [sys.executable, "-P", "-m", "wharfinger.cli.app", "--config-file", new.path]
        try:
            check = subprocess.run(
                [*command, "config", "validate", "-f", "value", "-c", "Result"],
                capture_output=True,
                text=True,
                timeout=_CHECK_TIMEOUT,
                check=False,
                pass_fds=(new.descriptor,),
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise WharfingerError(reason=f"it could not be checked: {error}") from error
        if check.returncode != DONE:
            problems = " ".join((check.stdout or check.stderr).split())
            raise WharfingerError(reason=problems.replace(new.path, " or ".join(new.files)))
        options = self.app.options
        logging_setup.configure(new.conf, options.verbose_level, options.log_file)
        return new

    def _make_runner(self, snapshot: "Snapshot", name: str) -> "Runner":
        from wharfinger.agent.instance_process import ProcessRunner
        from wharfinger.agent.instance_thread import ThreadRunner
        from wharfinger.conf import AgentSection
        from wharfinger.conf.agent import Isolation

        section = AgentSection.read(snapshot.conf)
        if section.isolation is Isolation.THREAD:
            return ThreadRunner(snapshot.conf, name, self._make_client, self.objects)
        arguments = [f"--verbosity={self.app.options.verbose_level}"]
        if self.app.options.log_file:
            arguments.append(f"--log-file={self.app.options.log_file}")
        return ProcessRunner(section, name, snapshot, arguments)

    @cached_property
    def _adapter(self) -> "Adapter":
        from wharfinger.placement.session import make_adapter

        return make_adapter(self.conf)

    def _make_client(self) -> "PlacementClient":
        from wharfinger.conf import PlacementSection
        from wharfinger.placement.client import PlacementClient

        return PlacementClient(self._adapter, PlacementSection.read(self.conf).connections)


def _open_standard_streams() -> None:
    """Open /dev/null for standard streams that are closed.

    Other files would get their descriptors, which the processes of instances have of their own.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free descriptor is this one


@contextmanager
def _on_signals(actions: Mapping[signal.Signals, Callable[[], None]]) -> Iterator[None]:
    def handler(act: Callable[[], None]) -> Callable[[int, object], None]:
        return lambda _number, _frame: act()

    before = {number: signal.signal(number, handler(act)) for number, act in actions.items()}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)
