"""A program in place of the agent that a real systemd runs; signals select its notifications.

At HUP it notifies systemd of a reload, at USR1 of the end of the reload. At USR2 it stops notifying
the watchdog. At TERM it ends, and leaves a child process behind that ignores TERM.
"""

import os
import signal
import subprocess
import sys

from wharfinger.agent.systemd import SystemdNotifier

_SIGNALS = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM)


def main() -> None:
    notifier = SystemdNotifier(os.environ)
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    child = subprocess.Popen(["sleep", "1000"], start_new_session=True)  # TERM stays blocked
    notifier.status(f"child {child.pid}")
    notifier.ready()
    beat = notifier.watchdog_interval
    while True:
        received = signal.sigtimedwait(_SIGNALS, 1000 if beat is None else beat)
        if received is None:
            notifier.alive()
        elif received.si_signo == signal.SIGHUP:
            notifier.reloading()
        elif received.si_signo == signal.SIGUSR1:
            notifier.ready()
        elif received.si_signo == signal.SIGUSR2:
            beat = None
        else:
            notifier.stopping()
            sys.exit()


if __name__ == "__main__":
    main()
