"""The schema versions, in the order of their numbers."""
