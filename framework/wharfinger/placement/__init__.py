"""Placement: a typed client, the requests that write, a reader of trees, and the embedded service.

This package does not use versioned objects or the database.
"""
