"""The options of a run, for the command line and for pytest."""

import os
import random
import re
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from typing import Any, Final, Self

from wharfinger.conformance.rules import Profile, all_rules
from wharfinger.exceptions import printable

#: The group of the entry points of harnesses.
HARNESSES: Final = "wharfinger.conformance_harness"
#: Default of --timeout: seconds that calls to the driver may take in one rule.
TIMEOUT: Final = 300.0
#: Default of --examples: the number of random histories after two simple ones.
EXAMPLES: Final = 5
#: A driver's name, which is also the name of the report's files.
_NAME: Final = re.compile(r"\w[\w.+-]*")
_KNOWN_FAILURE: Final = re.compile(r"\s*(?P<id>[A-Z]+-\d+)\s*:\s*(?P<reason>\S.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The values of the options of a run."""

    #: The name of the driver. Without one, no rule is run.
    driver: str | None
    config_file: Path | None = None
    profile: Profile = Profile.EXTENDED
    #: The declared known failures: the reason of each by the id of the rule.
    known: Mapping[str, str]
    seed: int
    examples: int = EXAMPLES
    #: Seconds that calls to the driver may take in one rule.
    timeout: float = TIMEOUT
    thorough: bool = False

    @classmethod
    def read(cls, driver: str | None, options: Namespace, prefix: str = "") -> Self:
        """Return the values of parsed options, with a random seed by default."""

        def value(name: str) -> Any:
            return getattr(options, f"{prefix}{name}".replace("-", "_"))

        seed = value("seed")
        return cls(
            driver=driver,
            config_file=options.driver_config,
            profile=Profile(value("profile")),
            known=dict(value("known-failure")),
            seed=random.randrange(2**32) if seed is None else seed,
            examples=value("examples"),
            timeout=value("timeout"),
            thorough=value("thorough"),
        )

    @property
    def arguments(self) -> list[str]:
        """The command-line options that repeat this run, without the known failures."""
        options = {
            "--driver-config": self.config_file,
            "--profile": None if self.profile is Profile.EXTENDED else self.profile,
            "--seed": self.seed,
            "--examples": None if self.examples == EXAMPLES else self.examples,
            "--timeout": None if self.timeout == TIMEOUT else f"{self.timeout:g}",
        }
        given = [(option, str(value)) for option, value in options.items() if value is not None]
        return [part for pair in given for part in pair] + ["--thorough"] * self.thorough

    def to_data(self) -> dict[str, Any]:
        """Return the options as data for JSON."""
        return asdict(self) | {"config_file": self.config_file and str(self.config_file)}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Return the options from the result of ``to_data``."""
        file = data["config_file"]
        return cls(
            **{**data, "config_file": file and Path(file), "profile": Profile(data["profile"])}
        )


def add_options(add_argument: Callable[..., Any], prefix: str = "") -> None:
    """Add the options of a run to a parser."""
    add_argument(
        "--driver-config",
        metavar="FILE",
        type=_file,
        help="check the driver with this configuration file, on the backend that the file names. "
        "The kit only reads from this backend, which is enough for the core rules; add "
        f"--{prefix}profile core, since the verdict on the other rules is PARTIAL. Default: the "
        "configuration and backend of the driver's harness",
    )
    add_argument(
        f"--{prefix}profile",
        choices=[profile.value for profile in Profile],
        default=Profile.EXTENDED.value,
        help="core: check only the rules that need no harness. extended: check all rules. Default: "
        "extended",
    )
    add_argument(
        f"--{prefix}known-failure",
        metavar="'ID: REASON'",
        type=_known_failure,
        action="append",
        default=[],
        help="the id of a rule that the driver is known to break, and the reason. The broken rule "
        "then does not fail the run. The run fails if the driver keeps the rule, or if the rule "
        "does not apply to the driver. Repeat the option for further rules",
    )
    add_argument(
        f"--{prefix}report",
        metavar="DIR",
        type=_new_directory,
        help="write the report to DRIVER.json, DRIVER.md and DRIVER.svg in this directory, anew "
        "after each rule. The directory is created if it is missing. Default: no report",
    )
    add_argument(
        f"--{prefix}seed",
        metavar="N",
        type=int,
        help="the seed of the random histories and of the sample of faults. The same seed draws "
        "the same ones again. Default: a random seed, which the output shows",
    )
    add_argument(
        f"--{prefix}examples",
        metavar="N",
        type=_count,
        default=EXAMPLES,
        help="the number of random histories, which are sequences of backend events and cycles. "
        "Two simple histories come first, and do not count. Default: %(default)s",
    )
    add_argument(
        f"--{prefix}timeout",
        metavar="SECONDS",
        type=_seconds,
        default=TIMEOUT,
        help="the seconds that all calls to the driver in one rule may take together. A rule that "
        "takes longer fails. If one call to the harness takes longer, the rule counts as not run. "
        "Default: %(default)g",
    )
    add_argument(
        f"--{prefix}thorough",
        action="store_true",
        help="try every fault and case instead of a sample. This takes long. "
        f"--{prefix}timeout and --{prefix}examples still apply",
    )


def driver_name(text: str) -> str:
    """Return a valid name of a driver. Raises ArgumentTypeError."""
    if not _NAME.fullmatch(text):
        raise ArgumentTypeError(f"{text!r} is not a driver's name, such as libvirt")
    return text


def rule_id(text: str) -> str:
    """Return the id of an existing rule. Raises ArgumentTypeError."""
    if text not in _ids():
        raise ArgumentTypeError(f"there is no rule {text}. wharfinger conformance rules lists them")
    return text


def _ids() -> Iterable[str]:
    return {rule.id for rule in all_rules()}


def _file(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise ArgumentTypeError(f"there is no file {text}")
    return path.absolute()


def _new_directory(text: str) -> Path:
    path = Path(text).absolute()
    nearest = next(one for one in (path, *path.parents) if one.exists())
    if not (nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)):
        raise ArgumentTypeError(
            f"cannot create directory {text}: {nearest} is not a directory, or it is not writable"
        )
    return path


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text} is not a number of 1 or more")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds < inf:
        raise ArgumentTypeError(f"{text} is not a number of seconds, such as 60")
    return seconds


def _known_failure(text: str) -> tuple[str, str]:
    match = _KNOWN_FAILURE.fullmatch(text)
    if match is None or match["id"] not in _ids():
        raise ArgumentTypeError(
            f"{text!r} is not the id of a rule and a reason, such as "
            "'WHF-505: the firmware gives no reason'. wharfinger conformance rules lists the ids"
        )
    return match["id"], printable(match["reason"].strip())
