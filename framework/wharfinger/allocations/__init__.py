"""Who has what: allocations of instances, claimed in Placement, moved, and given back.

Placement decides who gets the last of something; objects say who asked for it. What is written
where, and in which order, is such that a process may end between any two steps: what it leaves
is found by the rows of instances and migrations, and finished or undone by whoever comes next.
Nothing here publishes, and no instance is started or stopped: that is for who calls it.
"""

from wharfinger.allocations.candidate_attempts import FlavorSearch
from wharfinger.allocations.claims import AllocationClaims, Claimed
from wharfinger.allocations.moves import Moves

__all__ = ["AllocationClaims", "Claimed", "FlavorSearch", "Moves"]
