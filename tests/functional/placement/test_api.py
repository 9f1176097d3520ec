"""Properties of the real Placement on which Wharfinger relies, from the tables in gabbits.

A table is a gabbi file. Its steps are subtests, which run in order on a Placement that starts
empty. ``$ENVIRON['NODE']`` stands for a uuid, the same for each use of this name.
"""

import re
import unittest
import uuid
from pathlib import Path

import pytest
from gabbi import handlers, suitemaker, utils  # type: ignore[import-untyped]

from wharfinger.placement.embedded import EmbeddedPlacement

_TABLES = sorted((Path(__file__).parent / "gabbits").glob("*.yaml"))
_SOME = pytest.mark.drawn(2)


@pytest.mark.parametrize(
    "table",
    [
        # These tables are long; all of them test conditions on traits.
        pytest.param(one, id=one.stem, marks=_SOME if one.stem.startswith("required-") else ())
        for one in _TABLES
    ],
)
@pytest.mark.usefixtures("placement")
def test_placement_answers_as_in_the_table(
    table: Path,
    placement_service: EmbeddedPlacement,
    subtests: pytest.Subtests,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in re.findall(r"\$ENVIRON\['(\w+)'\]", table.read_text()):
        monkeypatch.setenv(name, str(uuid.uuid5(uuid.NAMESPACE_DNS, name)))

    for step in _steps(table, placement_service):
        with subtests.test(step.shortDescription()):
            result = unittest.TestResult()
            step(result)
            if problems := result.failures + result.errors + result.skipped:
                pytest.fail("\n".join(text for _, text in problems), pytrace=False)


def _steps(table: Path, service: EmbeddedPlacement) -> list[unittest.TestCase]:
    suite = suitemaker.test_suite_from_dict(
        unittest.TestLoader(),
        table.stem,
        utils.load_yaml(yaml_file=table),
        str(table.parent),
        host="placement.embedded",
        port=None,
        fixture_module=None,
        intercept=lambda: service.application,
        handlers=[handler() for handler in handlers.RESPONSE_HANDLERS],
    )
    return list(suite)
