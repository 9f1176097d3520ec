"""Markers for where the objects of a test are stored."""

from typing import Final

import pytest

#: Another process stores the objects; some tests of a module run with that.
_ELSEWHERE: Final = pytest.param("elsewhere", marks=pytest.mark.drawn(4, of="module"))
#: Marks tests that run twice: with objects in this process, and in another one.
ANYWHERE: Final = pytest.mark.parametrize(
    "where", ["here", _ELSEWHERE], indirect=True, scope="module"
)
