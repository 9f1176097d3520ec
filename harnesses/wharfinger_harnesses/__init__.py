"""Backends for the conformance kit and the tests: real services, and what is changed in them.

- ``daemons``: servers that live as long as whoever started them.
- ``openstack``: what the next two have in common.
- ``ironic``, with ``ironic_service`` and ``ironic_hardware``: a real Ironic without a broker.
- ``cyborg``, with ``cyborg_service``, ``cyborg_hardware`` and ``cyborg_peers``: a real Cyborg.
- ``service_harness``: what the harnesses of these two have in common.
- ``ironic_harness``, ``cyborg_harness`` and ``libvirt_harness``: what the kit changes and breaks.

The services are programs, run each in its own process; their hardware is loaded by them alone.
"""
