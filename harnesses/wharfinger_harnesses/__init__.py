"""Backends for the conformance kit and the tests: real services with changeable hardware.

- ``daemons``: servers that end with the process that started them.
- ``openstack``: common code of the next two.
- ``ironic``, with ``ironic_service`` and ``ironic_hardware``: a real Ironic without a broker.
- ``cyborg``, with ``cyborg_service``, ``cyborg_hardware`` and ``cyborg_peers``: a real Cyborg.
- ``service_harness``: common code of the harnesses of these two.
- ``ironic_harness``, ``cyborg_harness`` and ``libvirt_harness``: the changes and faults of the kit.

Each service runs in its own process, and only this process loads its hardware module.
"""
