"""Runs compute drivers of nova as drivers of Wharfinger.

- ``config``: what an operator says.
- ``nova_process``: the parts of nova that a process has once: its configuration, its objects and
  its way to its database; and the loading of a compute driver.
- ``driver``: the contract with the framework.

Importing this package does not import nova: nova takes seconds, and commands that only look at the
configuration do not need it.
"""
