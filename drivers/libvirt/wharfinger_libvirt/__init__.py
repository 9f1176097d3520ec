"""The libvirt driver: the mediated devices (vGPUs) of one host.

- ``config`` and ``options``: the options of an instance.
- ``connection`` and ``host_snapshot``: the calls to libvirt; the only input and output.
- ``safexml``, ``nodedev`` and ``domains``: libvirt's XML as values.
- ``mdev``: the mdevs that each device offers; pure.
- ``reshape``: the move of allocations from an old root to the devices; pure.
- ``driver``: the contract with the framework.
"""
