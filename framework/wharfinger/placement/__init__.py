"""Placement: a typed client, requests that write, a reader of trees, and the embedded service."""
