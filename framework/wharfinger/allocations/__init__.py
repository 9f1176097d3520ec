"""Allocations of instances: claims, moves and releases.

The rows of instances and migrations store the state of each operation: if a process dies between
two steps, the next process finishes or undoes the operation. This package does not publish
providers, or start and stop instances.
"""

from wharfinger.allocations.candidate_attempts import FlavorSearch
from wharfinger.allocations.claims import AllocationClaims, Claimed
from wharfinger.allocations.moves import Moves

__all__ = ["AllocationClaims", "Claimed", "FlavorSearch", "Moves"]
