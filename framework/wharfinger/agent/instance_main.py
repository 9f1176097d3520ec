"""The program that runs one driver instance in a process."""

import argparse
import faulthandler
import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Final, NoReturn

from wharfinger.agent import parent_process
from wharfinger.agent.instance_process import STACKS
from wharfinger.agent.shared_report import ReportWriter

#: Seconds between two checks whether the driver instance has to end.
_TICK: Final = 0.5


def main(argv: Sequence[str] | None = None) -> int:
    """Run the driver instance until a signal ends it; return the exit code."""
    parser = argparse.ArgumentParser(prog="wharfinger-agent-instance")
    parser.add_argument("--instance", required=True)
    parser.add_argument("--config-file", required=True)
    parser.add_argument(
        "--config-name", required=True, help="name that messages give to the configuration file"
    )
    parser.add_argument(
        "--report",
        type=int,
        required=True,
        help="file descriptor of the memory where the agent reads the state of the instance",
    )
    parser.add_argument(
        "--stacks",
        type=int,
        required=True,
        help="file descriptor to which SIGUSR1 writes the stacks of the threads",
    )
    parser.add_argument(
        "--parent",
        type=int,
        required=True,
        help="process id of the agent; this process ends with the agent",
    )
    parser.add_argument("--verbosity", type=int, default=0)
    parser.add_argument("--log-file")
    arguments = parser.parse_args(argv)

    parent_process.end_with(arguments.parent)
    ending = SimpleQueue[None]()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ending.put(None))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    return _run(arguments, ending)


def _run(arguments: argparse.Namespace, ending: "SimpleQueue[None]") -> int:
    gc.disable()  # the imports would take a tenth longer
    from wharfinger import conf as configuration  # noqa: PLC0415 - after the signals
    from wharfinger.agent import logging_setup  # noqa: PLC0415
    from wharfinger.agent.worker import Worker  # noqa: PLC0415
    from wharfinger.conf import PlacementSection  # noqa: PLC0415
    from wharfinger.objects import connect  # noqa: PLC0415
    from wharfinger.placement.client import PlacementClient  # noqa: PLC0415
    from wharfinger.placement.session import make_adapter  # noqa: PLC0415

    conf = configuration.load([arguments.config_file])
    conf.file_names[arguments.config_file] = arguments.config_name
    logging_setup.configure(conf, arguments.verbosity, arguments.log_file)
    faulthandler.register(STACKS, file=arguments.stacks, all_threads=True)
    report = ReportWriter(arguments.report)
    client = PlacementClient(make_adapter(conf), PlacementSection.read(conf).connections)
    worker = Worker(conf, arguments.instance, client, connect(conf), report)
    thread = threading.Thread(target=worker.run, name=arguments.instance, daemon=True)
    thread.start()
    gc.freeze()  # do not search the imported modules for garbage
    gc.enable()
    # A signal that arrives just before a wait without a timeout would not end the wait.
    while ending.empty() and thread.is_alive():
        report.alive()
        time.sleep(_TICK)
    has_failed = ending.empty()  # the thread ended without a signal: this is a fault
    worker.stop()
    while thread.is_alive():
        report.alive()
        thread.join(_TICK)
    return 1 if has_failed else 0


def _exit(code: int) -> NoReturn:
    # Threads of the driver may hang: do not wait for them.
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the driver may have closed it
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    _exit(main())
