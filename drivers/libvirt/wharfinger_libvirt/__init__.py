"""The libvirt driver: it publishes one host with its mediated devices (mdevs), such as vGPUs.

- ``config`` and ``options``: the options of a driver instance.
- ``connection`` and ``host_snapshot``: the calls to libvirt.
- ``safexml``, ``nodedev`` and ``domains``: libvirt's XML as values.
- ``mdev``: the number of mdevs that each device offers; pure.
- ``reshape``: the move of allocations from a host's root provider to its devices; pure.
- ``driver``: the class that the framework calls.
"""
