"""Queries for providers and allocation candidates, and the API features that they need."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Final
from urllib.parse import urlencode

from wharfinger.placement.microversions import Feature
from wharfinger.placement.trait_conditions import ANY_OF

Query = Sequence[tuple[str, str]]

#: A key of a granular request group: the name of the key, and the suffix of the group.
_GRANULAR: Final = re.compile(r"(resources|required|member_of|in_tree)(.+)\Z")
#: A group suffix that servers without named groups accept.
_NUMBER: Final = re.compile(r"[1-9][0-9]*\Z")


def encoded(query: Query) -> str:
    """Return a query as part of a URL."""
    return urlencode(query, safe=":,!")


def features(query: Query) -> Iterator[Feature]:
    """Yield the features that a query for providers needs."""
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
    """Yield the features that a query for allocation candidates needs."""
    yield Feature.NESTED_CANDIDATES
    yield from features(query)
    if any(key.startswith("in_tree") for key, _value in query):
        yield Feature.CANDIDATES_IN_TREE


def numbered(query: Query) -> Query:
    """Return the query with numbers in place of the names of granular groups."""
    split = [(_GRANULAR.match(key), key, value) for key, value in query]
    suffixes = dict.fromkeys(match[2] for match, _key, _value in split if match)
    free = (str(number) for number in count(1) if str(number) not in suffixes)
    numbers = {suffix: suffix if _NUMBER.match(suffix) else next(free) for suffix in suffixes}
    return [(match[1] + numbers[match[2]] if match else key, value) for match, key, value in split]
