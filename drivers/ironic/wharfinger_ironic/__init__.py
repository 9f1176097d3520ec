"""The Ironic driver: the bare metal nodes of a fleet, or a part of it.

- ``config``: the options of an instance.
- ``node`` and ``states``: a node as Ironic describes it, and why it cannot be deployed; pure.
- ``client``: the requests to Ironic, one method for each; the only input and output.
- ``fleet``: all nodes, from complete listings and from the change feed.
- ``feed``: the changes since the last read, cheaply.
- ``driver``: the contract with the framework.
"""
