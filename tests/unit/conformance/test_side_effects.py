"""An observer of side effects that has ended ignores side effects, also at the process's end."""

import subprocess
import sys

_ENDS = """
import sys
from wharfinger.conformance import side_effects

class Late:
    def __del__(self, audit=sys.audit):
        audit("os.mkdir", "/late", 0o777, -1)

with side_effects.watching():
    pass
# Modules that are still in use are cleared in the reverse order of their import.
sys.kept = [side_effects, sys.modules["__main__"]]
late = Late()
"""


def test_ended_observer_prints_nothing_when_the_process_ends() -> None:
    done = subprocess.run([sys.executable, "-c", _ENDS], capture_output=True, text=True, check=True)

    assert done.stderr == ""
