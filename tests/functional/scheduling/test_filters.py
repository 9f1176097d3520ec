"""Request filters: plugins of packages, loaded by name, in the order of the configuration."""

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.functional.scheduling.hosts import AGGREGATE, publish, publish_owners
from tests.functional.scheduling.searching import NOVA, Searching, asking, takers, wanted
from tests.lab.placement import PlacementFixture, lower
from wharfinger.exceptions import ConfigurationError, InvalidRequest, RequestFilterError
from wharfinger.objects import OWNER_TAG_VERSION
from wharfinger.placement.trait_conditions import TraitConditions
from wharfinger.scheduling import ResourceRequest
from wharfinger.scheduling.candidates import CandidateSearch
from wharfinger.scheduling.filters import RequestFilter, loader
from wharfinger.scheduling.filters.compute_status import ComputeStatusFilter
from wharfinger.scheduling.filters.owner import OwnerFilter

#: Only checks: nothing is taken from whom the configuration names.
CHECKS = """
from wharfinger.scheduling.filters import RequestFilter


class Filter(RequestFilter):
    def __init__(self, surroundings):
        self.found = []

    def objection(self, request, candidate):
        for uuid in candidate.allocations:
            self.found.append(uuid)
            if "CUSTOM_FAST" in candidate.providers[uuid].traits:
                return f"{uuid} is too fast"
        return None
"""
#: Only narrows: one host at a time, and nothing fast.
NARROWS = """
from dataclasses import replace

from wharfinger.placement.trait_conditions import TraitConditions
from wharfinger.scheduling.filters import RequestFilter


class Filter(RequestFilter):
    def apply(self, request):
        slow = TraitConditions(forbidden=frozenset(["CUSTOM_FAST"]))
        groups = (replace(one, traits=one.traits & slow) for one in request.groups)
        return replace(request, groups=tuple(groups))
"""
#: Says what it is given, and asks for what no other filter should see.
TELLS = """
from wharfinger.exceptions import InvalidRequest
from wharfinger.scheduling.filters import RequestFilter


class Filter(RequestFilter):
    def apply(self, request):
        [group] = request.groups
        raise InvalidRequest(
            subject="request",
            key="required",
            value=",".join(group.traits.values()),
            problem=f"root: {','.join(request.root.values())}.",
        )
"""
TOP = "from wharfinger.scheduling.filters import RequestFilter, Surroundings\n"


class Plugins:
    """Installs packages of filters into a directory of their own."""

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


@pytest.fixture
def searching(placement: PlacementFixture, tmp_path: Path) -> Iterator[Searching]:
    """Without any provider; nova's gate is on."""
    with Searching(placement, tmp_path) as fixture:
        fixture.has_services(([NOVA], OWNER_TAG_VERSION))
        yield fixture


@pytest.fixture
def host(searching: Searching) -> None:
    """The GPU n is nova's and fast, u is untagged; there are others' as well."""
    publish_owners(searching.placement.client)


def load(searching: Searching, *names: str) -> dict[str, RequestFilter]:
    return loader.load(names, searching.surroundings())


def refusal(searching: Searching, *names: str) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        load(searching, *names)
    error = caught.value
    assert (error.section, error.key, error.value) == (
        "scheduling",
        "request_filters",
        ", ".join(names),
    )
    return error


# What can be loaded.


def test_filters_are_there_by_name_in_the_order_in_which_they_are_named(
    searching: Searching,
) -> None:
    for names in (["owner", "compute_status"], ["compute_status", "owner"]):
        found = load(searching, *names)
        assert list(found) == names
        assert isinstance(found["owner"], OwnerFilter)
        assert isinstance(found["compute_status"], ComputeStatusFilter)


def test_there_may_be_no_filter(searching: Searching) -> None:
    assert load(searching) == {}


def test_filters_ask_nobody_for_anything_when_they_are_made(searching: Searching) -> None:
    load(searching, "owner", "compute_status")

    assert searching.asked() == []


def test_a_filter_of_another_package_is_loaded_between_ours(
    searching: Searching, plugins: Plugins
) -> None:
    plugins.install("mine", CHECKS)

    assert list(load(searching, "owner", "mine", "compute_status")) == [
        "owner",
        "mine",
        "compute_status",
    ]


def test_a_filter_that_nobody_names_is_not_even_imported(
    searching: Searching, plugins: Plugins
) -> None:
    plugins.install("broken", "raise RuntimeError('imported')")

    assert list(load(searching, "owner")) == ["owner"]


def test_a_filter_is_made_with_what_it_may_need(searching: Searching, plugins: Plugins) -> None:
    plugins.install(
        "mine",
        TOP + "class Filter(RequestFilter):\n"
        "    def __init__(self, surroundings):\n"
        "        self.its = surroundings\n",
    )
    its = searching.surroundings()

    found = loader.load(["mine"], its)["mine"]

    assert found.its is its  # type: ignore[attr-defined]
    assert its.conf.scheduling.request_filters == ["compute_status", "owner"]


# What they do.


@pytest.mark.usefixtures("host")
def test_a_filter_that_only_checks_drops_candidates_under_its_name(
    searching: Searching, plugins: Plugins
) -> None:
    plugins.install("mine", CHECKS)
    search = searching.search("request_filters = mine", "untagged = allow")

    found = search.find(wanted(asking(owner=NOVA, VCPU=1, VGPU=1)))

    assert sorted(takers(found.candidates, *"nyau")) == ["a", "u", "y"]
    assert found.dropped == {"mine": 1}


@pytest.mark.usefixtures("host")
def test_a_filter_that_only_narrows_drops_nothing(searching: Searching, plugins: Plugins) -> None:
    plugins.install("mine", NARROWS)
    search = searching.search("request_filters = mine")

    found = search.find(wanted(asking(owner=NOVA, VCPU=1, VGPU=1)))

    assert sorted(takers(found.candidates, *"nyau")) == ["a", "u", "y"]
    assert found.dropped == {}
    [query] = searching.asked()
    assert "required=!CUSTOM_FAST" in query


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize(
    ("order", "dropped"),
    [("owner, mine", {"owner": 1, "mine": 1}), ("mine, owner", {"mine": 1, "owner": 1})],
)
def test_filters_work_together_and_each_drops_what_the_ones_before_let_through(
    searching: Searching, plugins: Plugins, order: str, dropped: dict[str, int]
) -> None:
    plugins.install("mine", CHECKS)
    search = searching.search(f"request_filters = {order}")

    found = search.find(wanted(asking(owner=NOVA, VCPU=1, VGPU=1)))

    assert found.candidates == ()
    assert found.dropped == dropped


@pytest.mark.usefixtures("host")
def test_a_candidate_is_dropped_once_by_the_first_that_objects(
    searching: Searching, plugins: Plugins
) -> None:
    for name in ("first", "second"):
        plugins.install(name, CHECKS)

    for names in (["first", "second"], ["second", "first"]):
        search = searching.search(f"request_filters = {', '.join(names)}")
        found = search.find(wanted(asking(owner=NOVA, VCPU=1, VGPU=1)))
        assert found.dropped == {names[0]: 1}
        assert len(found.candidates) == 3


@pytest.mark.parametrize(
    ("order", "required", "root"),
    [
        ("mine, owner, compute_status", "", ""),
        ("compute_status, mine, owner", "", "!COMPUTE_STATUS_DISABLED"),
        ("owner, mine, compute_status", "!OWNER_CYBORG", ""),
        ("owner, compute_status, mine", "!OWNER_CYBORG", "!COMPUTE_STATUS_DISABLED"),
    ],
)
def test_each_filter_is_given_what_those_before_it_made_of_the_request(
    searching: Searching, plugins: Plugins, order: str, required: str, root: str
) -> None:
    plugins.install("mine", TELLS)
    search = searching.search(f"request_filters = {order}")

    with pytest.raises(InvalidRequest) as caught:
        search.find(wanted(asking(owner=NOVA, VCPU=1)))

    assert bool(required) is (required in str(caught.value.value) and caught.value.value != "")
    assert caught.value.problem == f"root: {root}."


@pytest.mark.usefixtures("host")
def test_a_filter_that_raises_ends_the_request_before_placement_is_asked_for_candidates(
    searching: Searching, plugins: Plugins
) -> None:
    plugins.install("mine", TELLS)
    search = searching.search("request_filters = owner, mine")

    with pytest.raises(InvalidRequest):
        search.find(wanted(asking(owner=NOVA, VCPU=1)))

    assert not any("candidates" in one for one in searching.asked())


# What cannot be loaded.


def test_an_unknown_filter_is_an_error_with_those_there_are(
    searching: Searching, plugins: Plugins
) -> None:
    plugins.install("mine", CHECKS)
    error = refusal(searching, "owner", "owned")

    assert error.problem == "no installed packages have a filter 'owned'."
    assert error.remedy == "There are: compute_status, mine, owner."


def test_a_filter_without_a_name_is_unknown(searching: Searching) -> None:
    assert refusal(searching, "").problem == "no installed packages have a filter ''."


def test_a_filter_that_is_named_twice_is_refused(searching: Searching) -> None:
    error = refusal(searching, "owner", "compute_status", "owner")

    assert error.problem == "owner is there twice."
    assert error.remedy == "Name each filter once."


@pytest.mark.parametrize("name", ["mine", "owner"])
def test_two_packages_with_one_filter_are_refused(
    searching: Searching, plugins: Plugins, name: str
) -> None:
    plugins.install(name, CHECKS, package="one")
    if name == "mine":
        plugins.install(name, CHECKS, package="other")

    assert refusal(searching, name).problem == f"2 installed packages have a filter '{name}'."
    assert list(load(searching, "compute_status")) == ["compute_status"]


@pytest.mark.parametrize(
    ("module", "told"),
    [
        ("import acme_sdk_that_is_not_there", "ModuleNotFoundError: No module named"),
        ("raise OSError('no device')", "OSError: no device"),
        ("assert False, 'wrong machine'", "AssertionError: wrong machine"),
        ("raise SystemExit('wrong machine')", "SystemExit: wrong machine"),
        ("class Filters: ...", "AttributeError: "),
        ("def", "SyntaxError: "),
    ],
)
def test_a_filter_that_cannot_be_imported_is_an_error_that_names_it_and_says_why(
    searching: Searching, plugins: Plugins, module: str, told: str
) -> None:
    plugins.install("mine", module)
    error = refusal(searching, "owner", "mine")

    assert error.problem.startswith(f"mine cannot be loaded: {told}")
    assert error.remedy == "Mend its package, or leave it out."


@pytest.mark.parametrize(
    "module",
    [
        "class Filter: ...",
        "Filter = 5",
        "def Filter(surroundings): ...",
        f"{TOP}Filter = Surroundings",
    ],
    ids=["class", "number", "function", "another class"],
)
def test_what_is_no_filter_is_refused(searching: Searching, plugins: Plugins, module: str) -> None:
    plugins.install("mine", module)
    error = refusal(searching, "mine")

    assert error.problem == "mine is no subclass of RequestFilter."
    assert error.remedy == "Mend its package, or leave it out."


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("def __init__(self): ...", "TypeError: "),
        ("def __init__(self, surroundings): raise OSError('no device')", "OSError: no device"),
    ],
)
def test_a_filter_that_cannot_be_made_is_an_error_that_names_it_and_says_why(
    searching: Searching, plugins: Plugins, body: str, told: str
) -> None:
    plugins.install("mine", f"{TOP}class Filter(RequestFilter):\n    {body}\n")
    error = refusal(searching, "mine")

    assert error.problem.startswith(f"mine cannot be loaded: {told}")


def test_a_filter_may_refuse_its_own_configuration(searching: Searching, plugins: Plugins) -> None:
    plugins.install(
        "mine",
        f"""
        {TOP.strip()}
        from wharfinger.exceptions import ConfigurationError


        class Filter(RequestFilter):
            def __init__(self, surroundings):
                raise ConfigurationError(
                    section="mine", key="speed", value="7", problem="too fast.", remedy="Slow down."
                )
        """,
    )

    with pytest.raises(ConfigurationError, match=r"\[mine\] speed = 7: too fast"):
        load(searching, "mine")


# What the filters of the default do, and do not.

ONLY_STATUS = "request_filters = compute_status"
DISABLED = "COMPUTE_STATUS_DISABLED"
AVX = "HW_CPU_X86_AVX"


def with_root(request: ResourceRequest, trait: str) -> ResourceRequest:
    return replace(request, root=TraitConditions(required=frozenset([trait])))


def test_a_child_of_a_disabled_root_is_dropped_where_the_server_knows_no_root_traits(
    searching: Searching, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(searching.placement.client, "off", {"VCPU": 1}, DISABLED, NOVA)
    publish(searching.placement.client, "gpu", {"VGPU": 1}, NOVA, below="off")
    lower(monkeypatch, "1.34")

    found = searching.search(ONLY_STATUS).find(wanted(asking(owner=NOVA, VGPU=1)))

    assert not found.candidates
    assert found.dropped == {"compute_status": 1}
    assert "root_required" not in searching.asked()[0]


def test_what_a_request_says_of_the_root_holds_beside_what_a_filter_says(
    searching: Searching,
) -> None:
    for name, trait in (("fast", AVX), ("slow", NOVA), ("off", DISABLED)):
        publish(searching.placement.client, name, {"VCPU": 1}, trait)
    request = wanted(asking(VCPU=1))
    search = searching.search(ONLY_STATUS)

    assert takers(search.find(with_root(request, AVX)).candidates, "fast", "slow") == ["fast"]
    assert len(search.find(request).candidates) == 2


def test_a_root_of_a_disabled_service_cannot_be_required(searching: Searching) -> None:
    request = with_root(wanted(asking(VCPU=1)), DISABLED)

    with pytest.raises(InvalidRequest, match="filter compute_status forbids it") as caught:
        searching.search(ONLY_STATUS).find(request)

    assert (caught.value.key, caught.value.value) == ("root_required", DISABLED)
    assert not searching.asked()


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("def apply(self, request): return None", "request filter mine: apply gave None"),
        ("def apply(self, request): return 1 / 0", "ZeroDivisionError: division by zero"),
        ("def objection(self, request, candidate): raise SystemExit(0)", "SystemExit: 0"),
        ("def objection(self, request, candidate): return [].pop()", "IndexError: pop from"),
    ],
)
def test_a_filter_that_fails_ends_the_request_with_its_name(
    searching: Searching, body: str, told: str
) -> None:
    publish_owners(searching.placement.client)
    namespace: dict[str, Any] = {"RequestFilter": RequestFilter}
    exec(f"class Filter(RequestFilter):\n    {body}", namespace)
    search = CandidateSearch(
        searching.placement.client, {"mine": namespace["Filter"](searching.surroundings())}
    )

    with pytest.raises(RequestFilterError, match=re.escape(told)) as caught:
        search.find(wanted(asking(VCPU=1)))

    assert caught.value.name == "mine"


def test_the_filter_of_the_documentation_does_what_it_says(searching: Searching) -> None:
    page = (Path(__file__).parents[3] / "docs/asking-for-resources.rst").read_text()
    [code] = re.findall(r"\.\. code-block:: python\n\n((?:   .*\n|\n)+)", page)
    namespace: dict[str, Any] = {}
    exec(dedent(code), namespace)
    client = searching.placement.client
    client.create_trait("CUSTOM_SSD")
    publish(client, "fast", {"VCPU": 1, "DISK_GB": 9}, "CUSTOM_SSD", aggregate=AGGREGATE)
    publish(client, "slow", {"DISK_GB": 9}, "MISC_SHARES_VIA_AGGREGATE", aggregate=AGGREGATE)
    publish(client, "old", {"VCPU": 1, "DISK_GB": 9})
    search = CandidateSearch(client, {"ssd": namespace["SsdFilter"](searching.surroundings())})

    found = search.find(wanted(asking(VCPU=1, DISK_GB=1)))

    assert takers(found.candidates, "fast", "slow", "old") == ["fast"]
    assert found.dropped == {"ssd": 1}
    assert len(search.find(wanted(asking(VCPU=1))).candidates) == 2
