"""Each wheel has exactly the files of its sources."""

from pathlib import Path

from tests.packaging.distribution import Distribution


def test_wheel_has_every_module_and_data_file(distributions: list[Distribution]) -> None:
    for distribution in distributions:
        assert f"{distribution.package}/py.typed" in distribution.source_files
        assert distribution.wheel_files == distribution.source_files


def test_wheel_has_every_entry_point(distributions: list[Distribution]) -> None:
    for distribution in distributions:
        assert distribution.wheel_entry_points == distribution.source_entry_points


def test_framework_wheel_has_every_file_for_operators(
    source: Path, distributions: list[Distribution]
) -> None:
    directory = source / "etc" / "wharfinger"
    files = {
        f"share/wharfinger/{path.relative_to(directory)}": path.read_bytes()
        for path in directory.rglob("*")
        # Exclude the input of oslo-config-generator, which has paths of the source tree.
        if path.is_file() and path.name != "config-generator.conf"
    }

    assert {one.package: one.wheel_operator_files for one in distributions} == {
        one.package: files if one.package == "wharfinger" else {} for one in distributions
    }
    assert {
        "share/wharfinger/wharfinger.conf.sample",
        "share/wharfinger/sample/wharfinger.conf",
        "share/wharfinger/systemd/wharfinger-agent.service",
        "share/wharfinger/sysusers.d/wharfinger.conf",
    } <= files.keys()


def test_installation_puts_the_unit_below_the_prefix(source: Path, installed: Path) -> None:
    unit = Path("systemd", "wharfinger-agent.service")

    found = installed.parent / "share" / "wharfinger" / unit
    assert found.read_text() == (source / "etc" / "wharfinger" / unit).read_text()
