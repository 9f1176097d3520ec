"""Claim, move and release the allocations of instances.

If a process dies, another process can finish or undo its operation.
"""

from wharfinger.allocations.candidate_attempts import FlavorSearch
from wharfinger.allocations.claims import AllocationClaims, Claimed
from wharfinger.allocations.moves import Moves

__all__ = ["AllocationClaims", "Claimed", "FlavorSearch", "Moves"]
