"""The example of docs/tutorials/first-sync.rst that installs Wharfinger in a clone."""

import os
import shutil
import sys
from pathlib import Path

from tests.lab.examples import Shell, blocks, check
from tests.packaging import environment
from tests.packaging.conftest import REPOSITORY

PAGE = REPOSITORY / "docs" / "tutorials" / "first-sync.rst"


def test_setup_of_a_clone_installs_the_program_and_its_drivers(
    source: Path, tmp_path: Path
) -> None:
    clone = shutil.copytree(source, tmp_path / "wharfinger")
    shell = Shell(
        clone,
        {
            **os.environ,
            "HOME": str(tmp_path),
            "PYTHON": sys.executable,
            # pip finds all requirements here. The value 0 of the last option means no isolation.
            "PYTHONPATH": os.pathsep.join(environment.requirements()),
            "PIP_NO_INDEX": "1",
            "PIP_NO_BUILD_ISOLATION": "0",
        },
    )

    [block] = [block for block in blocks(PAGE.read_text()) if block.run_by]
    for command, shown in block.commands:
        check(command, shown, shell.run(command))

    assert shell.run("command -v wharfinger") == f"{clone}/.venv/bin/wharfinger\n"
    drivers = shell.run("wharfinger driver list -c Driver -f value").split()
    assert drivers == ["cyborg", "ironic", "libvirt"]
