"""Resource tracker: nodes, their usage, claims of instances, and the host's service."""
