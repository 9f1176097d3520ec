"""Client of the Placement API, and the embedded Placement service."""
