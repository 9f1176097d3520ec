"""The libvirt driver: the mediated devices (vGPUs) of one host.

- ``config`` and ``options``: what an operator says.
- ``connection`` and ``host``: what libvirt says; the only input and output.
- ``nodedev``: libvirt's node device XML as values.
- ``mdev``: which device offers how much of what; pure.
- ``driver``: the contract with the framework.
"""
