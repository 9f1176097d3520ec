"""Where the objects of a test are kept."""

from typing import Final

import pytest

#: Objects that another process keeps: some of a module's tests are tried with that.
_ELSEWHERE: Final = pytest.param("elsewhere", marks=pytest.mark.drawn(4, of="module"))
#: Marks what is run twice: with objects kept here, and by another process.
ANYWHERE: Final = pytest.mark.parametrize(
    "where", ["here", _ELSEWHERE], indirect=True, scope="module"
)
