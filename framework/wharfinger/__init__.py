"""Wharfinger: a framework for drivers that publish hardware to OpenStack Placement.

Stevedore-loaded drivers say what a host or a fleet has; the framework tags it with
its owner, reserves it while it cannot be used, and keeps Placement current.

The rooms, each importing only what stands below it::

    cli  console      faces: commands, and how trees and plans look in a terminal
    tracker           one cycle of one driver instance
    driver            the contract that drivers implement, and the loader
    placement         the client, the embedded service, applying a plan
    providers         provider trees, the diff, ownership, reservation; no I/O
    objects           versioned objects and stored records
    db                the database below the objects
    conf  exceptions  configuration and errors; sqlite, how SQLite is made safe
"""
