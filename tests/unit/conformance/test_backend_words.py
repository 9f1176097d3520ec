"""Whether a uuid comes from the hardware: from the backend, or from the machine itself."""

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from wharfinger.conformance import backend_words
from wharfinger.conformance.checks.identity import _with_each_node_renamed
from wharfinger.conformance.subject import Subject

UUID = "8f7c2ad4-5b2e-4e3c-9d53-6a1d3e0c7b91"


@dataclass
class Machine:
    serial: str


@dataclass
class Rack:
    """A harness of a rack; ``placement`` has the texts that the driver has published."""

    directory: Path
    text: str = "[rack]\n"
    machines: dict[str, Machine] = field(default_factory=dict)
    answers: list[bytes] = field(default_factory=list)
    placement: list[str] = field(default_factory=list)

    def configuration(self, instance: str) -> str:
        return self.text


def contains(harness: object) -> bool:
    subject = SimpleNamespace(declared=harness, instance_name="rack")
    return backend_words.contains(cast(Subject, subject), UUID)


@pytest.mark.parametrize(
    "attributes",
    [
        {"text": f"[rack]\nsystem = {UUID}\n"},
        {"machines": {"one": Machine(UUID.upper())}},
        {"answers": [f'{{"uuid": "{UUID}"}}'.encode()]},
    ],
)
def test_contains_finds_a_uuid_in_the_attributes_of_the_harness(
    attributes: dict[str, Any], tmp_path: Path
) -> None:
    assert contains(Rack(tmp_path, **attributes))


def test_contains_finds_a_uuid_in_the_files_of_the_harness(tmp_path: Path) -> None:
    (tmp_path / "rack").mkdir()
    (tmp_path / "rack" / "system").write_text(UUID.replace("-", ""))

    assert contains(Rack(tmp_path))


def test_contains_ignores_texts_that_the_driver_has_published(tmp_path: Path) -> None:
    assert not contains(Rack(tmp_path, placement=[UUID]))


def test_contains_finds_the_uuid_of_the_machine_without_a_harness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "machine-id").write_text(f"{UUID.replace('-', '')}\n")
    monkeypatch.setattr(backend_words, "_OF_MACHINE", (str(tmp_path / "machine-id"),))

    assert contains(None)


def test_with_each_node_renamed_with_a_node_name_have_a_copy_with_another_name() -> None:
    text = "[rack]\nurl = http://node-1/\nname = node-1\n"

    assert [*_with_each_node_renamed(text, ["node-1", "node-2"])] == [
        text,
        "[rack]\nurl = http://node-1/\nname = node-1-elsewhere-node-1\n",
    ]
