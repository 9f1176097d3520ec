"""Resource tracker: rows of nodes, usage, claims of instances, and the report of the service.

It works on versioned objects and makes no database or RPC call of its own.
"""
