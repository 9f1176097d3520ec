"""The conformance kit, which checks whether a driver keeps the contract.

``wharfinger conformance run NAME`` runs the kit. The extended rules need a ``Harness``
(wharfinger.conformance.harness).

This module imports nothing, since every run of pytest imports it.
"""
