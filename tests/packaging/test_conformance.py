"""The conformance kit from wheels, for drivers of other packages, where there is nothing else."""

import os
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.packaging import environment
from tests.packaging.conftest import REPOSITORY, build_wheels
from wharfinger.conformance.rules import all_rules

EXAMPLES = REPOSITORY / "docs" / "examples"
PARTIAL = 6

_PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "{name}"
version = "1.0"

{entry_points}
[tool.setuptools]
py-modules = [{modules}]
"""

_SHELF = """
from oslo_config import cfg

from wharfinger.driver import Capabilities, ComputeDriver, unsupported
from wharfinger.providers import Inventory

NONE = unsupported("a shelf has no such thing")


class ShelfDriver(ComputeDriver):
    capabilities = Capabilities(
        nested_providers=NONE, reshape=NONE, change_feed=NONE, programming=NONE,
        cleans_after_release=NONE,
    )
    default_owner = "CUSTOM_OWNER_ACME"

    def __init__(self, conf, host, name):
        super().__init__(conf, host, name)
        conf.register_opts([cfg.IntOpt("boxes", min=1)], name)

    def get_available_nodes(self, refresh=False):
        return [f"{self.host}-{self.name}"]

    def get_inventory(self, nodename):
        return {"CUSTOM_BOX": Inventory(total=self.conf[self.name].boxes)}
"""


@pytest.fixture(scope="module")
def programs(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the programs, beside which the drivers and a harness are installed."""
    directory = tmp_path_factory.mktemp("authors")
    examples = {
        name: (EXAMPLES / f"{name}.py").read_text()
        for name in ("wharfinger_machines", "wharfinger_machines_harness")
    }
    sources = [
        _package(
            directory / "acme-shelf",
            {"acme_shelf": _SHELF},
            {"wharfinger.drivers": {"shelf": "acme_shelf:ShelfDriver"}},
        ),
        _package(
            directory / "wharfinger-machines",
            {"wharfinger_machines": examples["wharfinger_machines"]},
            {
                "wharfinger.drivers": {"machines": "wharfinger_machines:MachinesDriver"},
                "oslo.config.opts": {"machines": "wharfinger_machines:list_opts"},
            },
        ),
        _package(
            directory / "wharfinger-machines-harness",
            {"wharfinger_machines_harness": examples["wharfinger_machines_harness"]},
            {
                "wharfinger.conformance_harness": {
                    "machines": "wharfinger_machines_harness:MachinesHarness"
                }
            },
        ),
    ]
    build_wheels(sources, directory / "wheels")
    environment.install(installed, (directory / "wheels").glob("*.whl"))
    return installed


@pytest.fixture
def configuration(tmp_path: Path) -> Path:
    path = tmp_path / "wharfinger.conf"
    path.write_text("[DEFAULT]\nenabled_drivers = shelf\nhost = rack-7\n[shelf]\nboxes = 3\n")
    return path


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    path = tmp_path / "empty"
    path.mkdir()
    return path


def test_a_small_driver_conforms_at_core(
    programs: Path, configuration: Path, empty: Path, tmp_path: Path
) -> None:
    junit = tmp_path / "junit.xml"
    done = _run(
        [
            *(str(programs / "python"), "-m", "pytest", "--pyargs", "wharfinger.conformance"),
            *("--driver", "shelf", "--driver-profile", "core"),
            *("--driver-config", str(configuration), "--junit-xml", str(junit)),
        ],
        empty,
    )

    assert done.returncode == 0, done.stdout
    assert "core: CONFORMS, extended: NOT ASKED" in done.stdout.splitlines()
    assert str(REPOSITORY) not in done.stdout
    assert list(empty.iterdir()) == []
    assert _rules(junit) == [rule.id for rule in all_rules()]


def test_without_a_harness_the_command_says_the_same_of_the_core_alone(
    programs: Path, configuration: Path, empty: Path
) -> None:
    command = [str(programs / "wharfinger"), "conformance", "run", "shelf"]

    done = _run([*command, "--driver-config", str(configuration)], empty)

    assert done.returncode == PARTIAL, done.stdout
    assert "core: CONFORMS, extended: PARTIAL" in done.stdout.splitlines()
    assert list(empty.iterdir()) == []


def test_a_driver_with_a_harness_conforms_at_extended(programs: Path, empty: Path) -> None:
    """They are those of the documentation."""
    command = [str(programs / "wharfinger"), "conformance", "run", "machines", "--examples", "1"]

    done = _run(command, empty)

    assert done.returncode == 0, done.stdout
    assert "core: CONFORMS, extended: CONFORMS" in done.stdout.splitlines()
    assert list(empty.iterdir()) == []


def _package(
    directory: Path, modules: dict[str, str], entry_points: dict[str, dict[str, str]]
) -> Path:
    """The sources of a distribution that is called as its directory."""
    directory.mkdir()
    for name, text in modules.items():
        (directory / f"{name}.py").write_text(text)
    lines: list[str] = []
    for group, entries in entry_points.items():
        lines.append(f'[project.entry-points."{group}"]')
        lines += [f'{name} = "{target}"' for name, target in entries.items()]
    (directory / "pyproject.toml").write_text(
        _PROJECT.format(
            name=directory.name,
            entry_points="\n".join(lines),
            modules=", ".join(f'"{name}"' for name in modules),
        )
    )
    return directory


def _run(command: list[str], directory: Path) -> subprocess.CompletedProcess[str]:
    """What a command does there; what is compiled is kept."""
    kept = {name: os.environ[name] for name in os.environ.keys() - {"PYTHONDONTWRITEBYTECODE"}}
    return subprocess.run(
        command, cwd=directory, env=kept, capture_output=True, text=True, check=False
    )


def _rules(junit: Path) -> list[str]:
    """The rules of the tests, by their properties."""
    return [
        one.attrib["value"]
        for case in ElementTree.parse(junit).iter("testcase")
        for one in case.iter("property")
        if one.attrib["name"] == "rule"
    ]
