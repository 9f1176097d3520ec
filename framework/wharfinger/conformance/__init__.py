"""The conformance kit: checks, rule by rule, whether a driver keeps the contract.

``pytest --pyargs wharfinger.conformance --driver NAME`` runs it, and so does ``wharfinger
conformance run NAME``. An author who wants more than the core to be checked supplies a
``Harness`` (wharfinger.conformance.harness): a backend that the kit can change and break.

This module imports nothing, since every run of pytest imports it.
"""
