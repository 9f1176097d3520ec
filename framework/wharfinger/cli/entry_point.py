"""Entry point of the ``wharfinger`` program."""

import gc
import sys
from typing import Final

#: Python's default thresholds of the garbage collector.
USUAL_THRESHOLDS: Final = gc.get_threshold()


def main() -> int:
    """Run the program and return its exit code."""
    if sys.argv[1:] == ["--version"]:
        from importlib.metadata import version

        sys.stdout.write(f"wharfinger {version('wharfinger')}\n")
        return 0
    # By default, Python collects garbage after every 700 objects, which takes 5 % of the start
    # time. The agent, which runs for a long time, restores the default thresholds.
    gc.set_threshold(300_000, 50, 50)
    from wharfinger.cli import app as program

    code = program.main()
    # At its end, Python would search all imported modules for garbage, for a quarter of the time.
    gc.freeze()
    return code
