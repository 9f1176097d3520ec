"""The libvirt driver: the mediated devices (vGPUs) of one host.

- ``config`` and ``options``: what an operator says.
- ``connection`` and ``host``: what libvirt says; the only input and output.
- ``safexml``, ``nodedev`` and ``domains``: libvirt's XML as values.
- ``mdev``: which device offers how much of what; pure.
- ``reshape``: whose is which device, where the root had them all; pure.
- ``driver``: the contract with the framework.
"""
