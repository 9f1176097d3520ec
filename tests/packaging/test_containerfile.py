"""The image and the container of the agent, and a built image if a builder has the base image."""

import json
import re
import shutil
import subprocess
from io import BytesIO

import pytest
import yaml  # type: ignore[import-untyped]
from dockerfile_parse import DockerfileParser

from tests.packaging.conftest import REPOSITORY

CONTAINERFILE = REPOSITORY / "Containerfile"
UNIT = REPOSITORY / "etc" / "wharfinger" / "systemd" / "wharfinger-agent.service"
IMAGE = "localhost/wharfinger-test"


@pytest.fixture(scope="module")
def parsed() -> DockerfileParser:
    return DockerfileParser(fileobj=BytesIO(CONTAINERFILE.read_bytes()))


def base(parsed: DockerfileParser) -> str:
    """Return the base image of all stages."""
    (argument,) = (one["value"] for one in parsed.structure if one["instruction"] == "ARG")
    name, _, value = argument.partition("=")
    assert name == "BASE"
    assert set(parsed.parent_images) == {value}
    return str(value)


def last_stage(parsed: DockerfileParser) -> dict[str, list[str]]:
    """Return the values of each instruction in the stage that becomes the image."""
    found: dict[str, list[str]] = {}
    for one in parsed.structure:
        if one["instruction"] == "FROM":
            found = {}
        found.setdefault(one["instruction"], []).append(one["value"])
    return found


def builder(base: str) -> str | None:
    """Return the name of a program that can build the image without a registry, or None."""
    for name in ("podman", "docker"):
        if shutil.which(name) and not run(name, "image", "inspect", base).returncode:
            return name
    return None


def run(*command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)


def test_base_has_a_tag_of_one_release(parsed: DockerfileParser) -> None:
    assert re.fullmatch(r"docker\.io/library/debian:(?!latest)[a-z]+-slim", base(parsed))


def test_image_runs_the_agent_as_a_user_by_number(parsed: DockerfileParser) -> None:
    (user,) = last_stage(parsed)["USER"]
    assert re.fullmatch(r"([1-9][0-9]*):\1", user)

    (entry_point,), (command,) = (last_stage(parsed)[name] for name in ("ENTRYPOINT", "CMD"))
    (started,) = re.findall(r"^ExecStart=(.+)$", UNIT.read_text(), re.MULTILINE)
    assert [*json.loads(entry_point), *json.loads(command)] == started.split()


def test_image_writes_only_to_its_volumes(parsed: DockerfileParser) -> None:
    (volumes,) = last_stage(parsed)["VOLUME"]
    (directory,) = last_stage(parsed)["WORKDIR"]

    assert json.loads(volumes) == ["/var/lib/wharfinger", "/run/wharfinger"]
    assert directory == "/var/lib/wharfinger"  # the home directory, where caches of the user are
    assert last_stage(parsed)["COPY"] == ["--from=build /opt/wharfinger /opt/wharfinger"]


def test_container_has_the_volumes_of_the_image_and_the_stop_time_of_the_unit(
    parsed: DockerfileParser,
) -> None:
    compose = yaml.safe_load((REPOSITORY / "compose.yaml").read_text())
    agent = compose["services"]["agent"]
    (volumes,) = last_stage(parsed)["VOLUME"]
    configuration, *own = (volume.split(":") for volume in agent["volumes"])
    (stop,) = re.findall(r"^TimeoutStopSec=(\d+)$", UNIT.read_text(), re.MULTILINE)

    assert agent["read_only"]
    assert agent["build"] == {"context": ".", "dockerfile": CONTAINERFILE.name}
    assert configuration == ["/etc/wharfinger", "/etc/wharfinger", "ro"]
    assert [target for _, target in own] == json.loads(volumes)
    assert {name for name, _ in own} == compose["volumes"].keys()
    assert agent["stop_grace_period"] == f"{stop}s"


def test_build_context_has_only_files_that_the_ignore_file_allows(parsed: DockerfileParser) -> None:
    lines = (REPOSITORY / ".dockerignore").read_text().splitlines()
    lines = [line for line in lines if not line.startswith("#")]
    allowed = {line[1:] for line in lines if line.startswith("!")}

    assert lines[0] == "*"
    assert all((REPOSITORY / path).exists() for path in allowed)
    (install,) = (one["value"] for one in parsed.structure if " install --no-cache" in one["value"])
    drivers = set(re.findall(r"\./(drivers/\w+)", install))
    assert drivers == {path for path in allowed if path.startswith("drivers/")}
    assert "ADD" not in {one["instruction"] for one in parsed.structure}


def test_built_image_runs_with_a_read_only_root(parsed: DockerfileParser) -> None:
    program = builder(base(parsed))
    if program is None:
        pytest.skip(f"neither podman nor docker runs here with the image {base(parsed)}")

    built = run(program, "build", "--file", str(CONTAINERFILE), "--tag", IMAGE, ".")
    assert built.returncode == 0, built.stdout + built.stderr
    limits = ("--rm", "--read-only", "--cap-drop", "all", "--network", "none")
    printed = run(program, "run", *limits, IMAGE, "driver", "list", "-f", "json")

    assert printed.returncode == 0, printed.stderr
    assert {row["Driver"] for row in json.loads(printed.stdout)} == {"cyborg", "ironic", "libvirt"}
