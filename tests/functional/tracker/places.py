"""Where the objects of a test are kept."""

from typing import Final

import pytest

#: Marks what is run twice: with objects kept here, and by another process.
ANYWHERE: Final = pytest.mark.parametrize(
    "where", ["here", "elsewhere"], indirect=True, scope="module"
)
