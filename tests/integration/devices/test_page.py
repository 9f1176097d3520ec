"""The example of docs/how-to/fpga.rst that programs a device."""

import re
import shlex
from pathlib import Path
from typing import Final

from tests.integration.devices.conftest import Begin
from tests.lab.examples import blocks, check
from tests.lab.programming import named
from wharfinger_harnesses.cyborg import device

PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "fpga.rst"


def test_command_on_the_page_prints_what_it_shows(begin: Begin) -> None:
    [block] = [block for block in blocks(PAGE.read_text()) if block.run_by]
    [(command, shown)] = block.commands
    lab = begin(device("3b"))
    image = lab.cyborg.create_image()
    command = re.sub(r"--image \S+", f"--image {image}", command)
    command, shown = (text.replace("gpu-host-1_3b_r0", named("3b")) for text in (command, shown))

    done = lab.run(*shlex.split(command)[1:])

    assert done.code == 0, done.err
    check(command, shown, done.out)
