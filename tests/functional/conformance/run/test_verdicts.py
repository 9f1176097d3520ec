"""Runs of the kit: what they exit with, and what they say last."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.conformance.running import Kit

pytest_plugins = ["pytester"]
CORE = ("--driver-profile", "core")


def test_what_keeps_all_rules_of_the_core_conforms(kit: Kit) -> None:
    result = kit("--driver", "shelf", *CORE)
    assert result.ret == 0
    assert "core: CONFORMS, extended: NOT ASKED" in result.outlines


def test_p(kit: Kit) -> None:
    result = kit("--driver", "racks", "--driver-examples", "2")
    assert result.ret == 0
