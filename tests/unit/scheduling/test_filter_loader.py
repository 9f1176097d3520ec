"""Request filters that packages provide as plugins, and their order in the configuration."""

import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from wharfinger.conf import parse
from wharfinger.exceptions import ConfigurationError
from wharfinger.objects import Context
from wharfinger.placement.client import PlacementClient
from wharfinger.scheduling.request_filters import RequestFilter, Surroundings, loader
from wharfinger.scheduling.request_filters.compute_status import ComputeStatusFilter
from wharfinger.scheduling.request_filters.owner import OwnerFilter

TOP = "from wharfinger.scheduling.request_filters import RequestFilter, Surroundings\n"
FILTER = f"{TOP}class Filter(RequestFilter):\n    pass\n\n"


class Plugins:
    """Installs packages with filters into a directory."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._site = directory / "site"
        self._site.mkdir()
        monkeypatch.syspath_prepend(str(self._site))
        monkeypatch.setattr(sys, "modules", dict(sys.modules))

    def install(self, name: str, module: str, package: str = "") -> None:
        """Install a package with one module, and an entry point for its class Filter."""
        package = package or f"filter_{name}"
        (self._site / f"{package}.py").write_text(dedent(module))
        info = self._site / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(
            f"[wharfinger.request_filters]\n{name} = {package}:Filter\n"
        )


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plugins:
    return Plugins(tmp_path, monkeypatch)


def surroundings() -> Surroundings:
    """Return surroundings without server and database, which a new filter does not read."""
    absent: Any = None
    return Surroundings(parse([]), PlacementClient(absent), Context())


def refusal(*names: str) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        loader.load(names, surroundings())
    error = caught.value
    assert (error.section, error.key, error.value) == (
        "scheduling",
        "request_filters",
        ", ".join(names),
    )
    return error


def test_load_returns_filters_in_the_order_of_their_names(plugins: Plugins) -> None:
    plugins.install("mine", FILTER)
    plugins.install("broken", "raise RuntimeError('imported')")

    found = loader.load(["owner", "mine", "compute_status"], surroundings())

    assert list(found) == ["owner", "mine", "compute_status"]
    assert isinstance(found["owner"], OwnerFilter)
    assert isinstance(found["mine"], RequestFilter)
    assert isinstance(found["compute_status"], ComputeStatusFilter)
    assert list(loader.load(["mine", "owner"], surroundings())) == ["mine", "owner"]
    assert loader.load([], surroundings()) == {}


def test_load_gives_a_filter_its_surroundings(plugins: Plugins) -> None:
    plugins.install(
        "mine", f"{FILTER}    def __init__(self, surroundings): self.its = surroundings\n"
    )
    its = surroundings()

    found: Any = loader.load(["mine"], its)["mine"]

    assert found.its is its
    assert its.conf.scheduling.request_filters == ["compute_status", "owner"]


def test_load_unknown_name_names_the_installed_ones(plugins: Plugins) -> None:
    plugins.install("mine", FILTER)
    error = refusal("owner", "owned")

    assert "'owned'" in error.problem
    assert "compute_status, mine, owner" in error.remedy
    assert "''" in refusal("").problem


def test_load_name_used_twice_is_refused() -> None:
    assert "owner" in refusal("owner", "compute_status", "owner").problem


@pytest.mark.parametrize("name", ["mine", "owner"])
def test_load_filter_of_two_packages_is_refused(plugins: Plugins, name: str) -> None:
    plugins.install(name, FILTER, package="one")
    if name == "mine":
        plugins.install(name, FILTER, package="other")

    assert refusal(name).problem.startswith("2 installed packages have ")
    assert list(loader.load(["compute_status"], surroundings())) == ["compute_status"]


@pytest.mark.parametrize(
    ("module", "told"),
    [
        ("import acme_sdk_that_is_not_there", "ModuleNotFoundError: No module named"),
        ("raise OSError('no device')", "OSError: no device"),
        ("assert False, 'wrong machine'", "AssertionError: wrong machine"),
        ("raise SystemExit('wrong machine')", "SystemExit: wrong machine"),
        ("class Filters: ...", "AttributeError: "),
        ("def", "SyntaxError: "),
        (FILTER + "    def __init__(self): ...", "TypeError: "),
        (FILTER + "    def __init__(self, it): raise OSError('no device')", "OSError: no device"),
    ],
)
def test_load_filter_that_fails_names_it_with_the_reason(
    plugins: Plugins, module: str, told: str
) -> None:
    plugins.install("mine", module)
    error = refusal("owner", "mine")

    assert error.problem.startswith(f"mine cannot be loaded: {told}")
    assert error.remedy


@pytest.mark.parametrize(
    "module",
    ["class Filter: ...", "Filter = 5", "def Filter(its): ...", f"{TOP}Filter = Surroundings"],
    ids=["class", "number", "function", "another class"],
)
def test_load_object_that_is_no_filter_is_refused(plugins: Plugins, module: str) -> None:
    plugins.install("mine", module)

    assert "mine is not a subclass of RequestFilter" in refusal("mine").problem


def test_load_raises_the_configuration_error_of_a_filter(plugins: Plugins) -> None:
    told = "section='mine', key='speed', value='7', problem='too fast.', remedy='Slow down.'"
    plugins.install(
        "mine",
        "from wharfinger.exceptions import ConfigurationError\n"
        f"{FILTER}    def __init__(self, its): raise ConfigurationError({told})\n",
    )

    with pytest.raises(ConfigurationError, match=r"\[mine\] speed = 7: too fast"):
        loader.load(["mine"], surroundings())
