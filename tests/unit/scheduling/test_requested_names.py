"""Names in a flavor's request: the places that errors name, and names unknown to Placement."""

from tests.lab import samples
from wharfinger.scheduling.device_profiles import from_profile
from wharfinger.scheduling.flavor_request import from_flavor
from wharfinger.scheduling.requested_names import Place, of_flavor, unknown

SPECS = {
    "resources:CUSTOM_GOLD": "1",
    "trait:CUSTOM_FAST": "required",
    "resources_A:CUSTOM_GOLD": "1",
    "trait_A:CUSTOM_SLOW": "forbidden",
    "hw:cpu_policy": "dedicated",
    "os:secure_boot": "required",
    "hw:ephemeral_encryption": "true",
    "accel:device_profile": "fpga",
}
PROFILE = {"resources:FPGA": "1", "trait:CUSTOM_FAST": "required"}
FLAVOR, FPGA = "flavor flavor-0", "device profile fpga"
TRAITS = {
    (FLAVOR, "trait:CUSTOM_FAST"),
    (FLAVOR, "trait_A:CUSTOM_SLOW"),
    (FLAVOR, "trait of os:secure_boot"),
    (FLAVOR, "trait of hw:ephemeral_encryption"),
    (FPGA, "trait:CUSTOM_FAST"),
}
CLASSES = {
    (FLAVOR, "resources:CUSTOM_GOLD"),
    (FLAVOR, "resources_A:CUSTOM_GOLD"),
    (FLAVOR, "resources of hw:cpu_policy"),
    (FLAVOR, "resources:MEMORY_MB"),
    (FPGA, "resources:FPGA"),
}


def shown(places: list[Place]) -> list[tuple[str, str]]:
    """Return the places in the order and form in which an error names them."""
    return sorted((subject, where.format(name)) for subject, where, [name] in places)


def test_names_of_a_flavor_come_with_their_keys() -> None:
    flavor = samples.flavor(None, extra_specs=SPECS)
    flavor.obj_set_defaults()
    request = from_flavor(flavor, lambda name: from_profile(name, [PROFILE]))

    traits, classes = of_flavor(flavor, request)

    assert shown(traits) == sorted(TRAITS)
    assert shown(classes) == sorted(CLASSES)


def test_unknown_reports_each_missing_name_and_a_similar_one() -> None:
    places = [("flavor f", "trait:{}", ["CUSTOM_FASTER", "OWNER_NOVA"]), ("port p", "of it", ["X"])]

    first, second = unknown("trait", places, {"CUSTOM_FAST", "OWNER_NOVA"})

    assert (first.subject, first.key, first.value) == (
        "flavor f",
        "trait:CUSTOM_FASTER",
        "CUSTOM_FASTER",
    )
    assert "CUSTOM_FAST?" in first.problem
    assert (second.subject, second.key, second.value) == ("port p", "of it", "X")
    assert "?" not in second.problem
    assert not list(unknown("trait", places, {"CUSTOM_FASTER", "OWNER_NOVA", "X"}))
