"""A wheel holds all that its source tree does, and nothing else."""

from tests.packaging.distribution import Distribution


def test_each_wheel_holds_every_module_and_data_file(distributions: list[Distribution]) -> None:
    for distribution in distributions:
        assert f"{distribution.package}/py.typed" in distribution.source_files
        assert distribution.wheel_files == distribution.source_files


def test_each_wheel_holds_every_entry_point(distributions: list[Distribution]) -> None:
    for distribution in distributions:
        assert distribution.wheel_entry_points == distribution.source_entry_points
