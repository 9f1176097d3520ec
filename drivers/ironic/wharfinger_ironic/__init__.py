"""The Ironic driver: it publishes the bare metal nodes of an Ironic, or some of them.

- ``config``: the options of a driver instance.
- ``node`` and ``states``: a node as Ironic describes it, and why it cannot be deployed; pure.
- ``client``: the requests to Ironic, one method for each.
- ``fleet``: all nodes, from complete lists and from the change feed.
- ``feed``: the changes since the last read, usually with one short request.
- ``driver``: the class that the framework calls.
"""
