"""The command ``wharfinger agent``."""

import argparse
import gc
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from wharfinger.cli.app import DONE
from wharfinger.cli.entry_point import USUAL_THRESHOLDS
from wharfinger.cli.object_command import ObjectCommand

if TYPE_CHECKING:
    from keystoneauth1.adapter import Adapter

    from wharfinger.agent.agent import Agent
    from wharfinger.agent.configuration_check import Check
    from wharfinger.agent.configuration_snapshot import Snapshot
    from wharfinger.agent.runner import Runner
    from wharfinger.placement.client import PlacementClient


class AgentCommand(ObjectCommand):
    """Run the enabled driver instances until SIGTERM or SIGINT.

    SIGHUP reads the configuration again. Exits with 0 if it was stopped, with 1 if it cannot start.
    """

    def take_action(self, parsed_args: argparse.Namespace) -> int:
        from wharfinger.agent.agent import Agent
        from wharfinger.agent.systemd import SystemdNotifier
        from wharfinger.conf import DefaultSection
        from wharfinger.placement import session

        signals = _Signals()
        _open_closed_standard_streams()
        with signals.handled():
            gc.set_threshold(*USUAL_THRESHOLDS)
            snapshot = self._snapshot()
            self._configure_logging(snapshot)
            session.check(snapshot.conf)
            DefaultSection.read(snapshot.conf).require_instances()
            agent = Agent(
                snapshot,
                self._make_runner,
                self.objects,
                self._begin_check,
                SystemdNotifier(os.environ),
            )
            signals.give_to(agent)
            left = agent.run()
        if left:
            # Do not wait for threads of hanging drivers, as Python would; it may also crash while
            # they run.
            logging.shutdown()
            sys.stderr.flush()
            os._exit(DONE)
        return DONE

    def _snapshot(self) -> "Snapshot":
        from wharfinger.agent.configuration_snapshot import Snapshot

        return Snapshot(self.app.options.config_file, self.app.options.config_dir)

    def _begin_check(self, current: "Snapshot") -> "Check":
        from wharfinger.agent.configuration_check import ProcessCheck

        new = self._snapshot()
        current.check_successor(new)
        command = (sys.executable, "-P", "-m", "wharfinger.cli.configuration_check")
        return ProcessCheck(new, command, self._configure_logging)

    def _configure_logging(self, snapshot: "Snapshot") -> None:
        from wharfinger.agent import logging_setup

        options = self.app.options
        logging_setup.configure(snapshot.conf, options.verbose_level, options.log_file)

    def _make_runner(self, snapshot: "Snapshot", name: str) -> "Runner":
        from wharfinger.agent.instance_process import ProcessRunner
        from wharfinger.agent.instance_thread import ThreadRunner
        from wharfinger.conf import AgentSection
        from wharfinger.conf.agent import Isolation

        section = AgentSection.read(snapshot.conf)
        if section.isolation is Isolation.THREAD:
            client = self._make_client(snapshot)
            return ThreadRunner(snapshot.conf, name, client, self.objects)
        arguments = [f"--verbosity={self.app.options.verbose_level}"]
        if self.app.options.log_file:
            arguments.append(f"--log-file={self.app.options.log_file}")
        return ProcessRunner(section, name, snapshot, arguments)

    def _make_client(self, snapshot: "Snapshot") -> "PlacementClient":
        from wharfinger.conf import PlacementSection
        from wharfinger.placement.client import PlacementClient
        from wharfinger.placement.session import make_adapter

        section = PlacementSection.read(snapshot.conf)
        adapter = self._embedded if section.embedded else make_adapter(snapshot.conf)
        return PlacementClient(adapter, section.connections)

    @cached_property
    def _embedded(self) -> "Adapter":
        from wharfinger.placement.session import make_adapter

        # The process keeps the embedded Placement after a reload.
        return make_adapter(self.conf)


class _Signals:
    def __init__(self) -> None:
        self._agent: Agent | None = None
        self._reloads = False

    def give_to(self, agent: "Agent") -> None:
        self._agent = agent
        if self._reloads:
            agent.reload()

    @contextmanager
    def handled(self) -> Iterator[None]:
        actions = {
            signal.SIGTERM: self._stop,
            signal.SIGINT: self._stop,
            signal.SIGHUP: self._reload,
            signal.SIGCHLD: self._check_instances,
        }
        before = {number: signal.signal(number, act) for number, act in actions.items()}
        try:
            yield
        finally:
            for number, former in before.items():
                signal.signal(number, former)

    def _stop(self, *_: object) -> None:
        if self._agent is None:
            raise SystemExit(DONE)
        self._agent.stop()

    def _reload(self, *_: object) -> None:
        self._reloads = True
        if self._agent is not None:
            self._agent.reload()

    def _check_instances(self, *_: object) -> None:
        if self._agent is not None:
            self._agent.look()


def _open_closed_standard_streams() -> None:
    # Otherwise, a file that is opened later would replace a closed stream.
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free descriptor is this one
