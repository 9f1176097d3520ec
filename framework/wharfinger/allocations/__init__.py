"""Allocations of instances: claims, moves and releases.

Placement decides which consumer gets the last of something. The rows of instances and migrations
say what was asked for: a process may end between any two steps, and the next one finishes or undoes
what it has left. Nothing here publishes providers, or starts and stops instances.
"""

from wharfinger.allocations.candidate_attempts import FlavorSearch
from wharfinger.allocations.claims import AllocationClaims, Claimed
from wharfinger.allocations.moves import Moves

__all__ = ["AllocationClaims", "Claimed", "FlavorSearch", "Moves"]
