"""Runs compute drivers of nova as drivers of Wharfinger.

- ``config``: the options of an instance.
- ``nova_process``: the globals of nova (configuration, objects, database, RPC), and the loading of
  a compute driver.
- ``driver``: the contract with the framework.

Importing this package does not import nova: nova takes seconds, and commands that only look at the
configuration do not need it.
"""
