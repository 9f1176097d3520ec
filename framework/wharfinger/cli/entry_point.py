"""Start of the ``wharfinger`` program: it answers ``--version`` before it imports anything."""

import gc
import sys
from typing import Final

#: When Python itself searches for garbage, as ``gc.get_threshold`` has it.
USUAL_THRESHOLDS: Final = gc.get_threshold()


def main() -> int:
    """Run the program; returns its exit code."""
    if sys.argv[1:] == ["--version"]:
        from importlib.metadata import version

        sys.stdout.write(f"wharfinger {version('wharfinger')}\n")
        return 0
    # Python would collect garbage after every 700 objects: 5 % of the time of a start. The agent,
    # which runs for long, sets the usual thresholds again.
    gc.set_threshold(100_000, 50, 50)
    from wharfinger.cli import app as program

    return program.main()
