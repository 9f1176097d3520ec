"""One cycle of one driver instance: ask the driver, compare, write the difference.

No database and no RPC of its own: what is remembered goes through the objects.
"""
