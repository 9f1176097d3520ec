"""Configuration files with any content: each error is one line from Wharfinger."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.lab.drawing import Draw
from wharfinger import conf
from wharfinger.conf import (
    AcceleratorSection,
    AgentSection,
    DefaultSection,
    InstanceSection,
    PlacementSection,
    SchedulingSection,
)
from wharfinger.exceptions import WharfingerError

EXAMPLES = 50
#: Number of examples of files with known sections and options.
STRUCTURED_EXAMPLES = 80

SECTIONS = (
    *("DEFAULT", "placement", "gpus", "metal", "gpus:nvidia-35", "default", "Placement"),
    *("scheduling", "accelerator", "agent"),
)
KEYS = {
    "enabled_drivers": "DEFAULT",
    "host": "DEFAULT",
    "state_path": "DEFAULT",
    "embedded": "placement",
    "embedded_database": "placement",
    "auth_type": "placement",
    "auth_section": "placement",
    "endpoint_override": "placement",
    "timeout": "placement",
    "insecure": "placement",
    "connect_retries": "placement",
    "status_code_retries": "placement",
    "min_version": "placement",
    "valid_interfaces": "placement",
    "driver": "gpus",
    "owner": "gpus",
    "removal_delay": "gpus",
    "request_filters": "scheduling",
    "untagged": "scheduling",
    "cache_time": "scheduling",
    "device_profiles": "accelerator",
    "region_name": "accelerator",
    "poll_interval": "agent",
    "full_interval": "agent",
}
VALUES = (
    *("", "gpus", "gpus, metal", "OWNER_NOVA", "/srv/state", "true", "False", "60", "libvirt"),
    *("$", "$$", "$$host", "$host", "${host}", "${placement.timeout}", "${gpus.owner}", "${", "$x"),
    *("${x}", "${.}", "${a.b.c}", "${DEFAULT.host}", "$state_path", "${state_path}/x", "${host"),
    *("$embedded_database", "$removal_delay", "${gpus.removal_delay}", "\\$host", "%(host)s"),
    *(
        "~",
        "~root/x",
        "~nobody-at-all/x",
        "relative",
        "/a?b",
        "/a#b",
        "/%2e",
        "/\0",
        "/" + "x" * 5000,
    ),
    *("-1", "1e9", "99999999999999999999", "nan", "inf", "0x10", "1.5", "١٢", "²", "yes", "maybe"),
    *(
        "9" * 5000,
        "gpus,,gpus",
        ",",
        "'",
        '"',
        "'a, b', c",
        '"unclosed, x',
        "[x]",
        "{x}",
        "{0}",
        "%s",
    ),
    *("a\u202eb", "\u2028", "\x85", "\x1b[31m", "\ufeff", "\U0010ffff", "none", "None", "null"),
)

#: A configuration that enables the instance gpus, so that the section [gpus] is read.
ENABLED = "[DEFAULT]\nenabled_drivers = gpus\n"

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
values = st.sampled_from(VALUES) | texts.map(lambda text: text.replace("\n", "\n  "))
keys = st.sampled_from(sorted(KEYS))
options = st.builds(
    "{}{}{}".format, keys | texts, st.sampled_from([" = ", "=", ": ", " ", "\t=\t"]), values
)
continuations = st.builds("{}{}".format, st.sampled_from([" ", "\t", "   "]), values)
headers = st.sampled_from([*(f"[{name}]" for name in SECTIONS), "[", "[]", "[ gpus ]", "[gpus"])
lines = st.one_of(headers, options, options, options, continuations, st.just("# note"), texts)
line_ends = st.sampled_from(["\n", "\n", "\r\n", "\r", "\n\n"])


@st.composite
def right_places(draw: st.DrawFn) -> str:
    """Draw known options, each once and in its section, with any values."""
    chosen = draw(st.dictionaries(keys, values, min_size=1, max_size=6))
    return ENABLED + "\n".join(
        f"[{section}]\n"
        + "\n".join(f"{key} = {chosen[key]}" for key in chosen if KEYS[key] == section)
        for section in dict.fromkeys(KEYS[key] for key in chosen)
    )


@st.composite
def near_files(draw: st.DrawFn) -> str:
    """Draw sections and options in any order and number."""
    return draw(line_ends).join(draw(st.lists(lines, max_size=12)))


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    with TemporaryDirectory() as name:
        yield Path(name)


def read_everything(directory: Path, content: bytes) -> list[WharfingerError]:
    """Read a file with this content and all its sections; return the errors."""
    path = directory / "wharfinger.conf"
    path.write_bytes(content)
    errors = []
    try:
        loaded = conf.load([str(path)])
    except WharfingerError as error:
        return [error]
    for read in (
        lambda: DefaultSection.read(loaded),
        lambda: PlacementSection.read(loaded),
        lambda: SchedulingSection.read(loaded),
        lambda: AcceleratorSection.read(loaded),
        lambda: AgentSection.read(loaded),
        lambda: InstanceSection.read(loaded, "gpus"),
        lambda: InstanceSection.read(loaded, "metal"),
    ):
        try:
            read()
        except WharfingerError as error:
            errors.append(error)
    return errors


def check(directory: Path, content: bytes) -> None:
    for error in read_everything(directory, content):
        message = str(error)
        assert message.isprintable(), message
        assert message.startswith(("[", "configuration: ")), message
        assert message.rstrip().endswith((".", ")", "?")), message


@given(content=st.binary(max_size=300))
@example(content=b"\xff\xfe[\x00D\x00]\x00")
@example(content=b"\xef\xbb\xbf[DEFAULT]\nhost = x\n")
@example(content=b"[DEFAULT]\nhost = \x80\n")
@example(content=b"\0" * 100)
@settings(max_examples=EXAMPLES, deadline=None)
def test_any_bytes_are_read_or_refused(directory: Path, content: bytes) -> None:
    check(directory, content)


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=300))
@settings(max_examples=EXAMPLES, deadline=None)
def test_any_text_is_read_or_refused(directory: Path, text: str) -> None:
    check(directory, text.encode())


@given(text=near_files())
@example(text="[DEFAULT]\n[DEFAULT]\nhost = a\nhost = b\n")
@example(text=" host = a\n")
@example(text="[DEFAULT]\nhost = a\n  b\n\n  c\n")
@settings(max_examples=STRUCTURED_EXAMPLES, deadline=None)
def test_any_lines_of_a_configuration_are_read_or_refused(directory: Path, text: str) -> None:
    check(directory, text.encode())


@given(text=right_places())
@example(text="[DEFAULT]\nhost = $host\n")
@example(text="[DEFAULT]\nhost = ${state_path}\nstate_path = $host\n")
@example(text="[placement]\nembedded = $embedded\n")
@example(text=f"{ENABLED}[gpus]\nremoval_delay = $removal_delay\n")
@settings(max_examples=STRUCTURED_EXAMPLES, deadline=None)
def test_any_values_of_known_options_are_read_or_refused(directory: Path, text: str) -> None:
    check(directory, text.encode())


@pytest.mark.parametrize("key", KEYS)
def test_each_option_accepts_or_refuses_each_value(directory: Path, key: str, draw: Draw) -> None:
    for value in draw(VALUES, 12):
        check(directory, f"{ENABLED}[{KEYS[key]}]\n{key} = {value}\n".encode())
