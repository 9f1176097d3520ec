"""Tables of the documentation are complete, and explain each row."""

import importlib
import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import wharfinger
from docs._ext import extra_spec_rows, object_rows
from docs._ext.object_rows import FieldRow, Unsaid
from wharfinger import objects
from wharfinger.objects import SERVICE_VERSIONS, ComputeNode, WharfingerObject, field_types
from wharfinger.scheduling import known_extra_specs
from wharfinger_ironic.states import PROVISION_STATES

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

#: The classes that wharfinger.objects exports; the tables use the registered classes.
OFFERED = [
    kind
    for kind in map(vars(objects).get, objects.__all__)
    if isinstance(kind, type)
    and issubclass(kind, WharfingerObject)
    and kind is not WharfingerObject
]


def test_each_version_of_each_object_has_a_row() -> None:
    table = object_rows.version_rows()
    rows = {(name, version): (brought, added) for name, version, brought, added in table}

    assert rows.keys() == {
        (kind.obj_name(), step.version) for kind in OFFERED for step in kind.HISTORY
    }
    assert len(table) == len(rows)
    assert all(brought for brought, _added in rows.values())
    assert rows["ComputeNode", "1.1"][1] == "pci_stats"


def test_each_version_of_a_service_has_a_row() -> None:
    assert object_rows.service_rows() == [
        (str(version), brought) for version, brought in sorted(SERVICE_VERSIONS.items())
    ]


@pytest.mark.parametrize("kind", OFFERED, ids=lambda kind: kind.obj_name())
def test_each_field_has_a_row_with_its_meaning(kind: type[WharfingerObject]) -> None:
    rows = object_rows.field_rows(kind)

    assert {row.name for row in rows} == set(kind.fields)
    assert all(row.type and row.meaning.endswith(".") for row in rows)


def test_row_of_a_field_matches_the_class() -> None:
    rows = {row.name: row for row in object_rows.field_rows(ComputeNode)}

    assert rows["last_seen"].nullable == "yes"
    assert rows["cpu_allocation_ratio"].default == "1.0"
    assert rows["driver_instance"].type == "text, up to 64 characters"
    assert rows["capabilities"].type == "true or false, by name"
    assert rows["pci_stats"].type == "PciDeviceList"


def test_clauses_of_a_docstring_belong_to_their_fields() -> None:
    class Tray(WharfingerObject):
        """A tray.

        - ``cups``: how many stand on it; ``saucers``, ``spoons``: those beside
          them. None is broken.

        It is carried.
        """

        fields = {
            "cups": field_types.count(),
            "saucers": field_types.count(default=4),
            "spoons": field_types.texts(),
        }

    assert object_rows.summary(Tray) == "A tray.\n\nIt is carried."
    beside = "those beside them. None is broken."
    assert object_rows.field_rows(Tray) == [
        FieldRow("cups", "whole number", "no", "", "how many stand on it. None is broken."),
        FieldRow("saucers", "whole number", "no", "4", beside),
        FieldRow("spoons", "list of texts", "no", "", beside),
    ]


class Bare(WharfingerObject):
    fields = {"cups": field_types.count()}


class Other(WharfingerObject):
    """An object whose docstring names another field.

    - ``cup``: how many there are.
    """

    fields = {"cups": field_types.count()}


class Twice(WharfingerObject):
    """An object whose docstring names a field twice.

    - ``cups``: how many there are.
    - ``cups``: of what colour.
    """

    fields = {"cups": field_types.count()}


@pytest.mark.parametrize("kind", [Bare, Other, Twice])
def test_field_without_one_meaning_is_an_error(kind: type[WharfingerObject]) -> None:
    with pytest.raises(Unsaid, match="cup"):
        object_rows.field_rows(kind)


def test_each_provision_state_that_reserves_a_node_has_a_row() -> None:
    page = (DOCS / "reference" / "bare-metal.rst").read_text()
    rows = dict(re.findall(r"^``([^`]+)`` +``([^`]+)``$", page, re.MULTILINE))

    held = {state: reason for state, reason in PROVISION_STATES.items() if reason is not None}
    assert rows.items() >= held.items()
    assert PROVISION_STATES.keys() - held.keys() == {"available"}


def test_extra_spec_rows_have_each_key_once_with_its_meaning() -> None:
    page = (DOCS / "reference" / "extra-specs.rst").read_text()
    rows = [row for name in extra_spec_rows.HEADS for row in extra_spec_rows.rows(name)]
    keys = [key for row in rows for key in re.findall(r"``(.+?)``", row[0])]

    assert sorted(keys) == sorted(known_extra_specs.KEYS)
    assert all(values and meaning.endswith(".") for _keys, values, meaning in rows)
    assert re.findall(r"^\.\. extra-specs:: (.+)$", page, re.MULTILINE) == [*extra_spec_rows.HEADS]


def test_extra_spec_row_of_translated_key_names_its_traits() -> None:
    rows = {keys: (values, meaning) for keys, values, meaning in extra_spec_rows.rows("translated")}

    assert rows["``hw:tpm_model``"] == (
        "tpm-tis or tpm-crb",
        "``tpm-tis``: ``COMPUTE_SECURITY_TPM_TIS`` required; ``tpm-crb``: "
        "``COMPUTE_SECURITY_TPM_CRB`` required; only with ``hw:tpm_version``; default there: "
        "``tpm-tis``.",
    )
    assert rows["``hw:mem_encryption``"][1] == "``true``: ``resources:MEM_ENCRYPTION_CONTEXT=1``."
    assert "forbidden" in rows["``hw:cpu_thread_policy``"][1]
    assert "required of the root" in rows["``hw:sound_model``"][1]


def test_each_section_of_options_has_a_table() -> None:
    page = (DOCS / "reference" / "configuration.rst").read_text()
    loaded = [
        found.load()()
        for found in entry_points(group="oslo.config.opts")
        # nova-drivers.rst has the options of wharfinger_nova, which may not be installed.
        if found.name.startswith("wharfinger") and found.name != "wharfinger_nova"
    ]

    tables = re.findall(r"^\.\. options:: (.+)$", page, re.MULTILINE)
    assert sorted(tables) == sorted(section for options in loaded for section, _ in options)


def test_each_command_has_a_section() -> None:
    page = (DOCS / "reference" / "commands.rst").read_text()
    commands = {found.name.replace("_", " ") for found in entry_points(group="wharfinger.cli")}

    documented = re.findall(r"^\.\. command:: (.+)$", page, re.MULTILINE)
    # The section of candidate list also describes candidate explain.
    assert sorted([*documented, "candidate explain"]) == sorted(commands)


# Code on the pages.

_IMPORT = re.compile(r"^ *from (wharfinger[\w.]*) import ([\w, ]+)$", re.MULTILINE)


def test_imports_on_the_pages_work() -> None:
    pages = (page.read_text() for page in [*DOCS.rglob("*.rst"), ROOT / "README.md"])
    imports = [found for text in pages for found in _IMPORT.findall(text)]

    assert len(imports) > 5
    for module, names in imports:
        for name in names.split(", "):
            try:
                getattr(importlib.import_module(module), name)
            except AttributeError:
                importlib.import_module(f"{module}.{name}")


def test_long_pages_have_sections_for_their_table_of_contents() -> None:
    pages = {page: page.read_text() for page in DOCS.rglob("*.rst")}
    long = {page: text for page, text in pages.items() if text.count("\n") > 120}

    assert long
    assert [page for page, text in long.items() if len(re.findall(r"^---+$", text, re.M)) < 3] == []


def test_readme_is_short() -> None:
    assert (ROOT / "README.md").read_text().count("\n") <= 120


def test_readme_shows_the_driver_of_the_example() -> None:
    readme = (ROOT / "README.md").read_text()

    assert (DOCS / "examples" / "rack" / "wharfinger_rack.py").read_text() in readme


# The page on architecture.

#: A file below framework/wharfinger, optionally with a name in it.
_REFERENCE = re.compile(r"``([a-z_]+(?:/[a-z_]+)*)\.py(?::([A-Za-z_.]+))?``")


def test_files_and_functions_of_the_architecture_exist() -> None:
    text = (DOCS / "explanation" / "architecture.rst").read_text()
    references = _REFERENCE.findall(text)
    assert len(references) > 15
    for path, name in references:
        found: object = importlib.import_module("wharfinger." + path.replace("/", "."))
        for part in name.split(".") if name else ():
            found = getattr(found, part, None)
        assert found is not None, f"{path}.py:{name}"


def test_each_package_is_in_the_architecture() -> None:
    text = (DOCS / "explanation" / "architecture.rst").read_text()
    packages = {
        one.parent.name for one in (Path(wharfinger.__file__).parent).glob("*/__init__.py")
    } - {"nova"}
    assert [one for one in sorted(packages) if f"``{one}``" not in text] == []
