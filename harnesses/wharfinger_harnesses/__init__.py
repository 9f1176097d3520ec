"""Backends for the conformance kit and the tests: real services with changeable hardware.

- ``daemons``: servers that end with the process that started them.
- ``openstack``: common code of ``ironic`` and ``cyborg``.
- ``ironic``, with ``ironic_service`` and ``ironic_hardware``: a real Ironic without a broker.
- ``cyborg``, with ``cyborg_service``, ``cyborg_hardware`` and ``cyborg_peers``: a real Cyborg.
- ``service_harness``: common code of ``ironic_harness`` and ``cyborg_harness``.
- ``ironic_harness``, ``cyborg_harness``, ``libvirt_harness``, ``nova_harness``: the harnesses.

Each service runs in its own process. Only that process loads its module with the hardware.
"""
