"""Talking to Placement: the client, the embedded service, applying a plan."""
