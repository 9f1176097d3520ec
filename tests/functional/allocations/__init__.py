"""Claims, moves and releases against the real Placement."""
