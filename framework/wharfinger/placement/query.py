"""Queries for providers and allocation candidates: what they need of the server.

A query is a sequence of keys and values, in the syntax of the Placement API; a key may
come several times. Pure.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Final
from urllib.parse import urlencode

from wharfinger.placement.microversions import Feature
from wharfinger.placement.trait_conditions import ANY_OF

Query = Sequence[tuple[str, str]]

#: A key of a granular group, and the group's suffix.
_GRANULAR: Final = re.compile(r"(resources|required|member_of|in_tree)(.+)\Z")


def encoded(query: Query) -> str:
    """The query in a URL, as legible as it can be: errors and logs show it."""
    return urlencode(query, safe=":,!")


def features(query: Query) -> Iterator[Feature]:
    """The features without which the server would refuse a query, or answer it wrongly."""
    times = Counter(key for key, _value in query)
    for key, value in query:
        if key == "root_required":
            yield Feature.ROOT_REQUIRED
        elif key == "same_subtree":
            yield Feature.SAME_SUBTREE
        elif key.startswith("required") and (times[key] > 1 or value.startswith(ANY_OF)):
            yield Feature.ANY_TRAITS
        elif key.startswith("member_of") and value.startswith("!"):
            yield Feature.FORBIDDEN_AGGREGATES


def candidate_features(query: Query) -> Iterator[Feature]:
    """As ``features``, for a query for allocation candidates."""
    yield Feature.NESTED_CANDIDATES
    yield from features(query)
    if any(key.startswith("in_tree") for key, _value in query):
        yield Feature.CANDIDATES_IN_TREE


def numbered(query: Query) -> Query:
    """The same query with numbers for the suffixes of its granular groups.

    For servers without named groups. Suffixes that are numbers stay.
    """
    split = [(_GRANULAR.match(key), key, value) for key, value in query]
    suffixes = dict.fromkeys(match[2] for match, _key, _value in split if match)
    free = (str(number) for number in count(1) if str(number) not in suffixes)
    numbers = {suffix: suffix if _is_number(suffix) else next(free) for suffix in suffixes}
    return [(match[1] + numbers[match[2]] if match else key, value) for match, key, value in split]


def _is_number(suffix: str) -> bool:
    return suffix.isdecimal() and suffix.isascii() and not suffix.startswith("0")
