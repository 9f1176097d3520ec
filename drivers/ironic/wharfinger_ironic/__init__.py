"""The Ironic driver: the bare metal nodes of a fleet, or a part of it.

- ``config``: what an operator says.
- ``node`` and ``states``: a node as Ironic describes it, and why it cannot be given out; pure.
- ``client``: what is asked of Ironic, one method for each request; the only input and output.
- ``fleet``: all nodes, from complete listings and from the change feed.
- ``feed``: what has changed since the last look, cheaply.
- ``driver``: the contract with the framework.
"""
