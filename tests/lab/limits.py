"""Run the program wharfinger on a machine with an exhausted resource."""

import sys
from pathlib import Path

from tests.lab.program import Program

# Python ignores SIGXFSZ, so a write beyond the limit raises an error. It must not write compiled
# files, which would be cut off at the limit.
_LAUNCHER = """\
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
os.execv(sys.argv[2], sys.argv[2:])
"""


class LimitedProgram(Program):
    """The program, which cannot write files above ``file_size`` bytes, as on a full disk."""

    file_size: int | None = None

    def _command(self, *arguments: str, config: Path | None = None) -> list[str]:
        command = super()._command(*arguments, config=config)
        if self.file_size is None:
            return command
        return [sys.executable, "-c", _LAUNCHER, str(self.file_size), *command]
