"""The base install has the dependencies of docs/reference/dependencies.rst, and no eventlet."""

import ast
import re
from collections.abc import Iterable
from configparser import ConfigParser
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
#: Eventlet, and distributions that require it.
UNWANTED = {"eventlet", "oslo-messaging", "oslo-service", "oslo-versionedobjects"}


def wanted(extra: str | None = None) -> list[Requirement]:
    """Return the requirements in setup.cfg, of the base install or of one extra."""
    setup = setup_of(ROOT)
    return read(
        setup["options.extras_require"][extra] if extra else setup["options"]["install_requires"]
    )


def setup_of(directory: Path) -> ConfigParser:
    setup = ConfigParser()
    setup.read(directory / "setup.cfg")
    return setup


def read(text: str) -> list[Requirement]:
    lines = (line.strip() for line in text.splitlines())
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def brought(requirements: Iterable[Requirement]) -> set[str]:
    """Return the names of these distributions and of all distributions that they require."""
    found: set[tuple[str, str]] = set()
    waiting = list(requirements)
    while waiting:
        one = waiting.pop()
        for extra in ("", *one.extras):
            key = (canonicalize_name(one.name), extra)
            if key not in found:
                found.add(key)
                waiting += [each for each in _required(one.name) if _applies(each, extra)]
    return {name for name, _extra in found}


def _required(name: str) -> list[Requirement]:
    try:
        return [Requirement(line) for line in requires(name) or ()]
    except PackageNotFoundError:  # a requirement only of another system or Python
        return []


def _applies(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


@pytest.mark.parametrize("extra", [None, "embedded", "mysql", "postgresql"])
def test_install_does_not_include_eventlet(extra: str | None) -> None:
    names = brought([*wanted(), *(wanted(extra) if extra else ())])
    assert {"stevedore", "oslo-config"} < names
    assert not names & UNWANTED


def test_base_install_has_61_distributions_at_most() -> None:
    assert len(brought(wanted()) | {"pip", "setuptools", "wharfinger"}) <= 61


def imported(directory: Path) -> set[str]:
    """Return the modules that pytest imports when it collects the tests in the directory."""
    found: set[str] = set()
    waiting = [*directory.rglob("*.py"), ROOT / "tests" / "conftest.py"]
    seen = set(waiting)
    while waiting:
        for node in ast.parse(waiting.pop().read_text()).body:
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{one.name}" for one in node.names)]
            found |= {name.partition(".")[0] for name in names}
            paths = {ROOT / f"{name.replace('.', '/')}.py" for name in names}
            new = {path for path in paths - seen if path.is_file()}
            seen |= new
            waiting += new
    return found


def test_unit_extra_and_drivers_include_the_imports_of_unit_tests() -> None:
    drivers = [setup_of(path) for path in (ROOT / "drivers").iterdir()]
    needed = [one for setup in drivers for one in read(setup["options"]["install_requires"])]
    names = brought([*wanted(), *wanted("unit"), *needed])
    by_module = packages_distributions()
    lacking = {
        module: by_module[module]
        for module in imported(ROOT / "tests" / "unit") & by_module.keys()
        if not names & {*map(canonicalize_name, by_module[module])}
    }
    assert {name for name in lacking if not name.startswith("wharfinger")} == set()


def test_dependencies_page_names_each_requirement_with_a_reason() -> None:
    page = (ROOT / "docs" / "reference" / "dependencies.rst").read_text()
    table = page.split("=\n")[3]
    rows = [re.split(r"\s{2,}", line) for line in table.splitlines() if not line.startswith("=")]
    assert [row[0] for row in rows] == [one.name for one in wanted()]
    assert all(len(row) == 3 and row[1] for row in rows)
