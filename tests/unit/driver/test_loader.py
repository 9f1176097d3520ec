"""Drivers that stevedore loads through entry points of installed packages."""

from collections.abc import Callable

import pytest

from tests.unit.driver.packages import Packages
from wharfinger.driver import loader
from wharfinger.driver.signatures import takes_migrations
from wharfinger.exceptions import DriverLoadError


def refusal(name: str) -> DriverLoadError:
    with pytest.raises(DriverLoadError) as caught:
        loader.load(name)
    assert caught.value.driver == name
    return caught.value


def test_valid_driver_is_loaded(packages: Packages) -> None:
    packages.install_driver("acme")
    assert loader.load("acme").default_owner == "CUSTOM_OWNER_ACME"
    assert loader.check("acme") == []


def test_installed_drivers_are_listed_with_their_packages_and_without_importing_them(
    packages: Packages,
) -> None:
    packages.install("broken", "raise RuntimeError('imported')")
    listed = [driver for driver in loader.installed() if driver.name == "broken"]
    assert listed == [
        loader.InstalledDriver("broken", "wharfinger_broken:Driver", "wharfinger-broken 1.0")
    ]


def test_missing_entry_point_is_an_error_with_the_known_ones(packages: Packages) -> None:
    packages.install_driver("acme")
    error = refusal("acmee")
    assert error.subject == "entry point"
    assert "wharfinger.drivers" in error.found
    assert "acme" in error.expected


@pytest.mark.parametrize(
    ("module", "found"),
    [
        ("import acme_sdk_that_is_not_there", "ModuleNotFoundError: No module named"),
        ("raise OSError('no device')", "OSError: no device"),
        ("assert False, 'wrong machine'", "AssertionError: wrong machine"),
        ("raise SystemExit('wrong machine')", "SystemExit: wrong machine"),
        ("class Drive: ...", "AttributeError"),
        ("def", "SyntaxError"),
    ],
)
def test_driver_that_cannot_be_imported_is_an_error_with_the_reason(
    packages: Packages, module: str, found: str
) -> None:
    packages.install("acme", module)
    error = refusal("acme")
    assert error.subject == "entry point wharfinger_acme:Driver"
    assert error.found.startswith(found)
    assert "can be imported" in error.expected


def test_broken_driver_does_not_affect_another(packages: Packages) -> None:
    packages.install("broken", "raise RuntimeError('imported')")
    packages.install_driver("acme")
    assert loader.load("acme").__module__ == "wharfinger_acme"


def test_two_packages_with_one_name_are_an_error_that_names_both(packages: Packages) -> None:
    packages.install_driver("acme", package="acme-one")
    packages.install_driver("acme", package="acme-two")
    error = refusal("acme")
    assert error.found == "acme_one:Driver of acme-one 1.0; acme_two:Driver of acme-two 1.0"
    assert "uninstall" in error.expected


@pytest.mark.parametrize("module", ["class Driver: ...", "Driver = 5", "def Driver(): ..."])
def test_object_that_is_no_compute_driver_is_refused(packages: Packages, module: str) -> None:
    packages.install("acme", module)
    error = refusal("acme")
    assert (error.subject, error.expected) == ("entry point", "a subclass of ComputeDriver")


def test_recently_changed_entry_point_is_found(packages: Packages) -> None:
    # stevedore's cache compares file times only in steps of 128 seconds.
    packages.install_driver("acme", package="acme-driver")
    loader.load("acme")
    packages.register("acme-driver", "acme2 = acme_driver:Driver", seconds=2)
    packages.as_in_a_new_process()
    acme = [driver.name for driver in loader.installed() if driver.name.startswith("acme")]
    assert acme == ["acme2"]
    assert loader.load("acme2").__module__ == "acme_driver"


def test_missing_method_is_named(packages: Packages) -> None:
    packages.install(
        "acme",
        "from wharfinger.driver import *\n"
        "class Driver(ComputeDriver):\n"
        "    def get_inventory(self, nodename): ...\n",
    )
    error = refusal("acme")
    assert error.subject == "get_available_nodes"
    assert error.found == "no implementation"


def test_driver_that_describes_no_provider_is_refused(packages: Packages) -> None:
    packages.install_driver("acme", "del get_inventory")
    error = refusal("acme")
    assert error.subject == "get_inventory, update_provider_tree"
    assert error.found == "neither implemented"


SIGNATURES = {
    "__init__": ("def __init__(self, conf): ...", "(conf, host, name)"),
    "init_host": ("def init_host(self): ...", "(service)"),
    "cleanup_host": ("def cleanup_host(self, service): ...", "()"),
    "get_available_nodes": ("def get_available_nodes(self): ...", "(refresh=)"),
    "get_available_resource": ("def get_available_resource(self): ...", "(nodename)"),
    "get_inventory": ("def get_inventory(self, node, *, deep): ...", "(nodename)"),
    "get_traits": ("def get_traits(self): ...", "(nodename)"),
    "update_provider_tree": (
        "def update_provider_tree(self, provider_tree, nodename): ...",
        "(provider_tree, nodename, allocations=, migrations=)",
    ),
    "capabilities_as_traits": ("def capabilities_as_traits(self, nodename): ...", "()"),
    "changed_nodes": ("def changed_nodes(self): ...", "(since)"),
    "program": ("def program(self, provider): ...", "(provider_uuid, image, function)"),
    "current_function": ("def current_function(self): ...", "(provider_uuid)"),
}


@pytest.mark.parametrize("method", SIGNATURES)
def test_wrong_signature_is_an_error_with_the_right_one(packages: Packages, method: str) -> None:
    definition, call = SIGNATURES[method]
    packages.install_driver("acme", definition)
    error = refusal("acme")
    assert error.subject == method
    parameters = definition[definition.index("(") : definition.rindex(":")]
    assert error.found == f"the signature {parameters}"
    assert error.expected == f"one that can be called with {call}"
    assert str(error) == (
        f"driver acme cannot be loaded: {method}: found {error.found}; expected {error.expected}"
    )


@pytest.mark.parametrize(
    ("definition", "found"),
    [
        ("async def get_traits(self, nodename): ...", "a coroutine function"),
        ("get_traits = {'CUSTOM_A'}", "{'CUSTOM_A'}"),
    ],
)
def test_attribute_that_is_no_method_is_refused(
    packages: Packages, definition: str, found: str
) -> None:
    packages.install_driver("acme", definition)
    error = refusal("acme")
    assert (error.subject, error.found) == ("get_traits", found)


@pytest.mark.parametrize(
    "definition",
    [
        "@staticmethod\ndef get_traits(nodename): return set()",
        "@classmethod\ndef get_traits(cls, nodename): return set()",
    ],
    ids=["static", "class"],
)
def test_static_or_class_method_is_accepted(packages: Packages, definition: str) -> None:
    packages.install_driver("acme", definition)
    assert loader.load("acme").get_traits("node") == set()  # type: ignore[arg-type,call-arg]


@pytest.mark.parametrize(
    "definition",
    [
        "@staticmethod\ndef get_traits(self, nodename): return set()",
        "@classmethod\ndef get_traits(cls): return set()",
    ],
    ids=["static", "class"],
)
def test_static_or_class_method_with_a_wrong_signature_is_refused(
    packages: Packages, definition: str
) -> None:
    packages.install_driver("acme", definition)
    assert refusal("acme").subject == "get_traits"


def test_novas_update_provider_tree_is_accepted_without_migrations(packages: Packages) -> None:
    packages.install_driver(
        "acme",
        "def update_provider_tree(self, provider_tree, nodename, allocations=None): ...",
    )
    assert not takes_migrations(loader.load("acme"))


def test_our_update_provider_tree_gets_migrations(packages: Packages) -> None:
    packages.install_driver("acme")
    assert takes_migrations(loader.load("acme"))


# Declarations.


def declaring(**changed: str) -> str:
    """Return a class body with other capabilities; the values are Python expressions as text."""
    changes = ", ".join(f"{name}={text}" for name, text in changed.items())
    return f"import dataclasses\ncapabilities = dataclasses.replace(capabilities, {changes})"


FEED = "\ndef changed_nodes(self, since): ..."


@pytest.mark.parametrize(
    ("body", "subject", "found"),
    [
        (declaring(reshape="None"), "capability reshape", "not declared"),
        (declaring(reshape="True"), "capability reshape", "True"),
        (
            declaring(reshape="unsupported('')"),
            "capability reshape",
            "unsupported without a reason",
        ),
        (
            declaring(change_feed="SUPPORTED"),
            "capability change_feed, changed_nodes",
            "supported, but the method is not implemented",
        ),
        (
            FEED,
            "capability change_feed, changed_nodes",
            "unsupported, but the method is implemented",
        ),
        ("capabilities = {'reshape': True}", "capabilities", "{'reshape': True}"),
        ("del capabilities", "capabilities", "None"),
    ],
    ids=[
        "not declared",
        "no capability",
        "no reason",
        "without its method",
        "contradicted by its method",
        "a dict",
        "none at all",
    ],
)
def test_wrong_capabilities_are_refused(
    packages: Packages, body: str, subject: str, found: str
) -> None:
    packages.install_driver("acme", body)
    error = refusal("acme")
    assert (error.subject, error.found) == (subject, found)


def test_capability_without_one_of_its_methods_is_refused(packages: Packages) -> None:
    body = declaring(programming="SUPPORTED")
    packages.install_driver("acme", f"{body}\ndef program(self, provider_uuid, image, function): 1")
    error = refusal("acme")
    assert error.subject == "capability programming, current_function"


def test_capability_with_all_methods_is_accepted(packages: Packages) -> None:
    packages.install_driver("acme", declaring(change_feed="SUPPORTED") + FEED)
    assert loader.load("acme").capabilities.change_feed is not None


@pytest.mark.parametrize(
    "body", ["default_owner = 'ACME'", "default_owner = 'OWNER_ACME'", "del default_owner"]
)
def test_wrong_default_owner_is_refused(packages: Packages, body: str) -> None:
    packages.install_driver("acme", body)
    error = refusal("acme")
    assert error.subject == "default_owner"
    assert "CUSTOM_OWNER_*" in error.expected


@pytest.mark.parametrize("versions", ["{}", "{'ComputeNode': '1.0'}"])
def test_compatible_object_versions_are_accepted(packages: Packages, versions: str) -> None:
    packages.install_driver("acme", f"object_versions = {versions}")
    assert loader.load("acme").object_versions == eval(versions)


@pytest.mark.parametrize(
    ("versions", "found", "expected"),
    [
        ("{'ComputeNode': '1.99'}", "ComputeNode 1.99", "ComputeNode up to 1."),
        ("{'ComputeNode': '2.0'}", "ComputeNode 2.0", "ComputeNode up to 1."),
        ("{'ComputeNode': 'new'}", "ComputeNode new", "ComputeNode up to 1."),
        ("{'Flavour': '1.0'}", "Flavour 1.0", "one of "),
        ("{'ComputeNode': 1.0}", "ComputeNode 1.0", "ComputeNode up to 1."),
        ("['ComputeNode']", "['ComputeNode']", ""),
    ],
)
def test_incompatible_object_versions_are_refused(
    packages: Packages, versions: str, found: str, expected: str
) -> None:
    packages.install_driver("acme", f"object_versions = {versions}")
    error = refusal("acme")
    assert (error.subject, error.found) == ("object_versions", found)
    assert error.expected.startswith(expected)


def test_check_finds_all_errors_at_once(packages: Packages) -> None:
    packages.install_driver(
        "acme",
        declaring(reshape="None") + "\ndefault_owner = 'ACME'\ndef get_traits(self): ...",
    )
    assert [error.subject for error in loader.check("acme")] == [
        "get_traits",
        "default_owner",
        "capability reshape",
    ]


@pytest.mark.parametrize(
    "install",
    [
        lambda packages: None,
        lambda packages: packages.install("acme", "import nothing_there"),
        lambda packages: packages.install("acme", "Driver = 5"),
    ],
    ids=["not installed", "not importable", "no driver"],
)
def test_check_of_an_unloadable_driver_is_one_error(
    packages: Packages, install: Callable[[Packages], None]
) -> None:
    install(packages)
    (error,) = loader.check("acme")
    assert error.driver == "acme"
