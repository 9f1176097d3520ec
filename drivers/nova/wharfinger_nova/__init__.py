"""Runs compute drivers of nova as drivers of Wharfinger.

- ``config``: the options of a driver instance.
- ``nova_process``: the global state of nova (configuration, objects, database, RPC), and the
  loading of a compute driver.
- ``driver``: the class that the framework calls.

Importing this package does not import nova: that takes seconds, and commands that only read the
configuration do not need nova.
"""
