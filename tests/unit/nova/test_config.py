"""Options of the nova driver's section, and errors of invalid options."""

import subprocess
import sys
from pathlib import Path

import pytest

from wharfinger.conf import parse
from wharfinger.exceptions import ConfigurationError
from wharfinger_nova.config import OPTIONS, NovaSection, list_opts

DRIVER = Path(__file__).resolve().parents[3] / "drivers" / "nova"


def read(directory: Path, text: str) -> NovaSection:
    path = directory / "wharfinger.conf"
    path.write_text(f"[compute]\ndriver = nova\n{text}\n")
    return NovaSection.read(parse([str(path)], []), "compute")


def test_section_without_options_uses_novas_configuration(tmp_path: Path) -> None:
    assert read(tmp_path, "") == NovaSection("compute", None, ())


def test_section_names_a_driver_and_files_in_order(tmp_path: Path) -> None:
    text = "compute_driver = ironic.IronicDriver\nnova_config = /etc/b.conf, /etc/a.conf"
    assert read(tmp_path, text) == NovaSection(
        "compute", "ironic.IronicDriver", ("/etc/b.conf", "/etc/a.conf")
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("nova_config = /etc/a.conf, nova.conf", "nova.conf is a relative path"),
        ("compute_driver = IronicDriver", "the value has no dot"),
        ("compute_driver =", "the value has no dot"),
    ],
)
def test_section_with_a_wrong_value_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem) as raised:
        read(tmp_path, text)
    assert raised.value.section == "compute"


def test_list_opts_has_every_option() -> None:
    [(_section, options)] = list_opts()
    assert [*options] == [*OPTIONS]


def test_import_of_the_driver_does_not_import_nova() -> None:
    program = (
        "import sys; import wharfinger_nova.driver; "
        "sys.exit(any(name.partition('.')[0] == 'nova' for name in sys.modules))"
    )
    environment = {"PYTHONPATH": str(DRIVER), "PATH": ""}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
