"""Whether a uuid is the hardware's: the backend, or the machine, says it."""

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from wharfinger.conformance import backend_words
from wharfinger.conformance.checks.identity import _configurations
from wharfinger.conformance.subject import Subject

UUID = "8f7c2ad4-5b2e-4e3c-9d53-6a1d3e0c7b91"


@dataclass
class Machine:
    serial: str


@dataclass
class Rack:
    """A harness of a rack; ``placement`` has the texts that its driver has published."""

    directory: Path
    text: str = "[rack]\n"
    machines: dict[str, Machine] = field(default_factory=dict)
    answers: list[bytes] = field(default_factory=list)
    placement: list[str] = field(default_factory=list)

    def configuration(self, instance: str) -> str:
        return self.text


def says(harness: object) -> bool:
    subject = SimpleNamespace(declared=harness, instance_name="rack")
    return backend_words.says(cast(Subject, subject), UUID)


@pytest.mark.parametrize(
    "attributes",
    [
        {"text": f"[rack]\nsystem = {UUID}\n"},
        {"machines": {"one": Machine(UUID.upper())}},
        {"answers": [f'{{"uuid": "{UUID}"}}'.encode()]},
    ],
)
def test_says_finds_a_uuid_in_what_the_harness_has(
    attributes: dict[str, Any], tmp_path: Path
) -> None:
    assert says(Rack(tmp_path, **attributes))


def test_says_finds_a_uuid_in_the_files_of_the_harness(tmp_path: Path) -> None:
    (tmp_path / "rack").mkdir()
    (tmp_path / "rack" / "system").write_text(UUID.replace("-", ""))

    assert says(Rack(tmp_path))


def test_says_passes_over_what_has_been_published(tmp_path: Path) -> None:
    assert not says(Rack(tmp_path, placement=[UUID]))


def test_says_of_the_machine_is_found_without_a_harness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "machine-id").write_text(f"{UUID.replace('-', '')}\n")
    monkeypatch.setattr(backend_words, "_OF_MACHINE", (str(tmp_path / "machine-id"),))

    assert says(None)


def test_configurations_of_a_given_node_name_have_another_one() -> None:
    text = "[rack]\nurl = http://node-1/\nname = node-1\n"

    assert [*_configurations(text, ["node-1", "node-2"])] == [
        text,
        "[rack]\nurl = http://node-1/\nname = conformance-elsewhere\n",
    ]
