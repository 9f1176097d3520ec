"""The conformance kit: whether a driver keeps the contract, said rule by rule.

``pytest --pyargs wharfinger.conformance --driver NAME`` runs it, and so does ``wharfinger
conformance run NAME``. An author who wants more than the core to be looked at supplies a
``Harness`` (wharfinger.conformance.harness): a backend that the kit can change and break.

Nothing is imported here: every run of pytest comes by.
"""
