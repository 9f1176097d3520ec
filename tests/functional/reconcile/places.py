"""Markers that set which process stores the objects of a test."""

from typing import Final

import pytest

#: Another process stores the objects. The seed draws 4 tests of a module that run so.
_ELSEWHERE: Final = pytest.param("elsewhere", marks=pytest.mark.drawn(4, of="module"))
#: Marks tests that run twice: with the objects in this process, and in another process.
ANYWHERE: Final = pytest.mark.parametrize(
    "where", ["here", _ELSEWHERE], indirect=True, scope="module"
)
