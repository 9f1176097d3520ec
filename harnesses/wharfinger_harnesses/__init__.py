"""Backends for the conformance kit and the tests: real services with simulated hardware.

- ``daemons``: servers that end with the process that started them.
- ``openstack``: common code of ``ironic`` and ``cyborg``.
- ``ironic``: a real Ironic without a broker, with the modules ``ironic_*``.
- ``cyborg``: a real Cyborg, with the modules ``cyborg_*``.
- ``service_harness``: common code of ``ironic_harness`` and ``cyborg_harness``.
- ``ironic_harness``, ``cyborg_harness``, ``libvirt_harness``, ``nova_harness``: the harnesses.

Ironic and Cyborg run in their own processes. Only these load ``ironic_hardware`` and
``cyborg_hardware``.
"""
