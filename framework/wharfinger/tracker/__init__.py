"""Resource tracker: node rows, usage, claims of instances, and reports that the service is up.

It reads and saves versioned objects, and makes no other database or RPC calls.
"""
